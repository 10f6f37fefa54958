package queue

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/queue/redistest"
)

// BenchmarkThrough is what one publisher and one consumer carry side by side:
// it sends bursts without waiting, until a no-op handler had every id.
func BenchmarkThrough(b *testing.B) {
	for _, bench := range []struct {
		name  string
		burst int // 16 and fewer travel one by one, from 961 on 64 to a hint
	}{{"single", 16}, {"chunked", 4096}} {
		b.Run(bench.name, func(b *testing.B) {
			s := redistest.New(b)
			p := newPublisher(b, s.ClientURL, discard())
			var left atomic.Int64
			left.Store(int64(b.N) * int64(bench.burst))
			done := make(chan struct{})
			consume(b, Config{URL: s.ClientURL}, discard(), func(_ context.Context, _ Lane, ids []uuid.UUID) error {
				if left.Add(-int64(len(ids))) == 0 {
					close(done)
				}
				return nil
			})
			ids := someIDs(bench.burst)
			b.ResetTimer()
			for range b.N {
				if err := p.Publish(b.Context(), Normal, ids); err != nil {
					b.Fatal(err)
				}
			}
			<-done
			b.ReportMetric(float64(b.N)*float64(bench.burst)/b.Elapsed().Seconds(), "ids/s")
		})
	}
}

// BenchmarkIdleLag is the time from publishing to the handler of a consumer
// that had nothing to do.
func BenchmarkIdleLag(b *testing.B) {
	s := redistest.New(b)
	p := newPublisher(b, s.ClientURL, discard())
	got := make(chan struct{}, 1)
	consume(b, Config{URL: s.ClientURL}, discard(), func(context.Context, Lane, []uuid.UUID) error {
		got <- struct{}{}
		return nil
	})
	for b.Loop() {
		if err := p.Publish(b.Context(), High, someIDs(1)); err != nil {
			b.Fatal(err)
		}
		<-got
	}
}
