package worker

import (
	"context"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
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
