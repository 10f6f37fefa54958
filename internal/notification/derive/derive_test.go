package derive_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/notification"
	"github.com/scheduler-service/scheduler/internal/notification/derive"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// bundle is a deriver on a database with two tenants, which has read everything up to ten minutes ago.
type bundle struct {
	t       *testing.T
	admin   *pgx.Conn
	leases  *lease.Store
	engine  *postgres.DB
	deriver *derive.Deriver
	a, b    uuid.UUID // tenants
	job     uuid.UUID // of a, with the tag "billing"
}

func setup(t *testing.T) *bundle {
	t.Helper()
	database := pgtest.New(t)
	engine, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: postgres.Engine, Name: "test", MaxConns: 6, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	metrics := telemetry.NewMetrics(telemetry.NewRegistry())
	b := &bundle{
		t: t, engine: engine, deriver: derive.New(engine, metrics, slog.New(slog.DiscardHandler)), a: uuid.New(), b: uuid.New(), job: uuid.New(),
		leases: lease.NewStore(lease.Config{DB: engine, Holder: "test", TTL: time.Minute, Metrics: metrics}),
	}
	if b.admin, err = pgx.Connect(t.Context(), database.AdminURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.admin.Close(context.WithoutCancel(t.Context())) })
	b.exec("INSERT INTO tenants (id, name) VALUES ($1, 'a'), ($2, 'b')", b.a, b.b)
	b.exec("SELECT create_job_executions_partition(now() - interval '6 hours'), create_job_executions_partition(now())")
	b.exec("UPDATE notification_cursor SET read_to = now() - interval '10 minutes'")
	b.makeJob(b.a, b.job, "nightly\r\nreport")
	return b
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.admin.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

func (b *bundle) makeJob(tenant, job uuid.UUID, name string) {
	b.t.Helper()
	b.exec(`INSERT INTO scheduled_jobs (id, tenant_id, name, tags, created_by, job_type, config, max_attempts, timeout_seconds)
		VALUES ($1, $2, $3, '{billing}', 'x', 'http', '{}', 1, 1)`, job, tenant, name)
}

// wants makes a notification of a tenant that tells these events from an hour ago on; more
// sets further columns.
func (b *bundle) wants(tenant uuid.UUID, events string, more ...string) uuid.UUID {
	b.t.Helper()
	id := uuid.New()
	b.exec(`INSERT INTO notifications (id, tenant_id, name, kind, events, created_by, since)
		VALUES ($1, $2, $4, 'webhook', $3, 'ada', now() - interval '1 hour')`, id, tenant, strings.Split(events, " "), id.String())
	for _, set := range more {
		b.exec("UPDATE notifications SET "+set+" WHERE id = $1", id)
	}
	return id
}

// ended records an execution of a job that ended so long ago.
func (b *bundle) ended(tenant, job uuid.UUID, ago time.Duration, status string) {
	b.t.Helper()
	at := clock.Now().Add(-ago)
	b.exec(`INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, error_type, error_message, reason, attempt, duration_us, completed_at, created_at)
		VALUES ($5, $3, $1, $2, 1, 'scheduled', 'http', $4, CASE WHEN $4 = 'failed' THEN 'TIMEOUT' END, 'it broke', 'because', 1, 1500, $3, now())`,
		tenant, job, at, status, execution.ScheduledID(job, at))
}

func (b *bundle) pass() derive.Report {
	b.t.Helper()
	pgtest.Quiet(b.t, b.admin)
	var report derive.Report
	ran, err := b.leases.Run(b.t.Context(), "derive-events", func(ctx context.Context, held lease.Lease) (err error) {
		report, err = b.deriver.Pass(ctx, held)
		return err
	})
	if !ran || err != nil {
		b.t.Fatalf("ran %v: %v", ran, err)
	}
	return report
}

// told lists what a notification tells, by type, in order.
func (b *bundle) told(id uuid.UUID) (types []string, events []notification.Event) {
	b.t.Helper()
	rows, err := b.admin.Query(b.t.Context(), "SELECT events FROM notification_deliveries WHERE notification_id = $1 ORDER BY id", id)
	if err != nil {
		b.t.Fatal(err)
	}
	raw, err := pgx.CollectRows(rows, pgx.RowTo[json.RawMessage])
	if err != nil {
		b.t.Fatal(err)
	}
	for _, one := range raw {
		var list []notification.Event
		if err := json.Unmarshal(one, &list); err != nil {
			b.t.Fatal(err)
		}
		for _, e := range list {
			types, events = append(types, e.Type), append(events, e)
		}
	}
	return types, events
}

