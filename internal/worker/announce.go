package worker

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/queue"
)

const (
	// newsWaiting is how many accepted batches may wait to be announced.
	newsWaiting = 64
	// announceLimit is how long announcing one batch may take. Hints save the
	// next in line a poll, and are worth no more.
	announceLimit = time.Second
)

// news is what accepted outcomes leave to others.
type news struct {
	turns []turn
	ends  []freed
}

// turn names runs that waited for a slot of their job, whose turn it is now.
type turn struct {
	lane queue.Lane
	ids  []uuid.UUID
}

// announce has the next in line told, beside whatever else the worker does.
// Where too much waits to be announced already, this worker tries them itself,
// and a poll finds the others.
func (w *Worker) announce(n news) {
	select {
	case w.news <- n:
	default:
		for _, t := range n.turns {
			w.follow(t.ids)
		}
	}
}

// announcing tells the next in line, one batch after the other, until stopped is
// done and nothing is left.
func (w *Worker) announcing(ctx context.Context, stopped <-chan struct{}) {
	for {
		select {
		case n := <-w.news:
			w.tell(ctx, n)
			continue
		default:
		}
		select {
		case n := <-w.news:
			w.tell(ctx, n)
		case <-stopped:
			return
		}
	}
}

func (w *Worker) tell(ctx context.Context, n news) {
	ctx, cancel := context.WithTimeout(ctx, announceLimit)
	defer cancel()
	for _, t := range n.turns {
		w.handOn(ctx, t.lane, t.ids)
	}
	// What waited for a slot of the tenant or for a concurrency key is asked for
	// once the ends are committed, so that it sees who was left behind until then.
	next, err := w.store.next(ctx, n.ends)
	if err != nil {
		w.Log.WarnContext(ctx, "the next in line not known, a look finds them", "error", err)
		return
	}
	for lane, ids := range lanesOf(next) {
		w.handOn(ctx, lane, ids)
	}
}

// handOn hints runs that waited for what ended; a poll finds them when the hint
// is lost. While no hints come, this worker tries itself.
func (w *Worker) handOn(ctx context.Context, lane queue.Lane, next []uuid.UUID) {
	if len(next) == 0 {
		return
	}
	if w.hintless.Load() || ctx.Err() != nil {
		w.follow(next)
		return
	}
	if err := w.Hints.Publish(ctx, lane, next); err != nil {
		w.Log.DebugContext(ctx, "hint of the next in line not sent, a look finds it", "error", err)
	}
}
