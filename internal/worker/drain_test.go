package worker_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/worker"
)

// drainsAtOnce has a worker end what runs when it stops, and wait for it.
func drainsAtOnce(c *worker.Config) {
	c.Drain = 0
	c.Stopping(limit, limit)
}

var errInterrupted = executor.Outcome{Err: &executor.Error{Type: executor.SystemError, Message: "interrupted"}}

// stopping stops a worker beside the test.
func (m member) stopping() (stopped <-chan struct{}) {
	done := make(chan struct{})
	go func() { m.stop(); close(done) }()
	return done
}

// waits says whether a session waits for a lock in a statement.
func (b *bundle) waits(statement string) bool {
	b.t.Helper()
	return b.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
		AND query LIKE '%' || $1 || '%'`, statement) > 0
}

// countsLocked returns a transaction that holds the tenant's counts locked, so that none of its
// runs can end.
func (b *bundle) countsLocked() pgx.Tx {
	b.t.Helper()
	return b.holds("SELECT 1 FROM running_shards WHERE tenant_id = $1 FOR UPDATE", b.who.TenantID)
}

// A run that a stop ended goes back once it has ended, each by itself: until then nobody
// runs it, or another of its key, elsewhere. All went back as soon as they were told to end.
func TestStopReleasesARunOnceItHasEnded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	begun, told, let := make(chan uuid.UUID, 10), make(chan struct{}), make(chan struct{})
	var slowID uuid.UUID
	var slowOnes atomic.Int32
	var overlapped atomic.Bool
	b.run = func(ctx context.Context, run executor.Run) executor.Outcome {
		slow := strings.Contains(string(run.Config), "slow")
		if slow {
			overlapped.CompareAndSwap(false, slowOnes.Add(1) > 1)
			defer slowOnes.Add(-1)
		}
		begun <- run.ExecutionID
		switch {
		case run.Attempt == 1 && run.ExecutionID == slowID:
			<-ctx.Done()
			close(told)
			<-let
			return errInterrupted
		case run.Attempt == 1 && !slow:
			<-ctx.Done()
			return errInterrupted
		}
		return executor.Outcome{}
	}
	slow := b.pending(func(s *job.Spec) {
		s.Overlap, s.ConcurrencyKey, s.Config = job.OverlapAllow, "slow", []byte(`{"slow":true}`)
	})
	slowID = slow.ID
	next, quick := b.again(slow.JobID), b.pending(nil)
	first, other := b.start(drainsAtOnce), b.start(nil)
	letIt := sync.OnceFunc(func() { close(let) })
	t.Cleanup(letIt)
	b.handle(first, slow.ID, quick.ID)
	within(t, "a run", begun)
	within(t, "the other run", begun)

	stopped := first.stopping()
	within(t, "the slow run is told to end", told)
	b.reaches(quick.ID, execution.Pending)
	b.hint(other, slow.ID, next.ID)
	if held := b.count("SELECT count(*) FROM active_executions WHERE id = $1 AND status = 'running' AND attempt = 1", slow.ID); held != 1 || overlapped.Load() {
		t.Fatalf("another run that ended went back, and the one that goes on with it: it overlapped: %v", overlapped.Load())
	}
	letIt()
	within(t, "the stop", stopped)
	if got := b.reaches(slow.ID, execution.Pending); got.MaxAttempts != slow.MaxAttempts+1 || len(got.Attempts) != 0 {
		t.Errorf("released: %+v", got)
	}
	for _, id := range []uuid.UUID{slow.ID, next.ID, quick.ID} {
		b.handle(other, id)
		b.reaches(id, execution.Completed)
	}
	if overlapped.Load() {
		t.Error("two runs of one key overlapped")
	}
}

// The stop does not release a run that has ended and whose outcome is on its way. It did, so
// the outcome was refused, and the run was made again.
func TestStopKeepsOutcomesThatAreOnTheirWay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	begun, succeeded := make(chan uuid.UUID, 10), make(chan uuid.UUID, 10)
	ends := map[uuid.UUID]chan struct{}{}
	b.run = func(ctx context.Context, run executor.Run) executor.Outcome {
		begun <- run.ExecutionID
		select {
		case <-ends[run.ExecutionID]:
			succeeded <- run.ExecutionID
			return executor.Outcome{}
		case <-ctx.Done():
			return errInterrupted
		}
	}
	writing, waiting, goesOn := b.pending(nil).ID, b.pending(nil).ID, b.pending(nil).ID
	if bytes.Compare(writing[:], waiting[:]) < 0 { // so that a release would have locked first what waits
		writing, waiting = waiting, writing
	}
	ends[writing], ends[waiting] = make(chan struct{}), make(chan struct{})
	w := b.start(drainsAtOnce)
	b.handle(w, writing, waiting, goesOn)
	for range 3 {
		within(t, "a run", begun)
	}
	tx := b.countsLocked()
	close(ends[writing])
	within(t, "the first end", succeeded)
	eventually(t, "the first outcome is being written", func() bool { return b.waits("CompleteExecutions") })
	close(ends[waiting])
	within(t, "the second end", succeeded)

	stopped := w.stopping()
	eventually(t, "the run that goes on is being released", func() bool { return b.waits("ReleaseExecutions") })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	within(t, "the stop", stopped)
	for _, id := range []uuid.UUID{writing, waiting} {
		if status := b.reached(id); status != execution.Completed {
			t.Errorf("a run that succeeded is %s", status)
		} else if got := b.reaches(id, execution.Completed); got.Attempt != 1 {
			t.Errorf("completed by attempt %d", got.Attempt)
		}
	}
	b.reaches(goesOn, execution.Pending)
}

// A claim that is answered when what runs was told to end begins no run: nobody would
// tell it.
func TestStopReleasesAClaimThatIsAnsweredLate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	begun, told := make(chan uuid.UUID, 10), make(chan struct{}, 10)
	b.run = func(ctx context.Context, run executor.Run) executor.Outcome {
		begun <- run.ExecutionID
		<-ctx.Done()
		told <- struct{}{}
		return errInterrupted
	}
	early, late := b.pending(nil), b.pending(nil)
	w := b.start(drainsAtOnce)
	b.handle(w, early.ID)
	within(t, "the first run", begun)
	tx := b.locked("job_versions")
	var claim sync.WaitGroup
	claim.Go(func() { b.hint(w, late.ID) })
	eventually(t, "the late one is claimed, and its definition not read", func() bool { return b.waits("ListDefinitions") })
	stopped := w.stopping()
	within(t, "the first run is told to end", told)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	within(t, "the stop", stopped)
	claim.Wait()
	if len(begun) > 0 {
		t.Error("a run began after the drain time")
	}
	if got := b.reaches(late.ID, execution.Pending); got.MaxAttempts != late.MaxAttempts+1 {
		t.Errorf("released: %+v", got)
	}
}

// After the stop gave up a run that does not end, outcomes that are on their way are still
// written, and the lease stands until then. The worker retired at once, so the
// sweeper reassigned these executions.
func TestStopKeepsTheLeaseForItsLastOutcomes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	begun, ends, let := make(chan uuid.UUID, 10), make(chan struct{}), make(chan struct{})
	stuck, ended := b.pending(nil).ID, b.pending(nil)
	b.exec("UPDATE active_executions SET tenant_id = $2 WHERE id = $1", stuck, b.other().TenantID)
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		begun <- run.ExecutionID
		if run.ExecutionID == stuck {
			<-let
			return errInterrupted
		}
		<-ends
		return executor.Outcome{}
	}
	w := b.start(func(c *worker.Config) {
		c.Drain = 0
		c.Stopping(time.Millisecond, limit)
	})
	t.Cleanup(func() { close(let) })
	b.handle(w, stuck, ended.ID)
	within(t, "a run", begun)
	within(t, "the other run", begun)
	held := b.reaches(ended.ID, execution.Running).WorkerID
	tx := b.countsLocked()
	close(ends)
	eventually(t, "the outcome is being written", func() bool { return b.waits("CompleteExecutions") })

	stopped := w.stopping()
	eventually(t, "the run that does not end is released", func() bool {
		return b.count("SELECT count(*) FROM active_executions WHERE id = $1 AND status = 'pending'", stuck) == 1
	})
	beats := map[int]bool{}
	eventually(t, "the heart beats on, or the worker retired", func() bool {
		at := b.count("SELECT CASE WHEN dead THEN 0 ELSE extract(epoch FROM heartbeat_at) * 1000000 END::bigint FROM workers WHERE id = $1", held)
		beats[at] = true
		return beats[0] || len(beats) > 3
	})
	if beats[0] {
		t.Error("the worker retired while an outcome was on its way")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	within(t, "the stop", stopped)
	if got := b.reaches(ended.ID, execution.Completed); got.Attempt != 1 {
		t.Errorf("completed by attempt %d", got.Attempt)
	}
}
