package worker

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/queue"
)

// ended is an attempt with its outcome.
type ended struct {
	claimed
	inc        *incarnation
	outcome    executor.Outcome
	durationMS int64
	retryMS    int64 // -1: not tried again
}

// verdict is what the database made of an outcome.
type verdict struct {
	id      uuid.UUID
	status  string // completed, failed, cancelled, or retrying
	jobType string
	next    []uuid.UUID // of the same job, whose turn it is now
}

// outcomesDue says when outcomes are written: when a batch of them lingered,
// when nothing else runs that could join it, and soon when no slot is free.
func (w *Worker) outcomesDue(n int, age time.Duration) bool {
	if w.slots.idle() == 0 && age >= completeStep {
		return true
	}
	return age >= completeLinger || n >= w.slots.taken()
}

// complete writes a batch of outcomes until the database accepted or refused
// each. Repeating it is safe: an outcome that landed is no longer this
// attempt's to write. Only then are the slots free.
func (w *Worker) complete(ctx context.Context, batch []ended) {
	verdicts, answered := w.completeUntilAnswered(ctx, batch)
	if !answered {
		w.Log.ErrorContext(ctx, "outcomes lost: the worker ends while the database is away; the runs are handed on", "executions", len(batch))
		for _, e := range batch {
			e.inc.remove(e.claimed)
			w.free()
		}
		return
	}
	w.Metrics.RoundTrips("complete", 1)
	w.Metrics.Batch("complete", len(batch))
	byID := make(map[uuid.UUID]verdict, len(verdicts))
	for _, v := range verdicts {
		byID[v.id] = v
	}
	for _, e := range batch {
		v, accepted := byID[e.id]
		switch {
		case !accepted:
			w.Metrics.StaleCompletions(1)
			w.Log.WarnContext(ctx, "outcome refused: the execution was handed on", "execution_id", e.id, "attempt", e.attempt)
		case v.status == "retrying":
			w.announceRetry(ctx, e)
		default:
			w.Metrics.ExecutionOver(v.jobType, v.status, time.Duration(e.durationMS)*time.Millisecond)
		}
		e.inc.remove(e.claimed)
		w.free()
		w.handOn(ctx, e.priority, v.next)
	}
}

// completeUntilAnswered asks until the database answers or ctx is cancelled,
// which it is when a stopping worker has waited long enough.
func (w *Worker) completeUntilAnswered(ctx context.Context, batch []ended) (verdicts []verdict, answered bool) {
	wait := 100 * time.Millisecond
	for {
		verdicts, err := w.store.complete(ctx, batch)
		if err == nil {
			return verdicts, true
		}
		if ctx.Err() != nil {
			return nil, false
		}
		w.Log.WarnContext(ctx, "outcomes not written, trying again", "error", err, "executions", len(batch))
		pause(ctx, wait)
		wait = min(2*wait, 2*time.Second)
	}
}

// handOn hints the runs of a job that waited for this one's place; the sweeper
// does when the hint is lost. While no hints come, this worker tries itself.
func (w *Worker) handOn(ctx context.Context, priority int, next []uuid.UUID) {
	if len(next) == 0 {
		return
	}
	if w.seeking.Load() {
		w.follow(next)
		return
	}
	if err := w.Hints.Publish(ctx, queue.LaneFor(priority), next); err != nil {
		w.Log.DebugContext(ctx, "hint of the next in line not sent, the sweeper sends it", "error", err)
	}
}

// announceRetry sends the hint of the next attempt; the sweeper does when it
// is lost.
func (w *Worker) announceRetry(ctx context.Context, e ended) {
	delay := time.Duration(e.retryMS) * time.Millisecond
	if err := w.Hints.PublishIn(ctx, queue.LaneFor(e.priority), []uuid.UUID{e.id}, delay); err != nil {
		w.Log.DebugContext(ctx, "hint of a retry not sent, the sweeper sends it", "error", err)
	}
}
