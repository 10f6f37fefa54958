package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/worker"
)

// A run hears of its cancellation well before the next heartbeat.
func TestCancelReachesARunSoon(t *testing.T) {
	t.Parallel()
	b := setup(t)
	started := make(chan struct{})
	b.run = func(ctx context.Context, _ executor.Run) executor.Outcome {
		close(started)
		<-ctx.Done()
		return executor.Outcome{Err: &executor.Error{Type: executor.SystemError, Message: "interrupted"}}
	}
	w := b.start(func(c *worker.Config) { c.Heartbeat, c.Fence, c.Lease = time.Minute, 4*time.Minute, 5*time.Minute })
	e := b.pending(nil)
	b.handle(w, e.ID)
	within(t, "the start", started)
	if got, _, err := b.executions.Cancel(t.Context(), b.who, e.ID, "not today"); err != nil || !got.Cancelling {
		t.Fatal(got, err)
	}
	if got := b.reaches(e.ID, execution.Cancelled); got.Error != nil || got.Reason != "not today" || got.CancelledBy != b.who.Subject {
		t.Errorf("the interruption is recorded as %+v, %q by %q", got.Error, got.Reason, got.CancelledBy)
	}
}
