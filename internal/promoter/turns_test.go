package promoter_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/promoter"
)

// due makes n jobs, the first due at a time and each other one a millisecond later.
func (b *bundle) due(t *testing.T, n int, at time.Time) (jobs []job.Job) {
	t.Helper()
	for i := range n {
		j := b.create(t, func(s *job.Spec) { s.Name, s.CronExpression = fmt.Sprint("job ", i), "0 0 0 1 1 *" })
		b.dueAt(t, j, at.Add(time.Duration(i)*time.Millisecond))
		jobs = append(jobs, j)
	}
	return jobs
}

// beside is a tenant with many due jobs, and singles of others: one due at the same
// time as the many are, and one due later.
func (b *bundle) beside(t *testing.T, many int) (at, now time.Time, of []*bundle, singles []job.Job) {
	t.Helper()
	at = clockIn(2 * time.Second).Truncate(time.Second)
	b.due(t, many, at)
	exec(t, b.database.AdminURL, fmt.Sprintf("UPDATE scheduled_jobs SET next_execution_at = '%s'", at.Format(time.RFC3339)))
	for _, later := range []time.Duration{0, 500 * time.Millisecond} {
		other := b.neighbour(t)
		of, singles = append(of, other), append(singles, other.due(t, 1, at.Add(later))...)
	}
	return at, at.Add(time.Second), of, singles
}

// Many due jobs of one tenant keep another tenant's job back for one pass,
// whether it is due at the same time or later.
func TestTenantsTakeTurnsWhereMoreIsDueThanAPassTakes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, now, of, singles := b.beside(t, 60)
	b.promoter.SetBatch(10)
	for pass := range 2 {
		if claimed := b.pass(t, b.promoter, now).Claimed; claimed != 10 {
			t.Errorf("pass %d claimed %d jobs, want all that it may", pass+1, claimed)
		}
	}
	for i, j := range singles {
		if n := len(of[i].rows(t, j)); n != 1 {
			t.Errorf("single job %d has %d executions after two passes, want 1", i, n)
		}
	}
	if b.drain(t, b.promoter, now); b.number(t, "SELECT count(*) FROM active_executions") != 62 {
		t.Error("not every job has one execution in the end")
	}
}

// Four promoters at once give the turns too, and promote each job once.
func TestTurnsOfFourPromoters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, now, of, singles := b.beside(t, 200)
	four := make([]*promoter.Promoter, 4)
	for i := range four {
		four[i] = b.another()
		four[i].SetBatch(10)
		four[i].DecideAt(0) // on a busy machine a pass would leave jobs that it had claimed
	}
	atOnce := func() (claimed int) {
		t.Helper()
		counts := make([]int, len(four))
		var group errgroup.Group
		for i, p := range four {
			group.Go(func() error {
				report, err := p.Pass(t.Context(), now)
				counts[i] = report.Claimed
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		return counts[0] + counts[1] + counts[2] + counts[3]
	}
	claimed := atOnce() + atOnce()
	for i, j := range singles {
		if n := len(of[i].rows(t, j)); n != 1 {
			t.Errorf("single job %d has %d executions after two passes of each promoter, want 1", i, n)
		}
	}
	for {
		n := atOnce()
		if claimed += n; n == 0 {
			break
		}
	}
	if once := b.number(t, "SELECT count(*) FROM scheduled_jobs WHERE execution_count = 1"); claimed != 202 || once != 202 {
		t.Errorf("%d jobs were claimed and %d promoted once, want 202", claimed, once)
	}
}

// The jobs of a tenant are promoted oldest first, in turns too.
func TestTurnsKeepTheOrderWithinATenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.neighbour(t)
	at := clockIn(2 * time.Second).Truncate(time.Second)
	want := map[uuid.UUID][]job.Job{}
	for _, tenant := range []*bundle{b, other} {
		jobs := tenant.due(t, 30, at)
		slices.Reverse(jobs) // not in the order in which their rows stand
		for i, j := range jobs {
			tenant.dueAt(t, j, at.Add(time.Duration(i)*time.Millisecond))
		}
		want[tenant.who.TenantID] = jobs
	}
	b.promoter.SetBatch(10)
	for promoted := 10; promoted <= 60; promoted += 10 {
		if claimed := b.pass(t, b.promoter, at.Add(time.Second)).Claimed; claimed != 10 {
			t.Fatalf("%d jobs were claimed, want 10", claimed)
		}
		for tenant, jobs := range want {
			n := b.number(t, "SELECT count(*) FROM scheduled_jobs WHERE tenant_id = $1 AND execution_count = 1", tenant)
			for i, j := range jobs {
				if got := b.number(t, "SELECT execution_count FROM scheduled_jobs WHERE id = $1", j.ID); (got == 1) != (i < n) {
					t.Errorf("after %d jobs, %d of which are of this tenant, its job %d has %d executions", promoted, n, i, got)
				}
			}
		}
	}
}

// Where more tenants have something due than a pass takes, the next pass goes on
// with those that had no turn.
func TestTurnsGoOnWithTheNextTenants(t *testing.T) {
	t.Parallel()
	b := setup(t)
	at := clockIn(2 * time.Second).Truncate(time.Second)
	b.due(t, 60, at)
	var of []*bundle
	var singles []job.Job
	for range 8 {
		other := b.neighbour(t)
		of, singles = append(of, other), append(singles, other.due(t, 1, at.Add(500*time.Millisecond))...)
	}
	b.promoter.SetBatch(4) // three of them in turns
	for range 1 + 3 {
		b.pass(t, b.promoter, at.Add(time.Second))
	}
	for i, j := range singles {
		if len(of[i].rows(t, j)) != 1 {
			t.Errorf("single job %d of 8 has had no turn in three passes", i)
		}
	}
}

// The walk over the tenants is bounded: each piece goes on where the one before
// ended, and after the last tenant it begins anew.
func TestWalkOverTenantsIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	at := clockIn(2 * time.Second).Truncate(time.Second)
	want := map[uuid.UUID]bool{}
	for _, j := range b.due(t, 1, at) {
		want[j.ID] = true
	}
	for range 4 {
		for _, j := range b.neighbour(t).due(t, 1, at) {
			want[j.ID] = true
		}
	}
	b.neighbour(t).due(t, 1, at.Add(time.Hour)) // is passed over
	now, before, got := at.Add(time.Second), uuid.Max, map[uuid.UUID]bool{}
	for piece := range 3 {
		rows, err := db.New(b.engine.Pool()).LockDueJobsInTurns(t.Context(), db.LockDueJobsInTurnsParams{
			Now: &now, Most: 100, WalkSize: 2, AnyTenant: uuid.Max, BeforeTenant: before, ExceptIds: []uuid.UUID{}, ExceptTenants: []uuid.UUID{},
		})
		if err != nil {
			t.Fatal(err)
		}
		locked := rows[0]
		if len(locked.Ids) > 2 {
			t.Fatalf("piece %d: %d jobs of two tenants", piece, len(locked.Ids))
		}
		for _, id := range locked.Ids {
			got[id] = true
		}
		before = locked.BeforeTenant
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what three pieces of two tenants locked (-want +got)\n%s", diff)
	}
}

