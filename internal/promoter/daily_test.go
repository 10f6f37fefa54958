package promoter_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/backfill"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// bounded gives the tenant a bound on its executions of a day.
func (b *bundle) bounded(t *testing.T, bound int) {
	t.Helper()
	if _, err := b.tenants(t).Change(t.Context(), b.who.TenantID, tenant.Spec{Name: "x", Limits: tenant.Limits{MaxExecutionsPerDay: &bound}}, 0); err != nil {
		t.Fatal(err)
	}
}

// usedUp makes a time's day one on which so many executions were made.
func (b *bundle) usedUp(t *testing.T, day time.Time, executions int) {
	t.Helper()
	_, err := b.engine.Pool().Exec(t.Context(), `INSERT INTO execution_days (tenant_id, day, executions) VALUES ($1, $2, $3)
		ON CONFLICT (tenant_id) DO UPDATE SET day = EXCLUDED.day, executions = EXCLUDED.executions`,
		b.who.TenantID, day.UTC().Truncate(24*time.Hour), executions)
	if err != nil {
		t.Fatal(err)
	}
}

// dueAt makes a job due at a time.
func (b *bundle) dueAt(t *testing.T, j job.Job, at time.Time) {
	t.Helper()
	if _, err := b.engine.Pool().Exec(t.Context(), "UPDATE scheduled_jobs SET next_execution_at = $1 WHERE id = $2", at, j.ID); err != nil {
		t.Fatal(err)
	}
}

