package worker_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/worker"
)

// TestSlowRedisHoldsNoSlot ends a run with another behind it in its job's line,
// and no hint gets through. The worker hints the next, because more than half of its slots are taken. Its last
// free slot goes to others all the same. On the commit before, nothing more was completed until the hint was given up.
func TestSlowRedisHoldsNoSlot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hints.hold = true
	busy, done := []uuid.UUID{b.pending(nil).ID, b.pending(nil).ID}, make(chan struct{})
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		if slices.Contains(busy, run.ExecutionID) {
			<-done
		}
		return executor.Outcome{}
	}
	w := b.start(func(c *worker.Config) { c.Slots = len(busy) + 1 })
	t.Cleanup(func() { close(done) })
	b.handle(w, busy...)
	first := b.pending(func(s *job.Spec) { s.Overlap, s.MaxConcurrent = job.OverlapQueue, 1 })
	if _, _, err := b.executions.Trigger(t.Context(), b.who, first.JobID, nil, idempotency.Key{}); err != nil {
		t.Fatal(err)
	}
	b.handle(w, first.ID)
	within(t, "the next in line is told", b.hints.sent)
	for range 3 {
		other := b.pending(nil)
		eventually(t, "another run ends", func() bool {
			b.handle(w, other.ID)
			e, err := b.executions.Get(t.Context(), b.who, other.ID)
			return err == nil && e.Status == execution.Completed
		})
	}
}