// The first failure of a row and the recovery are told, once, however often the pass runs.
func TestFirstFailureAndRecoveryAreTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n, every := b.wants(b.a, "job.failed job.recovered"), b.wants(b.a, "execution.failed")
	foreign := b.wants(b.b, "job.failed job.recovered execution.failed")
	b.ended(b.a, b.job, 9*time.Minute, "completed")
	b.ended(b.a, b.job, 8*time.Minute, "failed")
	b.ended(b.a, b.job, 7*time.Minute, "cancelled")
	b.ended(b.a, b.job, 6*time.Minute, "failed")
	b.ended(b.a, b.job, -time.Minute, "completed") // so new that its neighbours may not be there yet
	b.pass()
	b.pass()
	if types, _ := b.told(n); !cmp.Equal(types, []string{"job.failed"}) {
		t.Errorf("it is told %v", types)
	}
	b.exec("UPDATE job_executions SET completed_at = (SELECT read_to + interval '1 microsecond' FROM notification_cursor) WHERE completed_at > now() - interval '5 minutes'")
	b.pass()
	types, events := b.told(n)
	if diff := cmp.Diff([]string{"job.failed", "job.recovered"}, types); diff != "" {
		t.Fatalf("told (-want +got):\n%s", diff)
	}
	failed, recovered := events[0], events[1]
	if failed.Failures != 1 || failed.ErrorType != "TIMEOUT" || failed.ErrorMessage != "it broke" || *failed.JobID != b.job || failed.JobName != "nightly\r\nreport" || failed.ExecutionID == nil {
		t.Errorf("the failure is %+v", failed)
	}
	if recovered.Failures != 2 || recovered.FailingSince == nil || !recovered.FailingSince.Equal(failed.At) {
		t.Errorf("the recovery is %+v", recovered)
	}
	if types, _ := b.told(every); !cmp.Equal(types, []string{"execution.failed", "execution.failed"}) {
		t.Errorf("each failure is told as %v", types)
	}
	if types, _ := b.told(foreign); len(types) > 0 {
		t.Errorf("another tenant is told %v", types)
	}
	var left int
	if err := b.admin.QueryRow(t.Context(), "SELECT count(*) FROM job_failures").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d jobs are failing: %v", left, err)
	}
}

// A row of failures that began and ended between two passes is told as well.
func TestARowWithinOneIntervalIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := b.wants(b.a, "job.failed job.recovered")
	for ago, status := range map[time.Duration]string{9: "failed", 8: "failed", 7: "completed", 6: "completed", 5: "failed"} {
		b.ended(b.a, b.job, ago*time.Minute, status)
	}
	b.pass()
	if types, _ := b.told(n); !cmp.Equal(types, []string{"job.failed", "job.recovered", "job.failed"}) {
		t.Errorf("it is told %v", types)
	}
}

func TestWhatANotificationTells(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other, gone := uuid.New(), uuid.New()
	b.makeJob(b.a, other, "other")
	b.makeJob(b.a, gone, "gone")
	b.exec("UPDATE scheduled_jobs SET deleted_at = now() WHERE id = $1", gone)
	b.exec("UPDATE scheduled_jobs SET tags = '{}' WHERE id = $1", other)
	b.exec("UPDATE scheduled_jobs SET status = 'inactive', status_by = 'system', status_reason = '3 executions in a row failed', status_at = now() - interval '1 minute' WHERE id = $1", other)
	for _, job := range []uuid.UUID{b.job, other, gone} {
		for i, status := range []string{"failed", "missed", "skipped"} {
			b.ended(b.a, job, time.Duration(9-i)*time.Minute, status)
		}
	}
	all := "job.failed job.disabled execution.missed execution.skipped"
	for name, test := range map[string]struct {
		id   uuid.UUID
		want int
	}{
		"every job":        {b.wants(b.a, all), 7},
		"one type":         {b.wants(b.a, "job.disabled"), 1},
		"one job":          {b.wants(b.a, all, fmt.Sprintf("job_ids = '{%s}'", b.job)), 3},
		"a tag":            {b.wants(b.a, all, "tags = '{billing,x}'"), 3},
		"a job and no tag": {b.wants(b.a, all, fmt.Sprintf("job_ids = '{%s}', tags = '{billing}'", other)), 0},
		"disabled":         {b.wants(b.a, all, "enabled = false"), 0},
		"made since":       {b.wants(b.a, all, "since = now() - interval '8 minutes 30 seconds'"), 5},
	} {
		defer func() {
			if types, _ := b.told(test.id); len(types) != test.want {
				t.Errorf("%s: told %v, want %d", name, types, test.want)
			}
		}()
	}
	b.pass()
	var reason string
	if err := b.admin.QueryRow(t.Context(), "SELECT d.events -> 0 ->> 'reason' FROM notification_deliveries d WHERE d.events -> 0 ->> 'type' = 'job.disabled' LIMIT 1").Scan(&reason); err != nil || reason != "3 executions in a row failed" {
		t.Errorf("the reason is %q: %v", reason, err)
	}
}

