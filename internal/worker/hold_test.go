package worker_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/breaker"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/httpcall"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/telemetry"
	"github.com/scheduler-service/scheduler/internal/worker"
)

// calling is a job type that names the host that it calls as jobs of type http do.
type calling struct{ scripted }

func (calling) Host(config json.RawMessage) string { return (*httpcall.Executor)(nil).Host(config) }

// guardedFleet is two workers with what they know of breakers, and a target that both call.
type guardedFleet struct {
	*bundle
	workers [2]member
	boards  [2]*breaker.Board
	down    atomic.Bool
	calls   atomic.Int32
}

func setupGuarded(t *testing.T) *guardedFleet {
	t.Helper()
	f := &guardedFleet{bundle: setup(t)}
	f.types = []string{"http"}
	f.run = func(context.Context, executor.Run) executor.Outcome {
		f.calls.Add(1)
		if f.down.Load() {
			return executor.Outcome{Err: &executor.Error{Type: executor.NetworkError, Message: "refused"}}
		}
		return executor.Outcome{}
	}
	for i := range f.workers {
		f.boards[i] = breaker.NewBoard(f.engine, dispatch.NewStore(f.engine, dispatch.Config{}).LetGo, telemetry.NewMetrics(telemetry.NewRegistry()), slog.New(slog.DiscardHandler))
		f.workers[i] = f.start(func(c *worker.Config) { c.Breakers = f.boards[i] })
	}
	return f
}

// sync has each worker tell and hear what the other knows.
func (f *guardedFleet) sync() {
	f.t.Helper()
	for range 5 { // one that knows nothing asks at the fifth
		for _, b := range f.boards {
			if err := b.Sync(f.t.Context(), time.Time{}); err != nil {
				f.t.Fatal(err)
			}
		}
	}
}

// opens has ten calls fail, half of them on each worker.
func (f *guardedFleet) opens() {
	f.t.Helper()
	f.down.Store(true)
	for i := range 10 {
		e := f.pending(ofType("http", func(s *job.Spec) { s.Retry.MaxRetries = 0 }))
		f.handle(f.workers[i%2], e.ID)
		f.reaches(e.ID, execution.Failed)
	}
	f.sync()
	f.calls.Store(0)
}

// holds waits until an execution is held back, and answers it.
func (f *guardedFleet) holds(id uuid.UUID, status execution.Status) execution.Execution {
	f.t.Helper()
	var e execution.Execution
	eventually(f.t, "the execution is held back", func() bool {
		e = f.reaches(id, status)
		return e.WaitingOn != nil && e.WaitingOn.Reason == execution.WaitBreaker
	})
	return e
}

// comes lets the time come at which the breaker's pause and the waits end.
func (f *guardedFleet) comes() {
	f.t.Helper()
	f.exec("UPDATE circuit_breakers SET retry_at = now() - interval '1 second'")
	f.exec("UPDATE active_executions SET available_at = now() WHERE status IN ('pending', 'retrying')")
	f.sync()
}

// A job that leaves the breaker out calls a host whose breaker is open, and its outcomes
// neither close that breaker nor open one.
func TestAJobMayLeaveTheBreakerOut(t *testing.T) {
	t.Parallel()
	f := setupGuarded(t)
	without := ofType("http", func(s *job.Spec) {
		s.Config, s.Retry.MaxRetries = []byte(`{"url":"http://127.0.0.1/","circuitBreaker":false}`), 0
	})
	f.down.Store(true)
	for i := range 12 {
		e := f.pending(without)
		f.handle(f.workers[i%2], e.ID)
		f.reaches(e.ID, execution.Failed)
	}
	f.sync()
	if f.count("SELECT count(*) FROM circuit_breakers") != 0 {
		t.Error("calls of a job without breaker count")
	}
	f.opens()
	f.comes() // a probe may go out
	f.down.Store(false)
	e := f.pending(without)
	f.handle(f.workers[0], e.ID)
	f.reaches(e.ID, execution.Completed)
	f.sync()
	if f.count("SELECT count(*) FROM circuit_breakers WHERE state = 'open'") != 1 || f.calls.Load() != 1 {
		t.Errorf("a job without breaker closed it, or did not call: %d calls", f.calls.Load())
	}
}

