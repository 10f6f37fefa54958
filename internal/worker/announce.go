package worker

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/queue"
)

const (
	// announcementsWaiting is how many accepted batches may wait to be announced.
	announcementsWaiting = 64
	// announceLimit is how long announcing one batch may take. Hints save the
	// next in line a poll, and are worth no more.
	announceLimit = time.Second
)

// announcement is what a batch of accepted outcomes freed.
type announcement struct {
	next  []nextOfJob
	freed []dispatch.Freed
}

// nextOfJob are executions of one job that get the concurrency slots which its ends
// freed.
type nextOfJob struct {
	lane queue.Lane
	ids  []uuid.UUID
}

// announce has the next in line hinted, beside whatever else the worker does. Where
// too many announcements wait, this worker tries the executions itself, and a poll
// finds the others.
func (w *Worker) announce(a announcement) {
	select {
	case w.announcements <- a:
	default:
		for _, n := range a.next {
			w.tryHere(n.ids)
		}
	}
}

// announcing hints the next in line, one announcement after the other, until stopped
// is done and nothing is left.
func (w *Worker) announcing(ctx context.Context, stopped <-chan struct{}) {
	for {
		select {
		case a := <-w.announcements:
			w.hintNext(ctx, a)
			continue
		default:
		}
		select {
		case a := <-w.announcements:
			w.hintNext(ctx, a)
		case <-stopped:
			return
		}
	}
}

func (w *Worker) hintNext(ctx context.Context, a announcement) {
	ctx, cancel := context.WithTimeout(ctx, announceLimit)
	defer cancel()
	for _, n := range a.next {
		w.hint(ctx, n.lane, n.ids)
	}
	// A statement of its own, once the ends are committed, sees everything that the
	// tenants' limits left behind until then. While this worker polls, its next poll finds what
	// is in the pool, but for types that it leaves to others.
	next, err := w.store.Next(ctx, time.Time{}, a.freed, w.polling.Load())
	if err != nil {
		w.c.Log.WarnContext(ctx, "the next in line not known; a poll finds them", "error", err)
		return
	}
	for lane, ids := range lanesOf(next) {
		w.hint(ctx, lane, ids)
	}
}

// hint hints executions that may start now; a poll finds them when the hint is lost.
// While no hints come, this worker tries them itself.
func (w *Worker) hint(ctx context.Context, lane queue.Lane, next []uuid.UUID) {
	if len(next) == 0 {
		return
	}
	if w.hintless.Load() || ctx.Err() != nil {
		w.tryHere(next)
		return
	}
	if err := w.c.Hints.Publish(ctx, lane, next); err != nil {
		w.c.Log.DebugContext(ctx, "hint of the next in line not sent; a poll finds it", "error", err)
	}
}
