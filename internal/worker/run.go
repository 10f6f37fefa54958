package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/job/definition"
	"github.com/scheduler-service/scheduler/internal/output"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/trace"
)

// Why a run's context ends before its time.
var (
	errLeaseLost = errors.New("the worker's lease is lost")
	errCancelled = errors.New("cancelled")
	errDraining  = errors.New("the worker is stopping")
)

// grace is how long a run may go on after its context ended before it is given up.
// With it an outcome still lands before the sweeper reassigns the execution.
const grace = 2 * time.Second

// remainingTime is the run's remaining time: its timeout, shortened so that it ends
// before the sweeper reassigns it. If it is zero or less, don't start.
func remainingTime(timeout, sinceAsked time.Duration) time.Duration {
	return min(timeout, timeout+dispatch.DeadlineMargin-grace-sinceAsked)
}

// attempt is one run under way.
type attempt struct {
	claimed
	worker *Worker
	inc    *incarnation
	ctx    context.Context // the life of the run, and why it ended
	retry  job.Retry
	limit  job.Limit
	mark   clock.Mark
	said   *output.Run
	over   atomic.Bool // its outcome is decided: it returned, or was given up
	held   hold        // its call is held back: it is not made yet
	span   *trace.Span // nil: its trace is not kept
}

// start runs an attempt in a goroutine of its own and brings its outcome to
// the next batch. The slot stays taken until the outcome is accepted. An
// executor that does not return when its context ends is given up after grace. The error
// says why the attempt does not begin; its slot is free then.
func (w *Worker) start(inc *incarnation, c claimed, d definition.Definition) error {
	w.c.Metrics.DispatchLateness(c.lateness())
	ctx, stop := context.WithCancelCause(inc.ctx)
	c.Timeout = min(c.Timeout, d.Limit.Left(c.ClaimedAt.Sub(c.StartedAt)))
	a := &attempt{claimed: c, worker: w, inc: inc, retry: d.Retry, limit: d.Limit, mark: clock.Start()}
	if err := inc.add(a, stop); err != nil {
		stop(err)
		w.free()
		return err
	}
	a.ctx, a.span = w.traced(ctx, c)
	a.said = w.output.Begin(output.Attempt{ID: c.ID, Number: c.Attempt, Token: c.Token})
	go func() {
		defer stop(nil)
		outcome := a.execute(d)
		if a.over.CompareAndSwap(false, true) {
			a.settle(outcome)
			return
		}
		w.strays.Add(-1)
		w.c.Metrics.SetStrays(int(w.strays.Load()))
	}()
	return nil
}

func (a *attempt) execute(d definition.Definition) executor.Outcome {
	if d.Err != nil || d.Type == "" {
		return executor.Outcome{Err: &executor.Error{
			Type: executor.ValidationError, Message: "the definition of this job version cannot be read",
		}}
	}
	timeout := min(remainingTime(a.Timeout, a.asked.Elapsed()), a.limit.Left(a.elapsed()))
	if timeout <= 0 { // of the job's limit: the claim compared the other with the time that is left
		return executor.Outcome{Err: &executor.Error{Type: executor.Timeout, Message: "no attempt was made"}}
	}
	timed, cancel := context.WithTimeout(a.ctx, timeout)
	defer cancel()
	returned := context.AfterFunc(timed, func() { time.AfterFunc(grace, a.giveUp) })
	defer returned() // before cancel
	ready, err := a.worker.resolve(timed, secret.Input{
		Version: secret.Version{Tenant: a.Tenant, Job: a.Job, Number: a.Version},
		Config:  d.Config, Parameters: a.Parameters, Sealed: d.Sealed,
		Execution: a.ID, Attempt: a.Attempt, ScheduledAt: a.ScheduledAt,
	})
	if err != nil {
		return a.worker.unresolved(timed, a.claimed, err)
	}
	a.said.Hide(ready.Mask)
	run := executor.Run{
		ExecutionID: a.ID, JobID: a.Job, TenantID: a.Tenant, Attempt: a.Attempt, ScheduledAt: a.ScheduledAt,
		Config: ready.Config, Parameters: ready.Parameters, Timeout: timeout, Report: a.said, Callback: a.callback(),
	}
	return a.guarded(timed, run, func() executor.Outcome {
		return masked(ready.Mask, a.worker.c.Executor.Execute(timed, a.JobType, run))
	})
}

