package rest

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// One more heavy request waits for another to end, for a while and not beside
// any number; who has gone waits no more.
func TestHeavyRequestsWaitForOneToEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, ours, theirs := newHeavy(1), uuid.New(), uuid.New()
		enter := func(ctx context.Context, id uuid.UUID) <-chan bool {
			done := make(chan bool, 1)
			go func() { done <- h.enter(ctx, id) }()
			synctest.Wait()
			return done
		}
		if !<-enter(t.Context(), ours) || !<-enter(t.Context(), theirs) {
			t.Fatal("the first of each do not enter")
		}
		second := enter(t.Context(), ours)
		h.leave(ours)
		if !<-second {
			t.Error("the second is refused although the first left")
		}
		began := clock.Start()
		if <-enter(t.Context(), ours) || began.Elapsed() != heavyPatience {
			t.Errorf("the third was answered after %v", began.Elapsed())
		}
		ctx, cancel := context.WithCancel(t.Context())
		var queue []<-chan bool
		for range heavyQueue {
			queue = append(queue, enter(ctx, ours))
		}
		began = clock.Start()
		if <-enter(t.Context(), ours) || began.Elapsed() != 0 {
			t.Error("one more than may wait waits")
		}
		cancel()
		for _, one := range queue {
			if <-one {
				t.Error("somebody entered who is gone")
			}
		}
		h.leave(ours)
		h.leave(theirs)
		if len(h.of) != 0 || len(h.waiting) != 0 || h.total != 0 {
			t.Errorf("left behind: %v %v %d", h.of, h.waiting, h.total)
		}
	})
}