// Ten failures on two workers hold the next call back on both: the execution waits and says
// for what, without an attempt. When the pause is over one of those that wait goes out,
// and as it succeeds the others follow.
func TestOpenBreakerHoldsExecutionsBack(t *testing.T) {
	t.Parallel()
	f := setupGuarded(t)
	f.opens()
	first, second := f.pending(ofType("http", nil)), f.pending(ofType("http", nil))
	f.handle(f.workers[0], first.ID)
	f.handle(f.workers[1], second.ID)
	for _, id := range []uuid.UUID{first.ID, second.ID} {
		e := f.holds(id, execution.Pending)
		if e.WaitingOn.Key != "127.0.0.1" || e.WaitingOn.Until == nil || e.WaitingOn.Until.After(clock.Now().Add(2*time.Minute)) || e.Attempt != 0 || e.StartedAt != nil || len(e.Attempts) != 0 {
			t.Errorf("held back: %+v, waiting on %+v", e, e.WaitingOn)
		}
	}
	other := f.pending(func(s *job.Spec) {
		s.Type, s.Config, s.Retry.MaxRetries = "http", []byte(`{"url":"http://localhost/"}`), 0
	})
	f.handle(f.workers[0], other.ID)
	eventually(t, "a call to another host goes out", func() bool { return f.calls.Load() == 1 })
	f.reaches(other.ID, execution.Failed)
	running := 0
	if err := f.engine.Pool().QueryRow(t.Context(), "SELECT sum(running) FROM running_totals").Scan(&running); err != nil || running != 0 {
		t.Errorf("%d executions count as running, %v", running, err)
	}

	f.down.Store(false)
	f.calls.Store(0)
	f.comes()
	f.handle(f.workers[0], first.ID)
	if e := f.reaches(first.ID, execution.Completed); e.Attempt != 1 {
		t.Errorf("the probe: %+v", e)
	}
	f.sync()
	f.handle(f.workers[1], second.ID)
	f.reaches(second.ID, execution.Completed)
	if n := f.calls.Load(); n != 2 {
		t.Errorf("%d calls went out", n)
	}
}

// When a breaker has closed, the executions that it held back start at once and not at the
// end of their wait. One that waits for something else goes on waiting, and so does another
// tenant's.
func TestClosedBreakerLetsExecutionsGo(t *testing.T) {
	t.Parallel()
	f := setupGuarded(t)
	f.opens()
	var ids []uuid.UUID
	for i := range 6 {
		e := f.pending(ofType("http", nil))
		f.handle(f.workers[i%2], e.ID)
		f.holds(e.ID, execution.Pending)
		ids = append(ids, e.ID)
	}
	f.exec("UPDATE active_executions SET available_at = now() + interval '1 hour' WHERE id = $1", ids[0])
	f.exec("UPDATE active_executions SET tenant_id = $2 WHERE id = $1", ids[1], uuid.New())
	f.down.Store(false)
	f.exec("DELETE FROM circuit_breakers")
	f.sync()
	if n := f.count("SELECT count(*) FROM active_executions WHERE id = ANY ($1) AND available_at > now()", ids[:2]); n != 2 {
		t.Errorf("%d of the two that nobody may let go wait", n)
	}
	for _, id := range ids[2:] {
		f.handle(f.workers[0], id)
		if e := f.reaches(id, execution.Completed); e.Attempt != 1 {
			t.Errorf("one that was let go: %+v", e)
		}
	}
}

// A probe that fails holds the others back for longer, and is an attempt like any other.
func TestProbesOfWorkers(t *testing.T) {
	t.Parallel()
	f := setupGuarded(t)
	f.opens()
	retried := ofType("http", func(s *job.Spec) { s.Retry.MaxRetries, s.Retry.DelayMS, s.Retry.Jitter = 5, 1000, 0 })
	e := f.pending(retried)
	f.comes()
	f.handle(f.workers[0], e.ID)
	eventually(t, "the probe failed", func() bool { return f.reaches(e.ID, execution.Retrying).Attempt == 1 })
	f.exec("UPDATE active_executions SET available_at = now()")
	f.sync()
	f.handle(f.workers[1], e.ID)
	if held := f.holds(e.ID, execution.Retrying); held.Attempt != 1 || held.StartedAt == nil || f.calls.Load() != 1 {
		t.Errorf("after a probe that failed: %+v, %d calls", held, f.calls.Load())
	}
	pause := 0
	if err := f.engine.Pool().QueryRow(t.Context(), "SELECT pause_seconds FROM circuit_breakers").Scan(&pause); err != nil || pause != 60 {
		t.Errorf("the pause is %d s, %v", pause, err)
	}
}
