package worker

import (
	"context"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// batch gathers what many goroutines bring into few statements: a flush takes
// what came until the batch is full or due. While a flush runs the next batch
// fills, so under load batches grow by themselves.
type batch[T any] struct {
	in  chan T
	max int
	// due says whether n items wait no longer, the first of which came so long
	// ago. It is asked when an item comes, and at least each step.
	due  func(n int, age time.Duration) bool
	step time.Duration
	// most bounds a batch by the sizes of its items; 0: they do not count. The
	// last item may exceed it.
	most int
	size func(T) int
}

func newBatch[T any](size int, step time.Duration, due func(n int, age time.Duration) bool) *batch[T] {
	return &batch[T]{in: make(chan T, size), max: size, step: step, due: due}
}

// run flushes batches, one at a time, until ctx is cancelled and nothing is
// left in it. The slice belongs to flush only until it returns.
func (b *batch[T]) run(ctx context.Context, flush func(items []T)) {
	items := make([]T, 0, b.max)
	for {
		select {
		case item := <-b.in:
			items = append(items[:0], item)
		case <-ctx.Done():
			select {
			case item := <-b.in:
				items = append(items[:0], item)
			default:
				return
			}
		}
		items = b.fill(items)
		flush(items)
	}
}

// fill takes more until the batch is full, as large as may be, or due.
func (b *batch[T]) fill(items []T) []T {
	first := clock.Start()
	step := time.NewTicker(b.step)
	defer step.Stop()
	sum := 0
	if b.most > 0 {
		sum = b.size(items[0])
	}
	for len(items) < b.max && (b.most == 0 || sum < b.most) && !b.due(len(items), first.Elapsed()) {
		select {
		case item := <-b.in:
			items = append(items, item)
			if b.most > 0 {
				sum += b.size(item)
			}
		case <-step.C:
		}
	}
	return items
}