// A backfill leaves half of the day's executions to the schedule, unless it is asked
// for otherwise, also beside one that is.
func TestBackfillsLeaveTheirShareOfTheDay(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	p.bounded(t, 9)
	j := p.hourly(t, nil)
	half, _, err := p.backfills.Create(t.Context(), p.who, j.ID, backfill.Request{From: p.midnight.Add(-12 * time.Hour), To: p.midnight, RatePerMinute: 6000}, idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	noon := p.midnight.Add(36 * time.Hour)
	counted := func() int { return p.number(t, "SELECT executions FROM execution_days") }
	if report := p.fill(t, p.promoter, noon); report.Created != 5 || counted() != 5 {
		t.Fatalf("%d were made and %d counted, want 5 of 9", report.Created, counted())
	}
	if got := p.get(t, half); got.HeldBy != "dailyShare" || got.DailyShare != 50 || got.Created != 5 {
		t.Errorf("the backfill is %+v", got)
	}
	p.dueAt(t, j, noon.Add(time.Minute))
	p.pass(t, p.promoter, noon.Add(time.Minute))
	if n := p.number(t, "SELECT count(*) FROM active_executions WHERE trigger_type = 'scheduled'"); n != 1 || counted() != 6 {
		t.Errorf("%d runs of the schedule, %d counted", n, counted())
	}
	asked := p.ask(t, j, 12, 6000) // for all of the day
	if report := p.fill(t, p.promoter, noon.Add(2*time.Minute)); report.Created != 3 || counted() != 9 {
		t.Errorf("%d were made and %d counted, want the 3 that are left", report.Created, counted())
	}
	if got := p.get(t, half); got.HeldBy != "dailyShare" || got.Created != 5 {
		t.Errorf("the first is %+v", got)
	}
	if got := p.get(t, asked); got.HeldBy != "maxExecutionsPerDay" || got.Created != 3 {
		t.Errorf("the second is %+v", got)
	}
}

// The runs of a backfill count on the day on which they are made; what the day
// has no room for is made on the next ones, and each time once.
func TestBackfillsCountForTheDay(t *testing.T) {
	t.Parallel()
	p := setupPast(t)
	p.bounded(t, 5)
	j := p.hourly(t, nil)
	asked := p.ask(t, j, 12, 6000)
	noon := p.midnight.Add(36 * time.Hour) // of tomorrow: after the request, and far from a change of days
	counted := func() int { return p.number(t, "SELECT executions FROM execution_days") }
	if report := p.fill(t, p.promoter, noon); report.Created != 5 || counted() != 5 {
		t.Fatalf("%d were made and %d counted, want 5", report.Created, counted())
	}
	if got := p.get(t, asked); got.HeldBy != "maxExecutionsPerDay" || got.Status != backfill.Running || got.Created != 5 {
		t.Errorf("the backfill is %+v", got)
	}
	// It looks again, in case the limit was raised, and counts nothing.
	if report := p.fill(t, p.another(), noon.Add(time.Minute)); report.Claimed != 1 || report.Created != 0 || counted() != 5 {
		t.Errorf("a minute later: %+v, %d counted", report, counted())
	}
	// Nothing of the day is left for the schedule, and its record says so.
	p.dueAt(t, j, noon.Add(time.Hour))
	p.pass(t, p.promoter, noon.Add(time.Hour))
	if n := p.number(t, "SELECT count(*) FROM job_executions WHERE status = 'skipped' AND reason LIKE '%maxExecutionsPerDay%'"); n != 1 || counted() != 5 {
		t.Errorf("%d times were skipped, %d are counted", n, counted())
	}
	midnight := p.midnight.Add(48 * time.Hour)
	if report := p.fill(t, p.promoter, midnight); report.Created != 5 || counted() != 5 {
		t.Errorf("the next day: %+v, %d counted", report, counted())
	}
	if report := p.fill(t, p.promoter, midnight.Add(24*time.Hour)); report.Created != 2 || counted() != 2 {
		t.Errorf("the day after: %+v, %d counted", report, counted())
	}
	if got := p.get(t, asked); got.HeldBy != "" || got.Created != 12 {
		t.Errorf("the backfill is %+v", got)
	}
	made := p.times(t, j)
	delete(made, noon.Add(time.Hour)) // what was skipped
	if diff := cmp.Diff(hoursBefore(p.midnight, 12), made); diff != "" {
		t.Errorf("times differ (-want +got):\n%s", diff)
	}
}

// A time that the day has no room for is no run: it neither ends a job that
// may run once, nor what runs.
func TestWhatTheDayHasNoRoomForIsNoRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.bounded(t, 5)
	once := b.create(t, func(s *job.Spec) { s.MaxExecutions = 1 })
	other := b.create(t, func(s *job.Spec) { s.Overlap = job.OverlapCancel })
	noon := once.NextExecutionAt.UTC().Truncate(24 * time.Hour).Add(36 * time.Hour)
	b.dueAt(t, other, noon)
	b.dueAt(t, once, noon.Add(time.Hour))
	if report := b.pass(t, b.promoter, noon); report.Promoted != 1 {
		t.Fatalf("%+v", report)
	}
	b.usedUp(t, noon, 5)
	b.dueAt(t, other, noon.Add(time.Hour))
	if report := b.pass(t, b.promoter, noon.Add(time.Hour)); report.Claimed != 2 || report.Promoted != 0 {
		t.Fatalf("%+v", report)
	}
	if n := b.number(t, "SELECT count(*) FROM active_executions WHERE cancel_requested_at IS NULL"); n != 1 {
		t.Errorf("%d runs go on, want that of the job that replaces them", n)
	}
	if n := b.number(t, "SELECT count(*) FROM job_executions WHERE status = 'skipped' AND reason LIKE '%maxExecutionsPerDay%'"); n != 2 {
		t.Errorf("%d times were skipped", n)
	}
	if n := b.number(t, "SELECT executions FROM execution_days"); n != 5 {
		t.Errorf("%d executions are counted", n)
	}
	got, err := b.jobs.Get(t.Context(), b.who, once.ID)
	if err != nil || got.Status != job.Active || got.ExecutionCount != 0 || got.NextExecutionAt == nil {
		t.Fatalf("the job that may run once: %s, %d runs, next %v, %v", got.Status, got.ExecutionCount, got.NextExecutionAt, err)
	}
	tomorrow := noon.Add(24 * time.Hour)
	b.dueAt(t, once, tomorrow)
	b.dueAt(t, other, tomorrow.Add(time.Hour))
	if report := b.pass(t, b.promoter, tomorrow); report.Promoted != 1 {
		t.Errorf("the next day: %+v", report)
	}
	if got, err := b.jobs.Get(t.Context(), b.who, once.ID); err != nil || got.Status != job.Inactive || got.ExecutionCount != 1 {
		t.Errorf("after its run the job is %s with %d runs, %v", got.Status, got.ExecutionCount, err)
	}
}

