package count_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/objective"
	"github.com/scheduler-service/scheduler/internal/objective/count"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

type bundle struct {
	t       *testing.T
	admin   *pgx.Conn
	store   *objective.Store // as the API has it
	counter *count.Counter
	leases  *lease.Store
	who     tenant.Actor
}

func setup(t *testing.T) *bundle {
	t.Helper()
	database := pgtest.New(t)
	open := func(role postgres.Role) *postgres.DB {
		db, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: role, Name: "test", MaxConns: 4, StatementTimeout: pgtest.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		return db
	}
	engine := open(postgres.Engine)
	b := &bundle{
		t: t, store: objective.NewStore(open(postgres.API)), counter: count.New(engine), who: tenant.Actor{TenantID: uuid.New(), Subject: "ada"},
		leases: lease.NewStore(lease.Config{DB: engine, Holder: "test", TTL: time.Minute, Metrics: telemetry.NewMetrics(telemetry.NewRegistry())}),
	}
	var err error
	if b.admin, err = pgx.Connect(t.Context(), database.AdminURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.admin.Close(context.WithoutCancel(t.Context())) })
	b.exec("INSERT INTO tenants (id, name) VALUES ($1, 'a')", b.who.TenantID)
	for days := range 33 {
		b.exec("SELECT create_job_executions_partition(now() - make_interval(days => $1))", days)
	}
	return b
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.admin.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

