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
	"github.com/scheduler-service/scheduler/internal/promoter"
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

// lockJob locks the row of a job, as a trigger and a claim do.
const lockJob = "SELECT FROM scheduled_jobs WHERE id = $1 FOR UPDATE"

// A job whose row somebody always holds, and somebody else waits for, is never free for a scan.
// The promoter stands in line for it, and goes on with the jobs of others meanwhile. When it
// has the row it promotes the job, by the time that it is then.
func TestAJobThatIsNeverFreeHasItsTurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.neighbour(t)
	j := b.create(t, nil)
	b.dueAt(t, j, clockIn(-2*time.Second))
	release := b.holds(t, lockJob, j.ID)
	var releaseNext func()
	next := make(chan struct{})
	go func() { defer close(next); releaseNext = b.holds(t, lockJob, j.ID) }()
	b.untilBlocked(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- run(ctx, b.another()) }()
	defer func() { cancel(); <-done }()

	b.untilWaiting(t, 2) // the promoter behind the other session
	single := other.due(t, 1, clockIn(-time.Second))[0]
	await(t, "the other tenant's execution", func() bool { return len(other.rows(t, single)) > 0 })
	if n := len(b.rows(t, j)); n > 0 {
		t.Errorf("a locked job has %d executions", n)
	}
	release()
	<-next
	var free time.Time
	if err := b.engine.Pool().QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&free); err != nil {
		t.Fatal(err)
	}
	releaseNext()
	await(t, "the job's execution", func() bool { return len(b.rows(t, j)) > 0 })
	if n := b.number(t, "SELECT count(*) FROM active_executions WHERE job_id = $1 AND created_at < $2", j.ID, free); n > 0 {
		t.Errorf("%d executions are made as of a time when the job was locked", n)
	}
}

// Passes that find jobs locked have all of them waited for, and pass over them until then.
func TestLockedJobsAreNotForgotten(t *testing.T) {
	t.Parallel()
	b := setup(t)
	at := clockIn(time.Minute).Truncate(time.Second)
	jobs := b.due(t, 3, at)
	now := at.Add(5 * time.Second)
	release := b.holds(t, "SELECT FROM scheduled_jobs FOR UPDATE")
	single := b.neighbour(t).due(t, 1, at)[0]
	if report := b.pass(t, b.promoter, now); report.Promoted != 1 {
		t.Errorf("%d jobs were promoted beside the locked ones, want 1", report.Promoted)
	}
	for range jobs {
		b.pass(t, b.promoter, now)
	}
	if report := b.pass(t, b.promoter, now); report.Next.Before(now) {
		t.Errorf("a pass has the next one look for what is locked: %+v", report)
	}
	release()
	promoted := 0
	for range jobs {
		report, err := b.promoter.PromoteLocked(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		promoted += report.Promoted
	}
	if once := b.number(t, "SELECT count(*) FROM scheduled_jobs WHERE execution_count = 1"); promoted != len(jobs) || once != 4 {
		t.Errorf("%d jobs were promoted once they were free, want %d; %d in all, beside %s", promoted, len(jobs), once, single.ID)
	}
}

// A trial that meets a lock on the job's executions has the job waited for, and not tried again in a batch.
func TestAJobWaitsForTheLockOfItsExecution(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, func(s *job.Spec) { s.Overlap = job.OverlapCancel })
	due := clockIn(time.Minute).Truncate(time.Second)
	b.dueAt(t, j, due)
	b.pass(t, b.promoter, due)
	b.setRunning(t, j, due)
	release := b.holds(t, "SELECT FROM active_executions WHERE id = $1 FOR UPDATE", execution.ScheduledID(j.ID, due))
	b.impatient(t)
	p, now := b.another(), due.Add(time.Second)
	for range 2 { // the batch, and the trial of the job alone
		b.pass(t, p, now)
	}
	if report := b.pass(t, p, now); report.Claimed != 0 || p.Parts() != 0 {
		t.Errorf("a batch takes the job again: %+v, and %d parts are tried", report, p.Parts())
	}
	b.promotedOnce(t, p, now, release)
}

// A wait that fails comes again soon: the passes leave its job out, and a pass that fails several times
// rests for minutes otherwise.
func TestAFailedWaitComesAgainSoon(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	if asked, err := b.another().FailedWait(t.Context(), j.ID, j.TenantID); err == nil || !asked {
		t.Errorf("%v; it asked when to come again: %t", err, asked)
	}
}

// promotedOnce has the promoter wait for what is locked, and holds that it promotes it once it is released.
func (b *bundle) promotedOnce(t *testing.T, p *promoter.Promoter, now time.Time, release func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		for { // a wait may end before its turn has come
			if report, err := p.PromoteLocked(t.Context(), now); err != nil || report.Promoted > 0 {
				done <- err
				return
			}
		}
	}()
	b.untilBlocked(t)
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
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
