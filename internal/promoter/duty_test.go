package promoter_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/promoter"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

// Three promoters have the same duty: it is done by one of them at a time.
func TestADutyIsDoneByOneAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const promoters, enough = 3, 15
	var atOnce, times atomic.Int32
	done := make(chan struct{})
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	var group errgroup.Group
	for range promoters {
		metrics := telemetry.NewMetrics(telemetry.NewRegistry())
		p := promoter.New(promoter.Deps{
			DB: b.engine, Hints: b.hints, Metrics: metrics, Log: slog.New(slog.DiscardHandler), CatchupPerSecond: 100,
			Leases: lease.NewStore(lease.Config{DB: b.engine, Holder: "test", TTL: time.Minute, Metrics: metrics}),
			Duties: []promoter.Duty{{Name: "test", Every: 5 * time.Millisecond, Pass: func(ctx context.Context, held lease.Lease) (bool, error) {
				defer atOnce.Add(-1)
				if n := atOnce.Add(1); n != 1 {
					t.Errorf("%d do it at once", n)
				}
				if times.Add(1) == enough {
					close(done)
				}
				return false, b.engine.Ping(ctx)
			}}},
		})
		group.Go(func() error { return p.Run(ctx) })
	}
	select {
	case <-done:
	case <-ctx.Done():
		t.Errorf("done %d times in three minutes", times.Load())
	}
	stop()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// A duty whose budget ended before its work did comes again at once, and not at
// its distance of an hour.
func TestADutyThatHasMoreToDoComesAgainSoon(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const enough = 3
	var times atomic.Int32
	done := make(chan struct{})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	metrics := telemetry.NewMetrics(telemetry.NewRegistry())
	p := promoter.New(promoter.Deps{
		DB: b.engine, Hints: b.hints, Metrics: metrics, Log: slog.New(slog.DiscardHandler), CatchupPerSecond: 100,
		Leases: lease.NewStore(lease.Config{DB: b.engine, Holder: "test", TTL: time.Minute, Metrics: metrics}),
		Duties: []promoter.Duty{{Name: "test", Every: time.Hour, Pass: func(context.Context, lease.Lease) (bool, error) {
			n := times.Add(1)
			if n == enough {
				close(done)
			}
			return n < enough, nil
		}}},
	})
	var group errgroup.Group
	group.Go(func() error { return p.Run(ctx) })
	select {
	case <-done:
	case <-ctx.Done():
		t.Errorf("done %d times in a minute, want %d", times.Load(), enough)
	}
	stop()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}
