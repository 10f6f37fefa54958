package worker

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/trace"
)

// ended is an attempt with its outcome.
type ended struct {
	claimed
	inc       *incarnation
	awaits    bool          // it has not ended: its target reports the end
	heartbeat time.Duration // and may be silent for so long; zero: up to the timeout
	held      hold          // or it has not begun: its call is held back
	outcome   dispatch.Outcome
	slotless  bool        // its slot is free already, see divider
	writes    *trace.Span // of the writing of the outcome; nil: its trace is not kept
}

// outcomeOf is what is stored of an attempt.
func outcomeOf(o executor.Outcome, duration time.Duration, retryMS int64) dispatch.Outcome {
	out := dispatch.Outcome{
		Succeeded: o.Err == nil, RetryMS: retryMS, DurationMS: float64(duration.Microseconds()) / 1000, Result: string(o.Result),
		MemoryMB: float32(o.MemoryPeakMB), CPUMS: o.CPUTime.Milliseconds(),
	}
	if err := o.Err; err != nil {
		out.ErrorType, out.Message, out.Stack = string(err.Type), err.Message, err.Stack
	}
	return out
}

// stored are the outcomes of attempts as package dispatch writes them.
func stored(batch []ended) []dispatch.Ended {
	out := make([]dispatch.Ended, len(batch))
	for i, e := range batch {
		out[i] = dispatch.Ended{ID: e.ID, Attempt: e.Attempt, Token: e.Token, Outcome: e.outcome}
	}
	return out
}

// size is about how many bytes of a statement it needs.
func (e ended) size() int {
	return 512 + len(e.outcome.Result) + len(e.outcome.Message) + len(e.outcome.Stack)
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
// the divider, so that one outcome never holds up those that come after it.
func (w *Worker) complete(ctx context.Context, batch []ended) {
	batch = w.holdBack(ctx, w.await(ctx, batch))
	healthy, suspect := w.sorted(batch)
	w.putAside(ctx, suspect)
	wait := 100 * time.Millisecond
	for tries := 1; len(healthy) > 0; tries++ {
		verdicts, err := w.store.Complete(ctx, stored(healthy))
		switch {
		case err == nil:
			w.c.Metrics.Batch("complete", len(healthy))
			w.accept(ctx, healthy, verdicts)
			return
		case ctx.Err() != nil:
			w.lose(ctx, healthy)
			return
		case postgres.Refused(err), postgres.TimedOut(err) && tries >= blockedTries:
			w.c.Log.WarnContext(ctx, "outcomes not accepted together, dividing them", "error", err, "executions", len(healthy))
			w.putAside(ctx, healthy)
			return
		}
		w.c.Log.WarnContext(ctx, "outcomes not written, trying again", "error", err, "executions", len(healthy))
		w.compareSoon()
		clock.Sleep(ctx, wait)
		wait = min(2*wait, askAgain)
	}
}

// accept acts on the verdicts of a batch. It frees the slots first: no message
// to the next in line may hold them.
func (w *Worker) accept(ctx context.Context, batch []ended, verdicts []dispatch.Verdict) {
	byID := make(map[uuid.UUID]dispatch.Verdict, len(verdicts))
	var a announcement
	again := false
	for _, v := range verdicts {
		byID[v.ID] = v
		if v.Freed != (dispatch.Freed{}) {
			a.freed, a.room = append(a.freed, v.Freed), a.room || v.Freed.Tenant != uuid.Nil
		}
	}
	for _, e := range batch {
		v, accepted := byID[e.ID]
		switch {
		case !accepted:
			w.c.Metrics.StaleCompletions(1)
			w.c.Log.WarnContext(ctx, "outcome refused: the execution was reassigned", "execution_id", e.ID, "attempt", e.Attempt)
		case v.Status == "retrying", v.Status == "parked":
			// A retry waits in the pool for its backoff; the sweeper tries parked
			// executions again.
			w.logFailure(ctx, e, v.Status)
			again = true
			if backoff := time.Duration(e.outcome.RetryMS) * time.Millisecond; v.Status == "retrying" && backoff <= retryHere {
				w.tryLater(backoff, []uuid.UUID{e.ID})
			}
		default:
			w.logFailure(ctx, e, v.Status)
			w.c.Metrics.ExecutionFinished(v.JobType, v.Status, e.outcome.Took())
			w.finished(e)
		}
		e.writes.Set(slog.String("scheduler.status", v.Status))
		w.done(e)
		for _, id := range v.Next {
			a.next = append(a.next, dispatch.Waiting{ID: id, Priority: e.Priority, JobType: e.JobType})
		}
	}
	if again {
		w.callItself() // a retry waits in the pool
	}
	w.wakeUnlessIdle() // slots are free
	if len(a.next)+len(a.freed) > 0 {
		w.announce(a)
	}
}

// loggedMessage is how many bytes of an error's message a line of the log holds;
// the record of the attempt has all of it.
const loggedMessage = 500

// logFailure writes one line for an attempt that failed.
func (w *Worker) logFailure(ctx context.Context, e ended, status string) {
	if e.outcome.Succeeded {
		return
	}
	ctx = w.named(ctx, e.ID)
	message := strings.ToValidUTF8(e.outcome.Message[:min(len(e.outcome.Message), loggedMessage)], "")
	w.c.Log.WarnContext(ctx, "attempt failed", "execution_id", e.ID, "job_id", e.Job, "tenant_id", e.Tenant,
		"attempt", e.Attempt, "of", e.MaxAttempts, "status", status, "error_type", e.outcome.ErrorType, "error", message,
		"duration", e.outcome.Took())
}

// done forgets a run and frees its slot.
func (w *Worker) done(e ended) {
	e.writes.End()
	e.inc.remove(e.claimed)
	if !e.slotless {
		w.freeEnded()
	}
}

// freeEnded frees the slot of a run whose outcome came to a batch.
func (w *Worker) freeEnded() {
	w.freed.Add(1)
	w.free()
}

// ending is how many runs hold a slot while their outcome is written.
func (w *Worker) ending() int {
	freed := w.freed.Load() // before the ends: it never exceeds them
	return int(w.ends.Load() - freed)
}

// lose gives outcomes up: the worker ends and could not write them.
func (w *Worker) lose(ctx context.Context, batch []ended) {
	w.c.Log.ErrorContext(ctx, "outcomes lost: the worker ends and the database did not accept them; the runs are reassigned", "executions", len(batch))
	for _, e := range batch {
		w.done(e)
	}
}