// Events beyond the bound are dropped and counted, of the tenant that has too much alone.
func TestATenantsDeliveriesThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	theirs := uuid.New()
	b.makeJob(b.b, theirs, "x")
	full, free := b.wants(b.a, "execution.failed"), b.wants(b.b, "execution.failed")
	b.exec(`INSERT INTO notification_deliveries (id, notification_id, tenant_id, events, event_count, next_attempt_at, give_up_at)
		SELECT gen_random_uuid(), $1, $2, '[]', 1, now(), now() FROM generate_series(1, 9999)`, full, b.a)
	for n := range 5 {
		b.ended(b.a, b.job, time.Duration(n+1)*time.Minute, "failed")
		b.ended(b.b, theirs, time.Duration(n+1)*time.Minute, "failed")
	}
	if got, want := b.pass(), (derive.Report{Told: 6, Dropped: 4}); got != want {
		t.Errorf("the pass did %+v, want %+v", got, want)
	}
	for id, want := range map[uuid.UUID]int{full: 4, free: 0} {
		var dropped int
		var due *time.Time
		if err := b.admin.QueryRow(t.Context(), "SELECT dropped, due_at FROM notifications WHERE id = $1", id).Scan(&dropped, &due); err != nil {
			t.Fatal(err)
		}
		if dropped != want || due == nil {
			t.Errorf("%d are dropped, want %d; due %v", dropped, want, due)
		}
	}
}

// An outcome that is committed late is told, and those next to it wait for it.
func TestAnOutcomeThatIsCommittedLateIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := b.wants(b.a, "execution.failed")
	late, err := b.admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.ended(b.a, b.job, 20*time.Second, "failed")
	if report := b.pass(); report.Told != 0 || !report.More {
		t.Errorf("a pass beside it did %+v", report)
	}
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.pass()
	if types, _ := b.told(n); len(types) != 1 {
		t.Errorf("it is told %v", types)
	}
}

// More than one transaction reads is told in pieces, each outcome once.
func TestMuchIsToldInPieces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := b.wants(b.a, "execution.missed")
	b.exec(`INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, completed_at, created_at)
		SELECT gen_random_uuid(), now() - interval '9 minutes', $1, $2, 1, 'scheduled', 'http', CASE WHEN i % 10 = 0 THEN 'missed' ELSE 'completed' END,
			now() - interval '9 minutes' + i * interval '10 ms', now() FROM generate_series(1, 12000) i`, b.a, b.job)
	b.pass()
	if types, _ := b.told(n); len(types) != 1200 {
		t.Errorf("%d are told, want 1200", len(types))
	}
}

// Without anybody to tell, nothing is read, and what happened meanwhile is not told
// afterwards.
func TestNothingIsReadForNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ended(b.a, b.job, 5*time.Minute, "failed")
	b.pass()
	var behind bool
	if err := b.admin.QueryRow(t.Context(), "SELECT read_to < now() - interval '9 minutes' FROM notification_cursor").Scan(&behind); err != nil || !behind {
		t.Errorf("the cursor moved: %v", err)
	}
	n := b.wants(b.a, "job.failed", "since = now() - interval '4 minutes'")
	b.pass()
	if types, _ := b.told(n); len(types) != 0 {
		t.Errorf("it is told %v of the time before it was made", types)
	}
}

// A deriver that lost its lease tells nothing.
func TestALateDeriverTellsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := b.wants(b.a, "job.failed")
	b.ended(b.a, b.job, 5*time.Minute, "failed")
	late, err := b.leases.Acquire(t.Context(), "derive-events")
	if err != nil {
		t.Fatal(err)
	}
	b.exec("UPDATE scheduler_locks SET expires_at = now()")
	if _, err := b.deriver.Pass(t.Context(), late); err == nil {
		t.Error("it was not told")
	}
	if types, _ := b.told(n); len(types) != 0 {
		t.Errorf("it told %v", types)
	}
}

// waiting lists how many events each message of a notification tells, in the order in which they
// were made, and whether all may be sent at once.
func (b *bundle) waiting(id uuid.UUID) (counts []int, now bool) {
	b.t.Helper()
	rows, err := b.admin.Query(b.t.Context(), "SELECT event_count, next_attempt_at <= now() FROM notification_deliveries WHERE notification_id = $1 ORDER BY id", id)
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	for now = true; rows.Next(); {
		var n int
		var due bool
		if err := rows.Scan(&n, &due); err != nil {
			b.t.Fatal(err)
		}
		counts, now = append(counts, n), now && due
	}
	return counts, now
}

