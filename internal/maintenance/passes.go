package maintenance

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/breaker"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/partition"
)

// gaugeEvery is how often the numbers of the whole service are taken, by one of
// its processes.
const gaugeEvery = 5 * time.Second

// findEvery is how often a process asks what there is to do, with one statement; the
// passes that have something to do begin then. uncalled is how often they begin by
// themselves: for their metrics, and to ask Redis whether it lost what it held.
const findEvery, uncalled = time.Second, 30 * time.Second

// findIdle is how often it asks while nothing waits or runs and it found nothing, and
// gaugeIdle how often the numbers are taken then.
const findIdle, gaugeIdle = 2 * time.Second, 15 * time.Second

// The passes that FindWork knows.
const (
	sweepPass   = "sweep"
	awaitedPass = "end-awaited"
	cancelPass  = "cancel"
	suspendPass = "suspend"
	statusPass  = "change-status"
	countPass   = "count-waiting"
	replayPass  = "replay-dead-letters" // one of Config.Elsewhere
)

// Passes is what a process that maintains does again and again.
func (m *Maintainer) Passes() []loop.Pass {
	called, calls := slices.Concat(m.calledPasses(), m.c.Elsewhere), map[string]chan<- struct{}{}
	for i := range called {
		call := make(chan struct{}, 1)
		called[i].Every, called[i].Called, calls[called[i].Name] = uncalled, call, call
	}
	return append(called, []loop.Pass{
		{Name: "find-work", Every: findEvery, Do: func(ctx context.Context, turn *loop.Turn) error {
			found, err := m.FindWork(ctx, time.Time{})
			if err == nil && len(found) == 0 {
				turn.Again(findIdle)
			}
			for _, name := range found {
				select {
				case calls[name] <- struct{}{}:
				default: // it has a call already
				}
			}
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
		{Name: "gauge", Every: gaugeEvery, Do: func(ctx context.Context, turn *loop.Turn) error {
			active, err := m.Gauge(ctx)
			if err == nil && active == 0 {
				turn.Again(gaugeIdle)
			}
			return err
		}},
		{Name: "forget-breakers", Every: time.Minute, Do: func(ctx context.Context, _ *loop.Turn) error {
			_, err := breaker.Forget(ctx, m.c.DB, time.Time{})
			return err
		}},
		{Name: "watch-snapshots", Every: time.Minute, Do: func(ctx context.Context, _ *loop.Turn) error {
			_, err := m.WatchSnapshots(ctx, oldTransactions)
			return err
		}},
		// Often enough: partitions are made a month ahead and more.
		{Name: "make-partitions", Every: time.Hour, Do: func(ctx context.Context, _ *loop.Turn) error {
			return m.MakePartitions(ctx, time.Time{})
		}},
	}...)
}

// FindWork lists the names of the passes that have something to do. A zero now means
// the database's clock.
func (m *Maintainer) FindWork(ctx context.Context, now time.Time) (passes []string, err error) {
	return m.store.findWork(ctx, now)
}

// calledPasses are those that FindWork knows.
func (m *Maintainer) calledPasses() []loop.Pass {
	return []loop.Pass{
		{Name: sweepPass, Do: m.sweep},
		{Name: awaitedPass, Do: m.endAwaited},
		{Name: cancelPass, Do: m.cancel},
		{Name: suspendPass, Do: func(ctx context.Context, _ *loop.Turn) error {
			_, err := m.Suspend(ctx)
			return err
		}},
		{Name: statusPass, Do: func(ctx context.Context, _ *loop.Turn) error {
			_, _, err := m.ChangeStatus(ctx, time.Time{})
			return err
		}},
		{Name: countPass, Leased: true, Do: func(ctx context.Context, _ *loop.Turn) error {
			_, err := m.CountWaiting(ctx)
			return err
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

func (m *Maintainer) endAwaited(ctx context.Context, _ *loop.Turn) error {
	ended, err := m.EndAwaited(ctx, time.Time{})
	if ended > 0 {
		m.c.Log.InfoContext(ctx, "waits for a callback ended without one", "executions", ended)
	}
	return err
}

// EndAwaited ends waits for a callback that nobody reported in time, and those whose end
// somebody asked for. A zero now means the database's clock.
func (m *Maintainer) EndAwaited(ctx context.Context, now time.Time) (ended int, err error) {
	return m.callbacks.EndOverdue(ctx, now)
}

func (m *Maintainer) cancel(ctx context.Context, _ *loop.Turn) error {
	cancelled, err := m.Cancel(ctx)
	if cancelled > 0 {
		m.c.Log.InfoContext(ctx, "executions cancelled", "executions", cancelled)
	}
	return err
}

// MakePartitions makes the partitions that are missing; a zero now means the
// database's clock. It takes no lease: without partitions nothing is recorded,
// and several processes that make them at once make each once.
func (m *Maintainer) MakePartitions(ctx context.Context, now time.Time) error {
	made, err := partition.Keep(ctx, m.store.queries(), max(1, m.c.PartitionsAhead), now)
	if err != nil {
		return err
	}
	if made > 0 {
		m.c.Log.InfoContext(ctx, "partitions made", "count", made)
	}
	return nil
}
