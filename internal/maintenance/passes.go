package maintenance

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/loop"
)

// gaugeEvery is how often the numbers of the whole service are taken, by one of
// its processes.
const gaugeEvery = 5 * time.Second

// Passes is what a process that maintains does again and again.
func (m *Maintainer) Passes() []loop.Pass {
	return []loop.Pass{
		{Name: "sweep", Every: time.Second, Do: m.sweep},
		{Name: "cancel", Every: time.Second, Do: m.cancel},
		{Name: "suspend", Every: time.Second, Do: func(ctx context.Context, _ *loop.Turn) error {
			_, err := m.Suspend(ctx)
			return err
		}},
		{Name: "change-status", Every: time.Second, Do: func(ctx context.Context, _ *loop.Turn) error {
			_, _, err := m.ChangeStatus(ctx, time.Time{})
			return err
		}},
		{Name: "reconcile-schedules", Every: time.Minute, Do: func(ctx context.Context, _ *loop.Turn) error {
			_, err := m.ReconcileSchedules(ctx, time.Time{}, uuid.New())
			return err
		}},
		{Name: "reconcile-running", Every: time.Minute, Do: func(ctx context.Context, _ *loop.Turn) error {
			_, err := m.ReconcileRunning(ctx)
			return err
		}},
		{Name: "count-waiting", Every: time.Second, Leased: true, Do: func(ctx context.Context, _ *loop.Turn) error {
			_, err := m.CountWaiting(ctx)
			return err
		}},
		{Name: "gauge", Every: gaugeEvery, Do: func(ctx context.Context, _ *loop.Turn) error { return m.Gauge(ctx) }},
		{Name: "watch-snapshots", Every: time.Minute, Do: func(ctx context.Context, _ *loop.Turn) error {
			_, err := m.WatchSnapshots(ctx, oldTransactions)
			return err
		}},
		// Often enough: partitions are made a month ahead and more.
		{Name: "make-partitions", Every: time.Hour, Do: func(ctx context.Context, _ *loop.Turn) error {
			return m.MakePartitions(ctx, time.Time{})
		}},
	}
}

func (m *Maintainer) sweep(ctx context.Context, _ *loop.Turn) error {
	report, err := m.Sweep(ctx, time.Time{})
	if report.Reclaimed > 0 {
		m.c.Log.WarnContext(ctx, "executions taken from workers", "reclaimed", report.Reclaimed, "ended", report.Ended)
	}
	return err
}

func (m *Maintainer) cancel(ctx context.Context, _ *loop.Turn) error {
	cancelled, err := m.Cancel(ctx)
	if cancelled > 0 {
		m.c.Log.InfoContext(ctx, "executions cancelled", "executions", cancelled)
	}
	return err
}