// Executions beyond those of a day have a record that says so.
func TestExecutionsBeyondTheDayAreSkipped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bound := 5
	if _, err := b.tenants(t).Change(t.Context(), b.who.TenantID, tenant.Spec{Name: "x", Limits: tenant.Limits{MaxExecutionsPerDay: &bound}}, 0); err != nil {
		t.Fatal(err)
	}
	j := b.create(t, func(s *job.Spec) {
		s.Misfire = job.Misfire{Policy: job.FireAll, Limit: 100}
	})
	first := j.NextExecutionAt.Truncate(24 * time.Hour).Add(36 * time.Hour) // noon of the next day
	if _, err := b.engine.Pool().Exec(t.Context(), "UPDATE scheduled_jobs SET next_execution_at = $1", first); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		b.pass(t, b.promoter, first.Add(time.Duration(i)*time.Second))
	}
	ran := b.number(t, "SELECT count(*) FROM active_executions")
	skipped := b.number(t, "SELECT count(*) FROM job_executions WHERE status = 'skipped' AND reason LIKE '%maxExecutionsPerDay%'")
	if ran != 5 || skipped != 3 {
		t.Errorf("%d ran and %d were skipped, want 5 and 3", ran, skipped)
	}
	b.pass(t, b.promoter, first.Add(24*time.Hour))
	if n := b.number(t, "SELECT count(*) FROM active_executions"); n != 10 {
		t.Errorf("%d ran with those of the next day, want 10", n)
	}
	if got, err := b.jobs.Get(t.Context(), b.who, j.ID); err != nil || got.ExecutionCount != 10 {
		t.Errorf("the job counts %d runs, %v", got.ExecutionCount, err)
	}
}

// A request that runs a job of a tenant with a bound on its day holds the tenant's count until its
// commit. A pass promotes the jobs of other tenants meanwhile. Those of the tenant wait for
// the count beside the passes, and are counted once.
func TestABusyCountKeepsNoOtherTenantBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.bounded(t, 5)
	due := clockIn(time.Minute).Truncate(time.Second)
	now := due.Add(10 * time.Second)
	b.usedUp(t, now, 3)
	j := b.due(t, 1, due)[0]
	other := b.neighbour(t)
	single := other.due(t, 1, due)[0]
	release := b.holds(t, "SELECT FROM execution_days WHERE tenant_id = $1 FOR UPDATE", b.who.TenantID)
	b.impatient(t)
	p := b.another()
	if report := b.pass(t, p, now); report.Promoted != 1 || len(other.rows(t, single)) != 1 || len(b.rows(t, j)) != 0 {
		t.Errorf("a pass promoted %d jobs beside the tenant whose count is busy, want that of the other tenant", report.Promoted)
	}
	if report := b.pass(t, p, now); report.Claimed != 0 || report.Next.Before(now) {
		t.Errorf("the next pass takes the job again: %+v", report)
	}
	b.promotedOnce(t, p, now, release)
	if n := b.number(t, "SELECT executions FROM execution_days WHERE tenant_id = $1", b.who.TenantID); n != 4 || len(b.rows(t, j)) != 1 {
		t.Errorf("%d executions are counted with one of the job, want 4; the job has %d", n, len(b.rows(t, j)))
	}
	if n := b.number(t, "SELECT count(*) FROM active_executions WHERE job_id = $1 AND available_at = $2", j.ID, now); n != 1 {
		t.Error("the pass that left the job out used up the first start of a late run")
	}
}
