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
	freed   freed
}

// outcomesDue says when outcomes are written: when a batch of them lingered,
// when nothing else runs that could join it, and soon when no slot is free.
func (w *Worker) outcomesDue(n int, age time.Duration) bool {
	if open, _ := w.slots.free(); open == 0 && age >= completeStep {
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
	w.Metrics.Batch("complete", len(batch))
	byID, ends := make(map[uuid.UUID]verdict, len(verdicts)), make([]freed, len(verdicts))
	for i, v := range verdicts {
		byID[v.id], ends[i] = v, v.freed
	}
	for _, e := range batch {
		v, accepted := byID[e.id]
		switch {
		case !accepted:
			w.Metrics.StaleCompletions(1)
			w.Log.WarnContext(ctx, "outcome refused: the execution was handed on", "execution_id", e.id, "attempt", e.attempt)
		case v.status == "retrying":
			// It is in the pool, and may start when its backoff is over.
		default:
			w.Metrics.ExecutionOver(v.jobType, v.status, time.Duration(e.durationMS)*time.Millisecond)
		}
		e.inc.remove(e.claimed)
		w.free()
		w.handOn(ctx, queue.LaneFor(e.priority), v.next)
	}
	w.handOnFreed(ctx, ends)
}

// handOnFreed hints whoever waited for what the ends of runs left: a place of
// their tenant, or a concurrency key. It is asked once the ends are committed,
// so that it sees who was left behind until then; a look finds who is not named.
func (w *Worker) handOnFreed(ctx context.Context, ends []freed) {
	next, err := w.store.next(ctx, ends)
	if err != nil {
		w.Log.WarnContext(ctx, "the next in line not known, a look finds them", "error", err)
		return
	}
	for lane, ids := range lanesOf(next) {
		w.handOn(ctx, lane, ids)
	}
	w.wake() // slots are free
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
		wait = min(2*wait, askAgain)
	}
}

// handOn hints runs that waited for what ended; a look finds them when the hint
// is lost. While no hints come, this worker tries itself.
func (w *Worker) handOn(ctx context.Context, lane queue.Lane, next []uuid.UUID) {
	if len(next) == 0 {
		return
	}
	if w.hintless.Load() {
		w.follow(next)
		return
	}
	if err := w.Hints.Publish(ctx, lane, next); err != nil {
		w.Log.DebugContext(ctx, "hint of the next in line not sent, a look finds it", "error", err)
	}
}
