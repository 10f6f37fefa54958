package worker

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// await writes which attempts of a batch await a callback, and frees their slots once the
// database says so: from then on no worker runs them. It returns the others, and those
// that the database refuses to have wait, as failed.
func (w *Worker) await(ctx context.Context, batch []ended) (rest []ended) {
	return w.set(ctx, batch, func(e ended) bool { return e.awaits }, wait{
		what: "the wait for the callback", write: func(ctx context.Context, waiting []ended) (map[uuid.UUID]dispatch.Freed, error) {
			return w.store.Await(ctx, awaiting(waiting))
		},
	})
}

// wait is something that attempts of a batch do in the place of ending.
type wait struct {
	what  string // for people
	write func(ctx context.Context, waiting []ended) (map[uuid.UUID]dispatch.Freed, error)
}

// set writes that those of a batch wait which do, until the database accepted or refused it.
func (w *Worker) set(ctx context.Context, batch []ended, waits func(ended) bool, to wait) (rest []ended) {
	if !slices.ContainsFunc(batch, waits) {
		return batch
	}
	var waiting []ended
	for _, e := range batch {
		if waits(e) {
			waiting = append(waiting, e)
		} else {
			rest = append(rest, e)
		}
	}
	pause := 100 * time.Millisecond
	for {
		kept, err := to.write(ctx, waiting)
		switch {
		case err == nil:
			w.leave(ctx, waiting, kept)
			return rest
		case ctx.Err() != nil:
			w.lose(ctx, waiting)
			return rest
		case postgres.Refused(err):
			w.c.Log.ErrorContext(ctx, "attempts cannot wait: the database refuses it", "for", to.what, "error", err, "executions", len(waiting))
			return append(rest, refusedWaits(waiting, to.what)...)
		}
		w.c.Log.WarnContext(ctx, "waits not written, trying again", "for", to.what, "error", err, "executions", len(waiting))
		w.compareSoon()
		clock.Sleep(ctx, pause)
		pause = min(2*pause, askAgain)
	}
}

// leave frees the slots of attempts that wait. One that is no longer this worker's has ended
// already: its callback came first, or a sweep.
func (w *Worker) leave(ctx context.Context, waiting []ended, kept map[uuid.UUID]dispatch.Freed) {
	var a announcement
	for _, e := range waiting {
		freed, ok := kept[e.ID]
		if !ok {
			w.c.Log.DebugContext(ctx, "an attempt ended before it waited", "execution_id", e.ID, "attempt", e.Attempt)
		}
		if freed != (dispatch.Freed{}) {
			a.freed = append(a.freed, freed)
		}
		w.done(e)
	}
	w.callItself()
	if len(a.freed) > 0 {
		w.announce(a)
	}
}

func awaiting(waiting []ended) []dispatch.Awaiting {
	out := make([]dispatch.Awaiting, len(waiting))
	for i, e := range waiting {
		out[i] = dispatch.Awaiting{Fence: dispatch.Fence{ID: e.ID, Attempt: e.Attempt, Token: e.Token}, Timeout: e.Timeout, Heartbeat: e.heartbeat}
	}
	return out
}

// refusedWaits are attempts as failed that the database refuses to have wait.
func refusedWaits(waiting []ended, what string) []ended {
	out := slices.Clone(waiting)
	for i := range out {
		out[i].awaits, out[i].held = false, hold{}
		out[i].outcome = dispatch.Outcome{RetryMS: -1, DurationMS: out[i].outcome.DurationMS, ErrorType: "SYSTEM_ERROR", Message: what + " could not be stored"}
	}
	return out
}
