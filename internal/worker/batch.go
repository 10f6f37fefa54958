package worker

import (
	"context"
	"time"
)

// batch gathers what many goroutines bring into few statements: a flush takes
// what came within linger of the first item, at most max. While a flush runs
// the next batch fills, so under load batches grow by themselves.
type batch[T any] struct {
	in     chan T
	max    int
	linger time.Duration
}

func newBatch[T any](size int, linger time.Duration) *batch[T] {
	return &batch[T]{in: make(chan T, size), max: size, linger: linger}
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

// fill takes more until the batch is full or its time is over.
func (b *batch[T]) fill(items []T) []T {
	timer := time.NewTimer(b.linger)
	defer timer.Stop()
	for len(items) < b.max {
		select {
		case item := <-b.in:
			items = append(items, item)
		case <-timer.C:
			return items
		}
	}
	return items
}
