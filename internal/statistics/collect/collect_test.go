package collect_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/statistics/collect"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

type bundle struct {
	t         *testing.T
	admin     *pgx.Conn
	engine    *postgres.DB
	leases    *lease.Store
	collector *collect.Collector
	store     *collect.Store // as the API has it
	a, b      uuid.UUID      // tenants
}

func setup(t *testing.T) *bundle {
	t.Helper()
	database := pgtest.New(t)
	open := func(role postgres.Role) *postgres.DB {
		db, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: role, Name: "test", MaxConns: 6, StatementTimeout: pgtest.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		return db
	}
	b := &bundle{t: t, engine: open(postgres.Engine), store: collect.NewStore(open(postgres.API)), a: uuid.New(), b: uuid.New()}
	b.collector = collect.NewCollector(b.engine)
	b.leases = lease.NewStore(lease.Config{DB: b.engine, Holder: "test", TTL: time.Minute, Metrics: telemetry.NewMetrics(telemetry.NewRegistry())})
	var err error
	if b.admin, err = pgx.Connect(t.Context(), database.AdminURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.admin.Close(context.Background()) })
	b.exec("INSERT INTO tenants (id, name) VALUES ($1, 'a'), ($2, 'b')", b.a, b.b)
	b.exec("SELECT create_job_executions_partition(now() - interval '6 hours')")
	b.countedTo(time.Minute)
	return b
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.admin.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// countedTo says how long ago the last counting was.
func (b *bundle) countedTo(ago time.Duration) {
	b.t.Helper()
	b.exec("UPDATE metric_totals SET counted_to = now() - $1::interval WHERE tenant_id = $2", ago, collect.Service)
}

// over records an execution that ended so long ago.
func (b *bundle) over(tenant uuid.UUID, ago time.Duration, status, errorType string, attempt, ms int) {
	b.t.Helper()
	b.exec(`INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, error_type, attempt, duration_ms, completed_at, created_at)
		VALUES (gen_random_uuid(), now() - $2::interval, $1, gen_random_uuid(), 1, 'scheduled', 'http', $3, nullif($4, ''), $5, nullif($6::bigint, 0), now() - $2::interval, now())`,
		tenant, ago, status, errorType, attempt, ms)
}

// pass counts within a lease, and forgets which half minute that was.
func (b *bundle) pass() {
	b.t.Helper()
	pgtest.Quiet(b.t, b.admin)
	ran, err := b.leases.Run(b.t.Context(), lease.Metrics, func(ctx context.Context, held lease.Lease) error {
		_, err := b.collector.Pass(ctx, held)
		return err
	})
	if !ran || err != nil {
		b.t.Fatalf("ran %v: %v", ran, err)
	}
}

// forget makes room for another snapshot in this half minute.
func (b *bundle) forget() {
	b.exec("DELETE FROM metric_history")
	b.exec("UPDATE metric_totals SET taken_at = NULL")
}

func (b *bundle) newest(tenant uuid.UUID) collect.Recent {
	b.t.Helper()
	r, err := b.store.Newest(b.t.Context(), tenant)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bundle) job(tenant uuid.UUID, status string, deleted bool) {
	b.t.Helper()
	b.exec(`INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds, status, deleted_at)
		VALUES (gen_random_uuid(), $1, 'x', 'x', 'http', '{}', 1, 1, $2, CASE WHEN $3 THEN now() END)`, tenant, status, deleted)
}

