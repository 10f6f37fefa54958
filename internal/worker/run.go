package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/job"
)

// Why a run's context ends before its time.
var (
	errLeaseLost = errors.New("the worker's lease is lost")
	errCancelled = errors.New("cancelled")
	errDraining  = errors.New("the worker is stopping")
)

// start runs an attempt in a goroutine of its own and brings its outcome to
// the next batch. The slot stays taken until the outcome is accepted, also
// when the executor ignores its context.
func (w *Worker) start(inc *incarnation, c claimed, d definition) {
	w.Metrics.DispatchLateness(c.lateness())
	ctx, stop := context.WithCancelCause(inc.ctx)
	if !inc.add(c, stop) {
		stop(errLeaseLost)
		w.free()
		return
	}
	go func() {
		defer stop(nil)
		mark := clock.Start()
		outcome := w.execute(ctx, c, d)
		e := ended{claimed: c, inc: inc, outcome: outcome, durationMS: elapsed(mark), retryMS: -1}
		if outcome.Err != nil {
			e.retryMS = retryAfter(d.spec.Retry, c, *outcome.Err)
		}
		cause := context.Cause(ctx)
		if outcome.Err != nil && (errors.Is(cause, errLeaseLost) || errors.Is(cause, errDraining)) {
			// It failed because we ended it, and somebody else runs it next.
			inc.remove(c)
			w.free()
			return
		}
		w.outcomes.in <- e
	}()
}

func (w *Worker) execute(ctx context.Context, c claimed, d definition) executor.Outcome {
	if d.err != nil || d.spec.Type == "" {
		return executor.Outcome{Err: &executor.Error{
			Type: executor.ValidationError, Message: "the definition of this job version cannot be read",
		}}
	}
	timed, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return w.Executor.Execute(timed, c.jobType, executor.Run{
		ExecutionID: c.id, JobID: c.job, TenantID: c.tenant, Attempt: c.attempt, ScheduledAt: c.scheduledAt,
		Config: d.spec.Config, Parameters: c.parameters, Timeout: c.timeout,
	})
}

// retryAfter is the distance to the next attempt in milliseconds, and -1 when
// there is none. A target's Retry-After lengthens the job's own distance.
func retryAfter(rule job.Retry, c claimed, e executor.Error) int64 {
	again := rule.Retries(string(e.Type))
	if e.Retry != nil {
		again = *e.Retry
	}
	if !again || c.attempt >= c.maxAttempts {
		return -1
	}
	delay := max(rule.Backoff(c.attempt, rand.Float64()), e.RetryAfter)
	return min(delay, 24*time.Hour).Milliseconds()
}
