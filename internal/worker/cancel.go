package worker

import (
	"context"
	"time"
)

// cancelLook is how often a worker that runs something asks whether somebody
// wants a run to end. It is one index look-up that finds nothing most of the
// time; a look that fails is repeated after as long.
const cancelLook = 500 * time.Millisecond

// attend ends runs soon after somebody asked for it, until the lease is lost.
func (w *Worker) attend(inc *incarnation) {
	for inc.ctx.Err() == nil {
		pause(inc.ctx, cancelLook)
		if inc.ctx.Err() == nil && inc.count() > 0 {
			w.endCancelled(inc)
		}
	}
}

// endCancelled is one look.
func (w *Worker) endCancelled(inc *incarnation) {
	ctx, cancel := context.WithTimeout(inc.ctx, w.Heartbeat)
	defer cancel()
	rows, err := w.store.cancelled(ctx, inc.member.ID)
	if err != nil {
		w.Log.DebugContext(ctx, "cancelled executions not read; the next look reads them", "error", err)
		return
	}
	inc.mu.Lock()
	defer inc.mu.Unlock()
	for _, r := range rows {
		if run, here := inc.running[r.id]; here && run.token == r.token {
			run.stop(errCancelled)
		}
	}
}
