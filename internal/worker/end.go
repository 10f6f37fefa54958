package worker

import (
	"context"
	"math"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
)

// cancelEvery is how often a worker that runs something asks whether somebody
// wants a run to end. It is one index look-up that finds nothing most of the
// time; one that fails is repeated after as long.
const cancelEvery = 500 * time.Millisecond

// attend ends runs soon after somebody asked for it, until the lease is lost.
func (w *Worker) attend(inc *incarnation) {
	for inc.ctx.Err() == nil {
		clock.Sleep(inc.ctx, cancelEvery)
		if inc.ctx.Err() == nil && inc.count() > 0 {
			w.endCancelled(inc)
		}
	}
}

// endCancelled asks once.
func (w *Worker) endCancelled(inc *incarnation) {
	ctx, cancel := context.WithTimeout(inc.ctx, w.c.Heartbeat)
	defer cancel()
	rows, err := w.store.CancelledOf(ctx, inc.member.ID)
	if err != nil {
		w.c.Log.DebugContext(ctx, "cancelled executions not read; the next request reads them", "error", err)
		return
	}
	inc.mu.Lock()
	defer inc.mu.Unlock()
	for _, r := range rows {
		if run, here := inc.running[r.ID]; here && run.token == r.Token {
			run.stop(errCancelled)
		}
	}
}

// drain lets what runs finish, then ends it. Each run that was ended goes back once it has
// ended, by releaseEnded: with its row another worker gets its concurrency slot and its
// key. A run that has not ended after Config.endWithin goes back all the same, because it ends
// with the process. A run whose outcome is on its way does not go back. Once no slot is held,
// idle is closed.
func (w *Worker) drain(ctx context.Context, idle <-chan struct{}) {
	if n := w.slots.taken(); n > 0 {
		w.c.Log.InfoContext(ctx, "stopping: what runs may finish", "running", n, "at_most", w.c.Drain.String())
	}
	if within(w.c.Drain, idle) {
		return
	}
	inc := w.current.Load()
	if inc != nil {
		w.c.Log.WarnContext(ctx, "drain time has passed; ending what runs", "running", inc.count())
		inc.endAll(errDraining)
	}
	if within(w.c.endWithin, idle) || inc == nil {
		return
	}
	if left := inc.abandonAll(); len(left) > 0 {
		w.c.Log.WarnContext(ctx, "runs ignore their cancellation; releasing them", "running", len(left))
		w.release(ctx, left)
		for range left {
			w.free()
		}
	}
}

// within says whether done is closed before so much time has passed.
func within(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// releasesDue says when runs are released that a stop ended: when a batch of them lingered,
// and when nothing else runs that could join it.
func (w *Worker) releasesDue(n int, age time.Duration) bool {
	return age >= completeLinger || n >= w.slots.taken()
}

// releaseEnded releases runs that have ended, and then frees their slots: the worker does
// not end before.
func (w *Worker) releaseEnded(ctx context.Context, runs []*attempt) {
	rows := make([]dispatch.Run, len(runs))
	for i, a := range runs {
		rows[i] = dispatch.Run{ID: a.ID, Token: a.Token}
	}
	w.release(ctx, rows)
	for _, a := range runs {
		a.inc.remove(a.claimed)
		w.free()
	}
}

// endAll ends every run, and has none begin any more.
func (inc *incarnation) endAll(why error) {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	inc.stopped = why
	for _, r := range inc.running {
		r.stop(why)
	}
}

// abandonAll gives up the runs that have not ended, and returns them. An outcome that one
// of them has later is dropped.
func (inc *incarnation) abandonAll() (left []dispatch.Run) {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	for id, r := range inc.running {
		if r.attempt.abandon(math.MaxInt) {
			left = append(left, dispatch.Run{ID: id, Token: r.token})
			delete(inc.running, id)
		}
	}
	return left
}
