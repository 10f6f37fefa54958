package promoter_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/maintenance"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/promoter"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// hints takes down what a promoter sends.
type hints struct {
	mu       sync.Mutex
	sent     map[queue.Lane][]uuid.UUID
	together []uuid.UUID // of sent: what one worker can run as well as several
	err      error
	lost     bool
}

func (h *hints) Publish(_ context.Context, lane queue.Lane, ids []uuid.UUID) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	if h.sent == nil {
		h.sent = map[queue.Lane][]uuid.UUID{}
	}
	h.sent[lane] = append(h.sent[lane], ids...)
	return nil
}

func (h *hints) PublishTogether(ctx context.Context, lane queue.Lane, ids []uuid.UUID) error {
	err := h.Publish(ctx, lane, ids)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.together = append(h.together, ids...)
	}
	return err
}

func (h *hints) LostContents(context.Context) (bool, error) { return h.lost, h.err }

func (h *hints) Depth(context.Context) (map[queue.Lane]int, error) { return nil, h.err }

// take answers what was sent since the last call.
func (h *hints) take() map[queue.Lane][]uuid.UUID {
	h.mu.Lock()
	defer h.mu.Unlock()
	sent := h.sent
	h.sent = nil
	return sent
}

type bundle struct {
	database   *pgtest.Database
	jobs       *job.Store
	executions *execution.Store
	who        tenant.Actor
	engine     *postgres.DB
	hints      *hints
	promoter   *promoter.Promoter
	maintainer *maintenance.Maintainer
}

func open(t *testing.T, url string, role postgres.Role) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: url, Role: role, Name: "test", MaxConns: 4, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

func (b *bundle) another() *promoter.Promoter {
	p := promoter.New(promoter.Config{
		DB: b.engine, Hints: b.hints, Metrics: telemetry.NewMetrics(telemetry.NewRegistry()), Log: slog.New(slog.DiscardHandler), CatchupPerSecond: func() int { return 100 },
	})
	p.KeepSize(true)
	return p
}

// anotherMaintainer is one that uses another pool or other hints too.
func (b *bundle) anotherMaintainer(edit func(*maintenance.Config)) *maintenance.Maintainer {
	c := maintenance.Config{
		DB: b.engine, Hints: b.hints, Metrics: telemetry.NewMetrics(telemetry.NewRegistry()), Log: slog.New(slog.DiscardHandler),
	}
	if edit != nil {
		edit(&c)
	}
	return maintenance.New(c)
}

func setup(t *testing.T) *bundle {
	t.Helper()
	database := pgtest.New(t)
	api := open(t, database.URL, postgres.API)
	b := &bundle{
		database: database, jobs: job.NewStore(api, job.Config{}), executions: execution.NewStore(api, execution.Config{}),
		who: tenant.Actor{TenantID: uuid.New(), Subject: "ada"}, engine: open(t, database.URL, postgres.Engine), hints: &hints{},
	}
	if err := tenant.NewStore(api, true).Admit(t.Context(), b.who.TenantID); err != nil {
		t.Fatal(err)
	}
	b.promoter, b.maintainer = b.another(), b.anotherMaintainer(nil)
	return b
}

