package promoter_test

import (
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/promoter"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// counted is a promoter, and how to take the round trips that its passes made
// since. Once a connection or every two seconds is not each pass.
func (b *bundle) counted(t *testing.T) (p *promoter.Promoter, taken func() []string) {
	t.Helper()
	return b.countedWith(t, func(*promoter.Config) {})
}

func (b *bundle) countedWith(t *testing.T, edit func(*promoter.Config)) (p *promoter.Promoter, taken func() []string) {
	t.Helper()
	engine, taken := b.countedEngine(t)
	c := promoter.Config{
		DB: engine, Hints: b.hints, Metrics: telemetry.NewMetrics(telemetry.NewRegistry()), Log: slog.New(slog.DiscardHandler), CatchupPerSecond: func() int { return 100 },
	}
	edit(&c)
	p = promoter.New(c)
	p.KeepSize(true)
	return p, taken
}

func (b *bundle) countedEngine(t *testing.T) (engine *postgres.DB, taken func() []string) {
	t.Helper()
	var mu sync.Mutex
	var trips []string
	engine, err := postgres.Open(t.Context(), postgres.Config{
		URL: b.database.URL, Role: postgres.Engine, Name: "test", MaxConns: 2, StatementTimeout: pgtest.Patience,
		RoundTrip: func(statement string) {
			mu.Lock()
			defer mu.Unlock()
			if !slices.Contains([]string{"prepare", "ListDailyBounds", "ListFullBacklogs"}, statement) {
				trips = append(trips, statement)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	return engine, func() []string {
		mu.Lock()
		defer mu.Unlock()
		taken := trips
		trips = nil
		return taken
	}
}

// A pass is two round trips, whatever its jobs' overlap policies are and
// however many they are; a third counts for tenants with a bound on a day.
func TestAPassIsTwoRoundTrips(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, taken := b.counted(t)
	first := b.create(t, nil)
	for _, policy := range []job.Overlap{job.OverlapSkip, job.OverlapQueue1, job.OverlapAllow} {
		b.create(t, func(s *job.Spec) { s.Overlap = policy })
	}
	now := first.NextExecutionAt.Add(time.Minute)
	taken() // of its making
	look := func(what string, claimed int, want ...string) {
		t.Helper()
		report := b.pass(t, p, now)
		if report.Claimed != claimed {
			t.Errorf("%s: %d jobs were claimed, want %d", what, report.Claimed, claimed)
		}
		if diff := cmp.Diff(want, taken()); diff != "" {
			t.Errorf("%s: the round trips (-want +got)\n%s", what, diff)
		}
	}
	look("four jobs", 4, "ClaimDueJobs", "InsertDueExecutions")
	look("nothing due", 0, "ClaimDueJobs", "NextDue")
	bound := 1000
	if _, err := b.tenants(t).Change(t.Context(), b.who.TenantID, tenant.Spec{Name: "x", Limits: tenant.Limits{MaxExecutionsPerDay: &bound}}, 0); err != nil {
		t.Fatal(err)
	}
	p, taken = b.counted(t) // one that knows no older bounds
	taken()
	now = now.Add(time.Minute)
	look("a bounded tenant", 4, "ClaimDueJobs", "CountExecutionsByTenants", "InsertDueExecutions")
}

// A pass that found less than a batch says when the next job is due.
func TestAPassTellsTheNextScheduledTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	due := *j.NextExecutionAt
	if report := b.pass(t, b.promoter, due); report.Claimed != 1 || !report.Next.Equal(due.Add(time.Second)) {
		t.Errorf("claimed %d, next at %v, want 1 and a second after %v", report.Claimed, report.Next, due)
	}
	if report := b.pass(t, b.promoter, due); report.Claimed != 0 || !report.Next.Equal(due.Add(time.Second)) {
		t.Errorf("claimed %d, next at %v, want 0 and a second after %v", report.Claimed, report.Next, due)
	}
}

// A statement counts what is committed when it counts, and not when
// it began: so a claim may lock jobs and count their runs in one.
func TestActiveRunsAreCountedAsOfTheCount(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	admin := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), b.database.AdminURL)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	blocker, waiter := admin(), admin()
	defer blocker.Close(t.Context())
	defer waiter.Close(t.Context())
	tx, err := blocker.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT id FROM scheduled_jobs FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	counted := make(chan error, 1)
	var taken int
	go func() {
		counted <- waiter.QueryRow(t.Context(), `WITH due AS MATERIALIZED (SELECT id FROM scheduled_jobs FOR NO KEY UPDATE)
			SELECT coalesce(p.taken, 0)::int FROM due d LEFT JOIN count_active(ARRAY(SELECT u.id FROM due u)) p ON p.job_id = d.id`).Scan(&taken)
	}()
	b.untilBlocked(t)
	if _, err := tx.Exec(t.Context(), `INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority, max_attempts, timeout_ms, available_at, sweep_at)
		VALUES ($1, $2, $3, 1, now(), 'manual', 'function', 5, 1, 1000, now(), 'infinity')`, uuid.New(), b.who.TenantID, j.ID); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-counted; err != nil || taken != 1 {
		t.Errorf("%d places are taken, want the one that was taken while the job was locked; %v", taken, err)
	}
}