func (b *bundle) count(sql string, args ...any) (n int64) {
	b.t.Helper()
	if err := b.admin.QueryRow(b.t.Context(), sql, args...).Scan(&n); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (b *bundle) job(tags ...string) (id uuid.UUID) {
	b.t.Helper()
	id = uuid.New()
	b.exec(`INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds, tags)
		VALUES ($1, $2, 'x', 'x', 'http', '{}', 1, 1, $3)`, id, b.who.TenantID, append([]string{}, tags...))
	return id
}

// objective makes one that counts what ended in the last 40 days.
func (b *bundle) objective(spec objective.Spec) uuid.UUID {
	b.t.Helper()
	spec.Name = "stored"
	made, err := b.store.Create(b.t.Context(), b.who, spec)
	if err != nil {
		b.t.Fatal(err)
	}
	b.exec("UPDATE objectives SET created_at = now() - interval '40 days' WHERE id = $1", made.ID)
	b.exec("UPDATE objective_cursor SET read_to = now() - interval '40 days'")
	return made.ID
}

// pass counts until nothing is left.
func (b *bundle) pass() {
	b.t.Helper()
	for more := true; more; {
		pgtest.Quiet(b.t, b.admin)
		ran, err := b.leases.Run(b.t.Context(), "test", func(ctx context.Context, held lease.Lease) (err error) {
			more, err = b.counter.Pass(ctx, held)
			return err
		})
		if !ran || err != nil {
			b.t.Fatalf("ran %v: %v", ran, err)
		}
	}
}

func (b *bundle) get(id uuid.UUID) objective.Objective {
	b.t.Helper()
	found, err := b.store.Get(b.t.Context(), b.who, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

// history records so many executions of a job that ended over 35 days, of all outcomes, from on
// time to 9 s late; every tenth scheduled time was missed with two others.
func (b *bundle) history(job uuid.UUID, n int) {
	b.t.Helper()
	b.exec(`INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, reason, missed_count, started_at, completed_at, created_at)
		SELECT gen_random_uuid(), e.at, $1, $2, 1, CASE WHEN n % 7 = 0 THEN 'manual' ELSE 'scheduled' END, 'http', e.status,
		       CASE WHEN n % 20 = 0 THEN 'due while the job was paused' ELSE '' END, CASE WHEN e.status = 'missed' THEN 3 END,
		       CASE WHEN e.status IN ('completed', 'failed', 'cancelled') THEN e.at + (n % 10) * interval '1 second' END, e.at + interval '10 seconds', now()
		FROM generate_series(1, $3::int) n, LATERAL (SELECT now() - interval '1 minute' - n * (interval '35 days' / $3::int) AS at,
		     CASE WHEN n % 10 = 0 THEN 'missed' ELSE (ARRAY['completed', 'completed', 'completed', 'failed', 'cancelled', 'skipped'])[1 + n % 6] END AS status) e`,
		b.who.TenantID, job, n)
}

// The numbers of each objective are those of counting the records again, in its window and in
// the last hours, also where the pass is interrupted, repeated and far behind.
func TestNumbersAreThoseOfTheRecords(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second, other := b.job("report", "daily"), b.job("report"), b.job()
	for _, job := range []uuid.UUID{first, second, other} {
		b.history(job, 3000)
	}
	succeeds := b.objective(objective.Spec{Kind: objective.Success, JobID: &first, Target: 0.5, WindowDays: 30})
	tagged := b.objective(objective.Spec{Kind: objective.Success, Tag: "report", Target: 0.9, WindowDays: 7})
	timely := b.objective(objective.Spec{Kind: objective.OnTime, Tag: "report", Threshold: 4 * time.Second, Target: 0.5, WindowDays: 1})
	b.pass()
	b.pass() // counts nothing twice
	const success = "status IN ('completed', 'failed')"
	const timed = "trigger_type = 'scheduled' AND (started_at IS NOT NULL OR status = 'missed' AND reason = '')"
	for _, test := range []struct {
		id         uuid.UUID
		jobs       []uuid.UUID
		all, good  string
		windowDays int
	}{
		{succeeds, []uuid.UUID{first}, success, "status = 'completed'", 30},
		{tagged, []uuid.UUID{first, second}, success, "status = 'completed'", 7},
		{timely, []uuid.UUID{first, second}, timed, "status <> 'missed' AND started_at - scheduled_at <= interval '4 seconds'", 1},
	} {
		found := b.get(test.id)
		again := func(from time.Time) objective.Counts {
			sum := fmt.Sprintf("SELECT coalesce(sum(coalesce(missed_count, 1)), 0)::bigint FROM job_executions WHERE job_id = ANY ($1) AND completed_at >= $2 AND completed_at <= $3 AND %s AND ", test.all)
			good := b.count(sum+test.good, test.jobs, from, found.Status.CountedTo)
			return objective.Counts{Good: good, Bad: b.count(sum+"true", test.jobs, from, found.Status.CountedTo) - good}
		}
		if got, want := found.Status.Window, again(found.Status.From); got != want || want.Good == 0 || want.Bad == 0 {
			t.Errorf("%s over %d days: counted %+v, the records say %+v", found.Kind, test.windowDays, got, want)
		}
		if age := found.Status.CountedTo.Sub(found.Status.From); age < time.Duration(test.windowDays)*24*time.Hour-time.Hour || age > time.Duration(test.windowDays)*24*time.Hour+time.Hour {
			t.Errorf("a window of %d days is %v long", test.windowDays, age)
		}
		// From the beginning of the five minutes in which the hour began; asked a moment later,
		// that may be the next five.
		at := b.now()
		if got, want, late := found.Status.SixHours, again(at.Add(-6*time.Hour).Truncate(5*time.Minute)), again(at.Add(-6*time.Hour).Truncate(5*time.Minute).Add(-5*time.Minute)); got != want && got != late {
			t.Errorf("%s over six hours: counted %+v, the records say %+v", found.Kind, got, want)
		}
	}
	if n := b.count("SELECT count(*) FROM objective_counts WHERE span = 0 AND at < now() - interval '8 hours' OR at < now() - interval '33 days'"); n != 0 {
		t.Errorf("%d counts are kept that no window needs", n)
	}
}

func (b *bundle) now() (at time.Time) {
	b.t.Helper()
	if err := b.admin.QueryRow(b.t.Context(), "SELECT now()").Scan(&at); err != nil {
		b.t.Fatal(err)
	}
	return at.UTC()
}

// end records executions that ended a minute ago.
func (b *bundle) end(job uuid.UUID, status string, n int) {
	b.t.Helper()
	b.exec(`INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, started_at, completed_at, created_at)
		SELECT gen_random_uuid(), now(), $1, $2, 1, 'manual', 'http', $3, now(), now() - interval '1 minute', now() FROM generate_series(1, $4::int)`, b.who.TenantID, job, status, n)
}

// gauge is a number that the promoters export.
func (b *bundle) gauge(name string) int64 {
	b.t.Helper()
	return b.count("SELECT coalesce(max(value), -1) FROM service_gauges WHERE name = $1", name)
}

func TestBudgetsAndBurnRates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	job := b.job()
	id := b.objective(objective.Spec{Kind: objective.Success, JobID: &job, Target: 0.99, WindowDays: 30})
	b.pass()
	if s := b.get(id); s.BudgetLeft(s.Status.Window) != nil || s.BurnRate(s.Status.Hour) != nil || s.Status.Window.Share() != nil {
		t.Errorf("without any execution it is %+v", s)
	}
	expect := func(fast, slow, exhausted int64, left, rate float64) {
		t.Helper()
		b.pass()
		if got := [3]int64{b.gauge("objectives_fast_burn"), b.gauge("objectives_slow_burn"), b.gauge("objectives_no_budget")}; got != [3]int64{fast, slow, exhausted} {
			t.Errorf("fast, slow and exhausted are %v", got)
		}
		s := b.get(id)
		if got := s.BudgetLeft(s.Status.Window); got == nil || math.Abs(*got-left) > 1e-9 {
			t.Errorf("of %+v is left %v, want %v", s.Status.Window, got, left)
		}
		if got := s.BurnRate(s.Status.Hour); got == nil || math.Abs(*got-rate) > 1e-9 {
			t.Errorf("the burn rate of %+v is %v, want %v", s.Status.Hour, got, rate)
		}
	}
	b.end(job, "completed", 995)
	b.end(job, "failed", 5)
	b.exec("UPDATE objective_cursor SET read_to = now() - interval '40 days'") // nothing is counted yet
	expect(0, 0, 0, 0.5, 0.5)
	b.exec("UPDATE objective_counts SET good = 90, bad = 10")
	expect(0, 1, 1, -9, 10)
	b.exec("UPDATE objective_counts SET good = 80, bad = 20")
	expect(1, 1, 1, -19, 20)
	if err := b.store.Delete(t.Context(), b.who, id); err != nil {
		t.Fatal(err)
	}
	b.pass()
	if n := b.gauge("objectives_fast_burn"); n != 0 || b.count("SELECT count(*) FROM objective_counts") != 0 {
		t.Errorf("without an objective %d burn", n)
	}
}

// Executions that ended before an objective was made do not count.
func TestCountsBeginWithTheObjective(t *testing.T) {
	t.Parallel()
	b := setup(t)
	job := b.job()
	b.end(job, "failed", 3)
	made, err := b.store.Create(t.Context(), b.who, objective.Spec{Name: "new", Kind: objective.Success, JobID: &job, Target: 0.9, WindowDays: 30})
	if err != nil {
		t.Fatal(err)
	}
	b.pass()
	if s := b.get(made.ID).Status; s.Window != (objective.Counts{}) || !s.From.Equal(made.CreatedAt) || s.CountedTo.Before(s.From) {
		t.Errorf("it is %+v", s)
	}
}

// One tenant has as many objectives as it may, and each of its executions counts for all of them.
// Another tenant's executions are counted beside it: a pass takes both in the order in which they ended.
func TestManyObjectivesLeaveTurnsToOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const ended = 12_000 // times 100 more than a pass judges
	greedy, modest := b.who, tenant.Actor{TenantID: uuid.New(), Subject: "eve"}
	b.exec("INSERT INTO tenants (id, name) VALUES ($1, 'b')", modest.TenantID)
	busy := b.job("all")
	var one uuid.UUID
	for range objective.MaxObjectives {
		one = b.objective(objective.Spec{Kind: objective.Success, Tag: "all", Target: 0.9, WindowDays: 30})
	}
	b.who = modest
	quiet := b.job("rare")
	other := b.objective(objective.Spec{Kind: objective.Success, JobID: &quiet, Target: 0.9, WindowDays: 30})
	insert := `INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, started_at, completed_at, created_at)
		SELECT gen_random_uuid(), e.at, $1, $2, 1, 'manual', 'http', 'completed', e.at, e.at, now()
		FROM generate_series(1, $3::int) n, LATERAL (SELECT now() - interval '1 hour' - n * (interval '1 day' / $3::int) AS at) e`
	b.exec(insert, greedy.TenantID, busy, ended)
	b.exec(insert, modest.TenantID, quiet, 24)
	var more bool
	if ran, err := b.leases.Run(t.Context(), "test", func(ctx context.Context, held lease.Lease) (err error) {
		more, err = b.counter.Pass(ctx, held)
		return err
	}); !ran || err != nil {
		t.Fatalf("ran %v: %v", ran, err)
	}
	counted := b.get(other).Status.Window.Good
	b.who = greedy
	if of := b.get(one).Status.Window.Good; !more || counted < 12 || of < ended/2 || of >= ended {
		t.Errorf("one pass counted %d of 24 and %d of %d, and says that more is left: %v", counted, of, ended, more)
	}
	b.pass()
	if of := b.get(one).Status.Window.Good; of != ended {
		t.Errorf("in the end %d of %d are counted", of, ended)
	}
	b.who = modest
	if counted = b.get(other).Status.Window.Good; counted != 24 {
		t.Errorf("in the end %d of 24 are counted", counted)
	}
}

// A change judges what was counted anew, and touches nothing of what is counted.
func TestChangeKeepsCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	job := b.job("a")
	id := b.objective(objective.Spec{Kind: objective.Success, JobID: &job, Target: 0.5, WindowDays: 1})
	b.history(job, 700)
	b.pass()
	before := b.get(id)
	spec := before.Spec
	spec.Name, spec.Target, spec.WindowDays = "other", 0.9, 30
	after, err := b.store.Update(t.Context(), b.who, id, spec, before.Version)
	if err != nil || after.Version != 2 || after.Name != "other" || after.CreatedAt != before.CreatedAt || !after.UpdatedAt.After(before.CreatedAt) {
		t.Fatalf("%+v, %v", after, err)
	}
	if w := after.Status.Window; w.Good <= 2*before.Status.Window.Good || *after.BudgetLeft(w) >= *before.BudgetLeft(w) {
		t.Errorf("over 30 days %+v, over one %+v", w, before.Status.Window)
	}
	for name, change := range map[string]func(*objective.Spec){
		"kind": func(s *objective.Spec) { s.Kind, s.Threshold = objective.OnTime, time.Second }, "tag": func(s *objective.Spec) { s.JobID, s.Tag = nil, "a" },
	} {
		other := spec
		change(&other)
		if _, err := b.store.Update(t.Context(), b.who, id, other, 0); fault.KindOf(err) != fault.Invalid {
			t.Errorf("another %s: %v", name, err)
		}
	}
	if _, err := b.store.Update(t.Context(), b.who, id, spec, 1); fault.KindOf(err) != fault.Conflict {
		t.Errorf("of the version before: %v", err)
	}
	if _, err := b.store.Update(t.Context(), tenant.Actor{TenantID: uuid.New()}, id, spec, 0); fault.KindOf(err) != fault.NotFound {
		t.Errorf("of another tenant: %v", err)
	}
}
