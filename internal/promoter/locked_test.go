package promoter_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// holds has a session beside hold the rows that a statement locks. It is a superuser's: one of a
// process may stand in a transaction for five seconds only.
func (b *bundle) holds(t *testing.T, lock string, args ...any) (release func()) {
	t.Helper()
	beside, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = beside.Close(context.Background()) })
	tx, err := beside.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), lock, args...); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// impatient has the promoters made from now on wait for a lock for 0.4 s.
func (b *bundle) impatient(t *testing.T) {
	t.Helper()
	engine, err := postgres.Open(t.Context(), postgres.Config{URL: b.database.URL, Role: postgres.Engine, Name: "test", MaxConns: 2, StatementTimeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	b.engine = engine
}

// A job that replaces what runs of it waits for the row of that execution. While somebody holds the row, other jobs
// are promoted, and however often the job is tried meanwhile, it is not parked.
func TestALockOnItsExecutionParksNoJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, func(s *job.Spec) { s.Overlap, s.Misfire.Policy = job.OverlapCancel, job.FireAll })
	other := b.create(t, func(s *job.Spec) { s.Misfire.Policy = job.FireAll })
	due := clockIn(time.Minute).Truncate(time.Second)
	b.dueAt(t, j, due)
	b.dueAt(t, other, due)
	b.pass(t, b.promoter, due)
	b.setRunning(t, j, due)
	release := b.holds(t, "SELECT FROM active_executions WHERE id = $1 FOR UPDATE", execution.ScheduledID(j.ID, due))
	b.impatient(t)
	p := b.another()
	now := due
	for range 10 { // the fourth pass has the third trial of the job alone
		now = now.Add(time.Second)
		report, err := p.Pass(t.Context(), now)
		if err != nil && !postgres.TimedOut(err) {
			t.Fatal(err)
		}
		if report.Parked > 0 {
			t.Fatal("a job was parked because of a lock")
		}
	}
	if n := len(b.rows(t, other)); n < 2 {
		t.Errorf("the other job has %d executions: nothing was committed beside the trials", n)
	}
	release()
	if parked := b.drain(t, b.another(), now); parked != 0 {
		t.Fatalf("%d jobs were parked", parked)
	}
	b.promotedAll(t, []job.Job{j, other}, due, now)
}

// A job that another promoter has promoted since it failed is not parked.
func TestAPromotedJobIsNotParked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	failed := *j.NextExecutionAt
	park := func(due time.Time) []uuid.UUID {
		t.Helper()
		ids, err := db.New(b.engine.Pool()).ParkJobs(t.Context(), db.ParkJobsParams{
			Ids: []uuid.UUID{j.ID}, Versions: []int32{int32(j.Version)}, Due: []time.Time{due}, Reasons: []string{"it failed"},
		})
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	b.pass(t, b.promoter, failed)
	if ids := park(failed); len(ids) != 0 {
		t.Error("the job was parked at a scheduled time that it has left behind")
	}
	if ids := park(failed.Add(time.Second)); len(ids) != 1 {
		t.Error("the job was not parked at its scheduled time")
	}
}
