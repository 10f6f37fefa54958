package worker

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/queue"
)

// ended is an attempt with its outcome.
type ended struct {
	claimed
	inc        *incarnation
	outcome    executor.Outcome
	durationMS int64
	retryMS    int64 // -1: not tried again
	slotless   bool  // its slot is free already, see straggler
}

// size is about how many bytes of a statement it needs.
func (e ended) size() int {
	n := 512 + len(e.outcome.Result)
	if e.outcome.Err != nil {
		n += len(e.outcome.Err.Message) + len(e.outcome.Err.Stack)
	}
	return n
}

// verdict is what the database made of an outcome.
type verdict struct {
	id      uuid.UUID
	status  string // completed, failed, cancelled, retrying, or parked
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

// complete writes a batch of outcomes until the database accepted it. Repeating
// it is safe: an outcome that landed is no longer this attempt's to write. Where
// the database refuses it, or something in it stays locked, the batch goes to
// the stragglers, so that one outcome never holds up those that come after it.
func (w *Worker) complete(ctx context.Context, batch []ended) {
	healthy, suspect := w.sorted(batch)
	w.putAside(ctx, suspect)
	wait := 100 * time.Millisecond
	for tries := 1; len(healthy) > 0; tries++ {
		verdicts, err := w.store.complete(ctx, healthy)
		switch {
		case err == nil:
			w.Metrics.Batch("complete", len(healthy))
			w.accept(ctx, healthy, verdicts)
			return
		case ctx.Err() != nil:
			w.lose(ctx, healthy)
			return
		case postgres.Refused(err), postgres.TimedOut(err) && tries >= blockedTries:
			w.Log.WarnContext(ctx, "outcomes not accepted together, dividing them", "error", err, "executions", len(healthy))
			w.putAside(ctx, healthy)
			return
		}
		w.Log.WarnContext(ctx, "outcomes not written, trying again", "error", err, "executions", len(healthy))
		w.doubt()
		pause(ctx, wait)
		wait = min(2*wait, askAgain)
	}
}

// accept acts on what the database made of a batch. The slots come first: they
// are free from here on, and nothing that the next in line are told with may
// hold them.
func (w *Worker) accept(ctx context.Context, batch []ended, verdicts []verdict) {
	byID := make(map[uuid.UUID]verdict, len(verdicts))
	var over news
	for _, v := range verdicts {
		byID[v.id] = v
		if v.freed != (freed{}) {
			over.ends = append(over.ends, v.freed)
		}
	}
	for _, e := range batch {
		v, accepted := byID[e.id]
		switch {
		case !accepted:
			w.Metrics.StaleCompletions(1)
			w.Log.WarnContext(ctx, "outcome refused: the execution was handed on", "execution_id", e.id, "attempt", e.attempt)
		case v.status == "retrying", v.status == "parked":
			// The first is in the pool and may start when its backoff is over, the
			// other one is the sweeper's.
		default:
			w.Metrics.ExecutionOver(v.jobType, v.status, time.Duration(e.durationMS)*time.Millisecond)
		}
		w.done(e)
		if len(v.next) > 0 {
			over.turns = append(over.turns, turn{queue.LaneFor(e.priority), v.next})
		}
	}
	w.wake() // slots are free
	if len(over.turns)+len(over.ends) > 0 {
		w.announce(over)
	}
}

// done forgets a run and frees its slot.
func (w *Worker) done(e ended) {
	e.inc.remove(e.claimed)
	if !e.slotless {
		w.free()
	}
}

// lose gives outcomes up: the worker ends and could not write them.
func (w *Worker) lose(ctx context.Context, batch []ended) {
	w.Log.ErrorContext(ctx, "outcomes lost: the worker ends and the database did not accept them; the runs are handed on", "executions", len(batch))
	for _, e := range batch {
		w.done(e)
	}
}