func (b *bundle) active(tenant uuid.UUID, status string) {
	b.t.Helper()
	b.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at, status)
		VALUES (gen_random_uuid(), $1, gen_random_uuid(), 1, now(), 'manual', 'http', 1, 1000, now(), now(), $2)`, tenant, status)
}

func TestNumbersAreThoseOfEachTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.job(b.a, "active", false)
	b.job(b.a, "active", false)
	b.job(b.a, "paused", false)
	b.job(b.a, "inactive", false)
	b.job(b.a, "inactive", true)
	b.job(b.b, "active", false)
	b.active(b.a, "pending")
	b.active(b.a, "retrying")
	b.active(b.b, "running")
	b.exec("INSERT INTO workers (id, host, pid, slots, expires_at, dead) VALUES (gen_random_uuid(), 'x', 1, 1, now() + interval '1 minute', false), (gen_random_uuid(), 'x', 1, 1, now() - interval '1 minute', false)")
	b.over(b.a, 30*time.Second, "completed", "", 1, 100)
	b.over(b.a, 30*time.Second, "completed", "", 2, 300)
	b.over(b.a, 30*time.Second, "failed", "TIMEOUT", 3, 500)
	b.over(b.a, 30*time.Second, "cancelled", "", 1, 7000) // how long it ran is no duration of a run that came to its end
	b.over(b.a, 30*time.Second, "missed", "", 0, 0)
	b.over(b.b, 30*time.Second, "failed", "NETWORK_ERROR", 1, 50)
	b.pass()
	a := collect.Numbers{
		Jobs: collect.Jobs{Total: 4, Active: 2, Paused: 1}, Waiting: 2, Workers: 1,
		Executions: collect.Outcomes{Completed: 2, Failed: 1, Cancelled: 1, Skipped: 1, TimedOut: 1, Retried: 2, Timed: 3, Duration: 900 * time.Millisecond},
	}
	other := collect.Numbers{
		Jobs: collect.Jobs{Total: 1, Active: 1}, Running: 1, Workers: 1,
		Executions: collect.Outcomes{Failed: 1, Timed: 1, Duration: 50 * time.Millisecond},
	}
	service := collect.Numbers{
		Jobs: collect.Jobs{Total: 5, Active: 3, Paused: 1}, Waiting: 2, Running: 1, Workers: 1,
		Executions: collect.Outcomes{Completed: 2, Failed: 2, Cancelled: 1, Skipped: 1, TimedOut: 1, Retried: 2, Timed: 4, Duration: 950 * time.Millisecond},
	}
	for tenant, want := range map[uuid.UUID]collect.Numbers{b.a: a, b.b: other, collect.Service: service} {
		got := b.newest(tenant)
		if got.TakenAt.IsZero() || got.TakenAt.Second()%30 != 0 || got.TakenAt.Nanosecond() != 0 {
			t.Errorf("taken at %v", got.TakenAt)
		}
		want.TakenAt = got.TakenAt
		if diff := cmp.Diff(collect.Recent{Numbers: want, LastHour: want.Executions}, got); diff != "" {
			t.Errorf("numbers (-want +got):\n%s", diff)
		}
	}
	if got := b.newest(uuid.New()); !got.TakenAt.IsZero() {
		t.Errorf("a tenant that is not there has numbers: %+v", got)
	}
}

// Each outcome counts once, whichever process counts and however often.
func TestOutcomesCountOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.countedTo(5 * time.Hour)
	const outcomes = 300
	for n := range outcomes {
		b.over(b.a, 20*time.Second+time.Duration(n)*time.Minute, "completed", "", 1, 10)
	}
	b.over(b.a, 0, "completed", "", 1, 10)                       // its neighbours may not be there yet
	b.over(b.a, 5*time.Hour+time.Minute, "completed", "", 1, 10) // was counted
	var taken atomic.Int32
	var group sync.WaitGroup
	for _, name := range []string{"one", "two", "three", "four"} { // as if each was late and did not know
		group.Go(func() {
			_, err := b.leases.Run(t.Context(), name, func(ctx context.Context, held lease.Lease) error {
				did, err := collect.NewCollector(b.engine).Pass(ctx, held)
				if did {
					taken.Add(1)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	b.forget()
	b.pass()
	if got := b.newest(b.a).Executions.Completed; got < outcomes-1 || got > outcomes+1 { // at the edges it depends on the moment
		t.Errorf("%d counted of %d", got, outcomes)
	}
	if n := b.rolled(b.a); n[0] < outcomes+1 || n[0] > outcomes+2 || n != every(n[0]) {
		t.Errorf("%v rolled up of %d", n, outcomes+2)
	}
	if n := taken.Load(); n < 1 || n > 3 { // more than one where half minutes ended meanwhile
		t.Errorf("taken %d times", n)
	}
	if got := b.newest(collect.Service).Executions; got != b.newest(b.a).Executions {
		t.Errorf("the service has %+v", got)
	}
}

// TestAnOutcomeThatIsCommittedLateCounts commits an outcome 20 seconds after its
// time, as a transaction does that waited for a standby. Outcomes committed next to
// it wait for it.
func TestAnOutcomeThatIsCommittedLateCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.countedTo(time.Minute)
	late, err := b.admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := late.Exec(t.Context(), `INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, attempt, completed_at, created_at)
		VALUES (gen_random_uuid(), now(), $1, gen_random_uuid(), 1, 'scheduled', 'http', 'completed', 1, now() - interval '20 seconds', now())`, b.a); err != nil {
		t.Fatal(err)
	}
	b.over(b.a, 20*time.Second, "completed", "", 1, 10)
	b.pass()
	if got := b.newest(b.a).Executions.Completed; got != 0 || !b.collector.Waiting() {
		t.Errorf("%d outcomes are counted while a transaction has written and not ended; waiting: %v", got, b.collector.Waiting())
	}
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.pass()
	if got := b.newest(b.a).Executions.Completed; got != 2 || b.collector.Waiting() {
		t.Errorf("%d outcomes are counted of 2; waiting: %v", got, b.collector.Waiting())
	}
}

func TestALateCollectorWritesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.over(b.a, 30*time.Second, "completed", "", 1, 10)
	late, err := b.leases.Acquire(t.Context(), lease.Metrics)
	if err != nil {
		t.Fatal(err)
	}
	b.exec("UPDATE scheduler_locks SET expires_at = now()")
	if taken, err := b.collector.Pass(t.Context(), late); taken || !errors.Is(err, lease.ErrLost) {
		t.Errorf("taken %v: %v", taken, err)
	}
	if got := b.newest(collect.Service); !got.TakenAt.IsZero() {
		t.Errorf("written: %+v", got)
	}
}

func TestTheLastHourIsADifference(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, row := range []struct {
		ago                                  string
		completed, failed, timedOut, retried int
	}{{"3 hours", 10, 1, 0, 0}, {"70 minutes", 100, 10, 1, 4}, {"30 minutes", 110, 15, 3, 6}, {"0", 130, 20, 6, 9}} {
		b.exec(`INSERT INTO metric_history (tenant_id, taken_at, coarse, jobs, active_jobs, paused_jobs, waiting, running, workers,
				completed, failed, cancelled, skipped, timed_out, retried, timed, duration_ms)
			VALUES ($1, date_trunc('minute', now()) - $2::text::interval, true, 0, 0, 0, 0, 0, 0, $3, $4, 0, 0, $5, $6, $7, $8)`,
			b.a, row.ago, row.completed, row.failed, row.timedOut, row.retried, row.completed, 10*row.completed)
	}
	hour := b.newest(b.a).LastHour
	got := []float64{*hour.ErrorRate(), *hour.TimeoutRate(), *hour.RetryRate(), hour.AverageDuration().Seconds()}
	if diff := cmp.Diff([]float64{0.25, 0.125, 0.125, 0.01}, got); diff != "" {
		t.Errorf("rates of the last hour (-want +got):\n%s", diff)
	}
	now := clock.Now()
	history, err := b.store.History(t.Context(), b.a, now.Add(-2*time.Hour), now.Add(time.Hour), 2)
	if err != nil || len(history) != 2 || history[0].Executions.Completed != 130 || history[1].Executions.Completed != 110 {
		t.Errorf("history %+v: %v", history, err)
	}
	if others, err := b.store.History(t.Context(), b.b, now.Add(-2*time.Hour), now.Add(time.Hour), 2); err != nil || len(others) != 0 {
		t.Errorf("another tenant's history %+v: %v", others, err)
	}
	var none collect.Outcomes
	if none.ErrorRate() != nil || none.AverageDuration() != nil {
		t.Error("nothing has a rate")
	}
}
