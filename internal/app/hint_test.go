package app

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/queue/redistest"
)

// Where a lane has no room for the hint of a triggered execution, workers are called. On the commit
// before, idle ones looked up to two seconds later.
func TestWorkersAreCalledWhereALaneIsFull(t *testing.T) {
	t.Parallel()
	s, log := redistest.New(t), slog.New(slog.DiscardHandler)
	hints, err := queue.NewPublisher(queue.Config{URL: s.ClientURL}, log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := hints.Close(); err != nil {
			t.Error(err)
		}
	}()
	const priority = 5
	for range queue.Window {
		if err := hints.Publish(t.Context(), queue.LaneFor(priority), []uuid.UUID{uuid.New()}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	heard, done := make(chan struct{}, 8), make(chan error)
	go func() { done <- hints.Ear(queue.CallPool).Listen(ctx, func() { heard <- struct{}{} }) }()
	<-heard // it listens
	hintOne(hints, log)(t.Context(), priority, uuid.New())
	select {
	case <-heard:
	case <-time.After(time.Minute):
		t.Error("no worker was called")
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