// A tenant whose due jobs are all held by somebody else does not stop the walk.
func TestTurnsPassOverATenantWhoseJobsAreHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, now, of, singles := b.beside(t, 60)
	b.promoter.SetBatch(10)
	b.pass(t, b.promoter, now)
	// Of jobs that are due at one time the index says which come first: the single job may
	// be among the ten of the first pass.
	waiting := 0
	for i, j := range singles {
		if len(of[i].rows(t, j)) == 0 {
			waiting++
		}
	}
	if waiting == 0 {
		t.Fatal("the job that is due later was promoted first")
	}
	conn, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM scheduled_jobs WHERE tenant_id = $1 FOR UPDATE", b.who.TenantID); err != nil {
		t.Fatal(err)
	}
	if claimed := b.pass(t, b.promoter, now).Claimed; claimed != waiting {
		t.Errorf("%d jobs were claimed, want the %d that nobody holds", claimed, waiting)
	}
	for i, j := range singles {
		if len(of[i].rows(t, j)) != 1 {
			t.Errorf("single job %d waits for jobs of another tenant that somebody holds", i)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.drain(t, b.promoter, now); b.number(t, "SELECT count(*) FROM active_executions") != 62 {
		t.Error("the jobs that were held are not promoted")
	}
}

// Turns cost a round trip, and only where the pass before was full.
func TestTurnsCostARoundTripWhereMoreIsDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, now, _, _ := b.beside(t, 10)
	p, taken := b.counted(t)
	p.SetBatch(8)
	taken()
	for _, want := range [][]string{
		{"ClaimDueJobs", "InsertDueExecutions"},
		{"LockDueJobsInTurns", "ClaimDueJobs", "InsertDueExecutions"},
		{"ClaimDueJobs", "NextDue"},
	} {
		b.pass(t, p, now)
		if diff := cmp.Diff(want, taken()); diff != "" {
			t.Errorf("the round trips (-want +got)\n%s", diff)
		}
	}
}

// While the database is slow a pass takes less, so that nobody waits long for the next one.
func TestASlowDatabaseMakesPassesSmaller(t *testing.T) {
	t.Parallel()
	b := setup(t)
	at := clockIn(2 * time.Second).Truncate(time.Second)
	b.due(t, 40, at)
	b.promoter.SetBatch(20)
	b.promoter.KeepSize(false)
	exec(t, b.database.AdminURL, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.4); RETURN NULL; END';
		CREATE TRIGGER slow AFTER INSERT ON active_executions EXECUTE FUNCTION slow()`)
	for pass, want := range []int{20, 10, 5, 2, 2, 1, 0} {
		if got := b.pass(t, b.promoter, at.Add(time.Second)).Claimed; got != want {
			t.Errorf("pass %d claimed %d jobs, want %d", pass+1, got, want)
		}
	}
}