// elapsed is how long ago the first attempt of the execution started.
func (a *attempt) elapsed() time.Duration { return a.ClaimedAt.Sub(a.StartedAt) + a.asked.Elapsed() }

// callback makes the address at which the target reports, where there is one.
func (a *attempt) callback() func() (string, error) {
	if a.worker.c.Callback == nil {
		return nil
	}
	return func() (string, error) { return a.worker.c.Callback(a.Claimed) }
}

// giveUp ends a run that goes on although its context ended: a goroutine cannot
// be killed, but its slot can go to others. At most as many as there are slots
// are given up; then the slots stay taken, so that a function which never
// returns costs a worker no more than twice its slots. A run that a stop ended is left to
// the stop, which gives it up later: nobody needs its slot, and another worker may have
// its execution only then.
func (a *attempt) giveUp() {
	w := a.worker
	if errors.Is(context.Cause(a.ctx), errDraining) || !a.abandon(w.c.Slots) {
		return
	}
	w.c.Log.ErrorContext(a.ctx, "a run does not end when it must and was given up", "execution_id", a.ID, "job_id", a.Job, "job_type", a.JobType)
	a.settle(executor.Outcome{Err: &executor.Error{
		Type: executor.Timeout, Message: "the run did not end when its time was up; it was given up and may still be going on",
	}})
}

// abandon decides that the run is given up, unless its outcome is decided already or more
// than so many would be given up that still go on.
func (a *attempt) abandon(most int) bool {
	w := a.worker
	if int(w.strays.Add(1)) > most || !a.over.CompareAndSwap(false, true) {
		w.strays.Add(-1)
		return false
	}
	w.c.Metrics.SetStrays(int(w.strays.Load()))
	return true
}

// settle brings an outcome to the next batch, once the run's output is written, so that
// a reader who sees the end of an execution sees its output.
func (a *attempt) settle(outcome executor.Outcome) {
	w := a.worker
	retryMS := int64(-1)
	if outcome.Err != nil {
		retryMS = retryAfter(a.retry, a.claimed, *outcome.Err)
		if why, exceeded := a.limit.Exceeded(a.elapsed(), time.Duration(retryMS)*time.Millisecond, string(outcome.Err.Type), outcome.Err.Message); exceeded {
			outcome.Err, retryMS = &executor.Error{Type: executor.Timeout, Message: why, Stack: outcome.Err.Stack}, -1
		}
	}
	cause := context.Cause(a.ctx)
	switch { // it failed because we ended it, and somebody else runs it next
	case outcome.Err != nil && errors.Is(cause, errLeaseLost):
		a.endSpan(&outcome, "released")
		a.said.End(func() {})
		a.inc.remove(a.claimed)
		w.free()
		return
	case outcome.Err != nil && errors.Is(cause, errDraining):
		a.endSpan(&outcome, "released")
		a.said.End(func() { w.releases.in <- a })
		return
	}
	end := ended{writes: a.endSpan(&outcome, ""), claimed: a.claimed, inc: a.inc, held: a.held, awaits: outcome.Await, heartbeat: outcome.Heartbeat, outcome: outcomeOf(outcome, a.mark.Elapsed(), retryMS)}
	w.ends.Add(1)
	a.said.End(func() { w.outcomes.in <- end })
}

// retryAfter is the distance to the next attempt in milliseconds, and -1 when
// there is none. A target's Retry-After lengthens the job's own distance.
func retryAfter(rule job.Retry, c claimed, e executor.Error) int64 {
	delay, again := rule.Next(c.Attempt, c.MaxAttempts, string(e.Type), e.Retry, rand.Float64())
	if !again {
		return -1
	}
	return min(max(delay, e.RetryAfter), 24*time.Hour).Milliseconds()
}