// create makes a no-op job that is due every second, changed by edit.
func (b *bundle) create(t *testing.T, edit func(*job.Spec)) job.Job {
	t.Helper()
	spec := job.Spec{
		Name: "every second", Type: "function", Retry: job.DefaultRetry(),
		Config: []byte(`{"modulePath":"builtin","functionName":"noop"}`),
		Policy: job.Policy{CronExpression: "* * * * * *", Overlap: job.OverlapAllow},
	}
	if edit != nil {
		edit(&spec)
	}
	j, _, err := b.jobs.Create(t.Context(), b.who, spec.WithDefaults(), idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// pass runs one pass at now and fails the test when it does.
func (b *bundle) pass(t *testing.T, p *promoter.Promoter, now time.Time) promoter.Report {
	t.Helper()
	report, err := p.Pass(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// rows are a job's executions, oldest first.
func (b *bundle) rows(t *testing.T, j job.Job) []execution.Execution {
	t.Helper()
	list, _, err := b.executions.List(t.Context(), b.who, execution.Filter{JobID: &j.ID, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(list)
	return list
}

// Runs that call a target share hints; what may compute does not.
func TestOnlyCallsShareHints(t *testing.T) {
	t.Parallel()
	b := setup(t)
	computes := b.create(t, func(s *job.Spec) { s.Name = "computes" })
	calls := b.create(t, func(s *job.Spec) {
		s.Name, s.Type, s.Config = "calls", "http", []byte(`{"url":"https://example.com"}`)
	})
	due := clock.Later(*computes.NextExecutionAt, *calls.NextExecutionAt)
	b.dueAt(t, computes, due)
	b.dueAt(t, calls, due)
	b.pass(t, b.promoter, due)
	hinted := b.hints.take()[queue.Low]
	slices.SortFunc(hinted, func(x, y uuid.UUID) int { return bytes.Compare(x[:], y[:]) })
	want := []uuid.UUID{execution.ScheduledID(calls.ID, due)}
	both := append([]uuid.UUID{execution.ScheduledID(computes.ID, due)}, want...)
	slices.SortFunc(both, func(x, y uuid.UUID) int { return bytes.Compare(x[:], y[:]) })
	if !slices.Equal(hinted, both) || !slices.Equal(b.hints.together, want) {
		t.Errorf("hinted %v, of them together %v; want %v and %v", hinted, b.hints.together, both, want)
	}
}

func TestPassMakesOneExecutionForAScheduledTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, func(s *job.Spec) { s.Priority = 8 })
	due := *j.NextExecutionAt

	if report := b.pass(t, b.promoter, due.Add(-time.Millisecond)); report.Claimed != 0 || !report.Next.Equal(due) {
		t.Fatalf("before the time: %+v, want nothing claimed and next %v", report, due)
	}
	report := b.pass(t, b.promoter, due)
	if report.Claimed != 1 || report.Promoted != 1 {
		t.Fatalf("at the time: %+v", report)
	}
	want := map[queue.Lane][]uuid.UUID{queue.High: {execution.ScheduledID(j.ID, due)}}
	if diff := cmp.Diff(want, b.hints.take()); diff != "" {
		t.Errorf("hints (-want +got):\n%s", diff)
	}
	rows := b.rows(t, j)
	if len(rows) != 1 || rows[0].ID != execution.ScheduledID(j.ID, due) || rows[0].Status != execution.Pending ||
		!rows[0].ScheduledAt.Equal(due) || rows[0].Trigger != execution.Scheduled {
		t.Errorf("rows: %+v", rows)
	}
	after, err := b.jobs.Get(t.Context(), b.who, j.ID)
	if err != nil {
		t.Fatal(err)
	}
	if !after.NextExecutionAt.Equal(due.Add(time.Second)) || !after.LastExecutionAt.Equal(due) || after.ExecutionCount != 1 {
		t.Errorf("the job was not advanced: next %v, last %v, count %d", after.NextExecutionAt, after.LastExecutionAt, after.ExecutionCount)
	}
}

func TestPromotersSideBySideMakeEachExecutionOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var made []job.Job
	for i := range 40 {
		made = append(made, b.create(t, func(s *job.Spec) { s.Name = fmt.Sprint("job ", i) }))
	}
	start := *made[0].NextExecutionAt
	var group errgroup.Group
	for range 3 {
		p := b.another()
		group.Go(func() error {
			for second := range 12 {
				if _, err := p.Pass(t.Context(), start.Add(time.Duration(second)*time.Second)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	end := start.Add(11 * time.Second)
	for b.pass(t, b.promoter, end).Claimed > 0 {
	}
	for _, j := range made {
		got := map[time.Time]int{}
		for _, row := range b.rows(t, j) {
			got[row.ScheduledAt]++
		}
		want := map[time.Time]int{}
		for at := *j.NextExecutionAt; !at.After(end); at = at.Add(time.Second) {
			want[at] = 1
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("times of %s (-want +got):\n%s", j.Name, diff)
		}
	}
}

func TestLongOutageLeavesOneMissedRowAndOneRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, func(s *job.Spec) { s.CronExpression = "0 * * * * *" })
	first := *j.NextExecutionAt
	back := first.Add(3*time.Hour + 30*time.Second)

	report := b.pass(t, b.promoter, back)
	// 181 times were due: the newest is within the grace time, the newest
	// beyond it still runs once, the others are missed.
	if report.Promoted != 2 || report.Missed != 179 {
		t.Fatalf("report: %+v, want 2 promoted and 179 missed", report)
	}
	rows := b.rows(t, j)
	if len(rows) != 3 {
		t.Fatalf("%d rows, want the range and two runs", len(rows))
	}
	m := rows[0]
	if m.Status != execution.Missed || m.MissedCount != 179 || !m.ScheduledAt.Equal(first) ||
		m.MissedUntil == nil || !m.MissedUntil.Equal(first.Add(178*time.Minute)) || m.Reason == "" {
		t.Errorf("missed row: %+v", m)
	}
}

// clockIn is the time so long from now.
func clockIn(d time.Duration) time.Time { return clock.Now().Add(d) }

func TestHintThatIsLostIsLookedForAfterFiveSeconds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	due := *j.NextExecutionAt
	b.pass(t, b.promoter, due)
	if sent := b.hints.take(); len(sent[queue.Low]) != 1 || len(b.pooled(t)) != 0 {
		t.Fatalf("sent %v, in the pool %v", sent, b.pooled(t))
	}
	if r := b.sweep(t, due.Add(4900*time.Millisecond)); r.Pooled != 0 {
		t.Errorf("too early: %+v", r)
	}
	for i, want := range []int{1, 0} {
		if r := b.sweep(t, due.Add(5*time.Second)); r.Pooled != want || len(b.pooled(t)) != 1 {
			t.Errorf("sweep %d: %+v, in the pool %v", i, r, b.pooled(t))
		}
	}
}

func TestPausedJobIsNotPromoted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	if _, err := b.jobs.Pause(t.Context(), b.who, j.ID, "maintenance", nil); err != nil {
		t.Fatal(err)
	}
	if report := b.pass(t, b.promoter, j.NextExecutionAt.Add(time.Second)); report.Claimed != 0 {
		t.Errorf("claimed a paused job: %+v", report)
	}
}

func TestOneOffBecomesInactive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	at := clock.Now().Add(time.Hour).UTC().Truncate(time.Second)
	j := b.create(t, func(s *job.Spec) { s.CronExpression, s.RunAt = "", &at })
	b.pass(t, b.promoter, at)
	after, err := b.jobs.Get(t.Context(), b.who, j.ID)
	if err != nil {
		t.Fatal(err)
	}
	if after.Status != job.Inactive || after.NextExecutionAt != nil || after.StatusReason == "" {
		t.Errorf("after its only time: status %s (%s), next %v", after.Status, after.StatusReason, after.NextExecutionAt)
	}
	if rows := b.rows(t, j); len(rows) != 1 {
		t.Errorf("%d rows", len(rows))
	}
}

func TestMissingPartitionIsMade(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, func(s *job.Spec) { s.CronExpression = "0 0 0 1 * *" })
	// As after an outage of months: the missed row's partition does not exist yet.
	// In the middle of the month, so that its own time is late too.
	now := clock.Now()
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	now = month.AddDate(0, 0, 14)
	exec(t, b.database.OwnerURL, "ALTER TABLE job_schedule NO FORCE ROW LEVEL SECURITY")
	exec(t, b.database.OwnerURL, fmt.Sprintf("UPDATE job_schedule SET next_execution_at = '%s'", month.AddDate(0, -5, 0).Format(time.RFC3339)))
	report := b.pass(t, b.promoter, now)
	if rows := b.rows(t, j); report.Missed != 5 || len(rows) != 2 || rows[0].Status != execution.Missed || rows[0].MissedCount != 5 {
		t.Errorf("%+v, rows %+v", report, rows)
	}
}

func exec(t *testing.T, url, sql string) {
	t.Helper()
	pgtest.Exec(t, url, sql)
}

// A row counts all that was missed in two days of every second, and says so where
// it stands for more scheduled times than are counted.
func TestMissedRowSaysWhetherItsCountIsALowerBound(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		after time.Duration
		least bool
	}{{48 * time.Hour, false}, {40 * 365 * 24 * time.Hour, true}} {
		t.Run(test.after.String(), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			j := b.create(t, nil)
			first := *j.NextExecutionAt
			b.pass(t, b.promoter, first.Add(test.after))
			m := b.rows(t, j)[0]
			exact := int64(m.MissedUntil.Sub(first)/time.Second) + 1
			if test.least {
				exact = max(999_999_000, min(m.MissedCount, 1_000_000_001))
			}
			if m.Status != execution.Missed || m.MissedCount != exact || strings.Contains(m.Reason, "counting stopped") != test.least ||
				!m.ScheduledAt.Equal(first) || m.MissedUntil.Before(first.Add(test.after-time.Hour)) {
				t.Errorf("%d missed from %v to %v: %s", m.MissedCount, m.ScheduledAt, m.MissedUntil, m.Reason)
			}
		})
	}
}