// A notification that groups tells the first event at once and the others together, over
// several passes.
func TestEventsAreGrouped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := b.wants(b.a, "execution.failed", `settings = '{"groupMinutes": 10}'`)
	for range 60 {
		b.ended(b.a, b.job, 5*time.Minute, "failed")
	}
	b.pass()
	counts, now := b.waiting(n)
	if !cmp.Equal(counts, []int{1, 59}) || now {
		t.Fatalf("messages with %v events, all at once %v", counts, now)
	}
	b.exec("UPDATE notification_cursor SET read_to = now() - interval '4 minutes'")
	b.ended(b.a, b.job, 3*time.Minute, "failed")
	b.pass()
	if counts, _ := b.waiting(n); !cmp.Equal(counts, []int{1, 60}) {
		t.Errorf("messages with %v events", counts)
	}
	if types, _ := b.told(n); len(types) != 51 {
		t.Errorf("%d events are listed, want 51", len(types))
	}
	var apart time.Duration
	if err := b.admin.QueryRow(t.Context(), "SELECT max(next_attempt_at) - min(next_attempt_at) FROM notification_deliveries").Scan(&apart); err != nil || apart != 10*time.Minute {
		t.Errorf("the messages are %v apart: %v", apart, err)
	}
	b.exec("UPDATE notification_deliveries SET status = 'delivered', attempts = 1, attempted_at = now() - interval '11 minutes'")
	b.exec("UPDATE notification_cursor SET read_to = now() - interval '2 minutes'")
	b.ended(b.a, b.job, time.Minute, "failed")
	b.pass()
	if counts, _ := b.waiting(n); !cmp.Equal(counts, []int{1, 60, 1}) {
		t.Errorf("after the distance there are messages with %v events", counts)
	}
}

// In quiet hours events are held, and told together at their end.
func TestQuietHoursHold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	quiet := func(from, to time.Duration) string {
		at := func(d time.Duration) string { return clock.Now().UTC().Add(d).Format("15:04") }
		return fmt.Sprintf(`settings = '{"quietHours": {"from": "%s", "to": "%s", "timezone": "UTC"}}'`, at(from), at(to))
	}
	held := b.wants(b.a, "execution.failed", quiet(-2*time.Hour, 3*time.Hour))
	awake := b.wants(b.a, "execution.failed", quiet(2*time.Hour, 3*time.Hour))
	for range 3 {
		b.ended(b.a, b.job, 5*time.Minute, "failed")
	}
	b.pass()
	if counts, now := b.waiting(held); !cmp.Equal(counts, []int{3}) || now {
		t.Errorf("in quiet hours there are messages with %v events, all at once %v", counts, now)
	}
	if counts, now := b.waiting(awake); !cmp.Equal(counts, []int{1, 1, 1}) || !now {
		t.Errorf("outside there are messages with %v events, all at once %v", counts, now)
	}
}

// The first slow execution of a row is told, with what is usual, however often the pass runs.
func TestSlowExecutionsAreTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n, foreign := b.wants(b.a, "execution.slow"), b.wants(b.b, "execution.slow")
	other := b.wants(b.a, "job.failed")
	completed := func(ago time.Duration, seconds int) {
		b.exec(`INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, attempt, duration_us, completed_at, created_at)
			VALUES (gen_random_uuid(), now() - $3::interval, $1, $2, 1, 'scheduled', 'http', 'completed', 1, $4 * 1000000, now() - $3::interval, now())`, b.a, b.job, ago, seconds)
	}
	for i := range 12 {
		completed(9*time.Minute-time.Duration(i)*time.Second, 2)
	}
	b.ended(b.a, b.job, 8*time.Minute, "failed")
	completed(7*time.Minute, 9)
	completed(6*time.Minute, 9)
	b.pass()
	b.pass()
	types, events := b.told(n)
	if !cmp.Equal(types, []string{"execution.slow"}) {
		t.Fatalf("it is told %v", types)
	}
	if e := events[0]; e.DurationMS != 9000 || e.UsualMS != 2000 || *e.JobID != b.job || e.ExecutionID == nil || e.Attempt != 1 {
		t.Errorf("the event is %+v", e)
	}
	b.exec("UPDATE notification_cursor SET read_to = now() - interval '3 minutes'")
	completed(2*time.Minute, 2)
	completed(time.Minute, 60)
	b.pass()
	if types, _ := b.told(n); !cmp.Equal(types, []string{"execution.slow", "execution.slow"}) {
		t.Errorf("after one of the usual length it is told %v", types)
	}
	for id, want := range map[uuid.UUID]int{foreign: 0, other: 1} {
		if types, _ := b.told(id); len(types) != want {
			t.Errorf("others are told %v", types)
		}
	}
}
