package maintenance

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/scheduler-service/scheduler/internal/breaker"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/partition"
)

// gaugeEvery is how often the numbers of the whole service are taken, by one of
// its processes.
const gaugeEvery = 5 * time.Second

// findEvery is how often a process asks what there is to do, with one statement; the
// passes that have something to do begin then. sweepEvery is how often the sweep begins
// without that: for its metrics, and to ask Redis whether it lost what it held.
const findEvery, sweepEvery = time.Second, 30 * time.Second

// findIdle is how often it asks while it calls no pass, and gaugeIdle how often the
// numbers are taken while nothing waits or runs.
const findIdle, gaugeIdle = 2 * time.Second, 20 * time.Second

// Passes that FindWork knows, see findables.
const (
	sweepPass   = "sweep"
	awaitedPass = "end-awaited"
	cancelPass  = "cancel"
	suspendPass = "suspend"
	statusPass  = "change-status"
	countPass   = "count-waiting"
)

// Passes is what a process that maintains does again and again.
func (m *Maintainer) Passes() []loop.Pass {
	called := slices.Concat(m.calledPasses(), m.c.Elsewhere)
	calls, sample := callsOf(called), anyID(clock.Now())
	return append(called, []loop.Pass{
		{Name: "find-work", Every: findEvery, Do: func(ctx context.Context, turn *loop.Turn) error {
			found, err := m.FindWork(ctx, time.Time{})
			if err != nil { // each finds out by itself, with statements that may still be answered
				calls.call(maps.Keys(calls))
				return err
			}
			if !calls.call(slices.Values(found)) {
				turn.Again(findIdle)
			}
			return nil
		}},
		{Name: "reconcile-schedules", Every: time.Minute, Do: func(ctx context.Context, _ *loop.Turn) error {
			report, err := m.ReconcileSchedules(ctx, time.Time{}, sample)
			sample = report.Next // also after an error: jobs that cannot be compared keep no others from their turn
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

// call is how a pass is called, and when it was last.
type call struct {
	to    chan<- struct{}
	apart time.Duration
	last  clock.Mark
}

// calls are those of passes, by name.
type calls map[string]*call

// callsOf makes the calls of those passes that FindWork knows.
func callsOf(passes []loop.Pass) calls {
	all := calls{}
	for i := range passes {
		p := &passes[i]
		if slices.ContainsFunc(findables(), func(f findable) bool { return f.name == p.Name }) {
			to := make(chan struct{}, 1)
			p.Called, all[p.Name] = to, &call{to: to, apart: p.Apart, last: clock.Start()} // all begin at once
		}
	}
	return all
}

// call calls passes, but for those that were called a moment ago; any says that one was.
func (c calls) call(names iter.Seq[string]) (any bool) {
	for name := range names {
		one, here := c[name]
		if !here || one.last.Elapsed() < one.apart {
			continue
		}
		any, one.last = true, clock.Start()
		select {
		case one.to <- struct{}{}:
		default: // it has a call already
		}
	}
	return any
}

// FindWork lists the names of the passes that have something to do. A zero now means
// the database's clock.
func (m *Maintainer) FindWork(ctx context.Context, now time.Time) (passes []string, err error) {
	return m.store.findWork(ctx, now)
}

// calledPasses are those of maintenance that FindWork knows.
func (m *Maintainer) calledPasses() []loop.Pass {
	return []loop.Pass{
		{Name: sweepPass, Every: sweepEvery, Do: m.sweep},
		{Name: awaitedPass, Every: loop.Uncalled, Do: m.endAwaited},
		{Name: cancelPass, Every: loop.Uncalled, Do: m.cancel},
		{Name: suspendPass, Every: loop.Uncalled, Do: func(ctx context.Context, _ *loop.Turn) error {
			_, err := m.Suspend(ctx)
			return err
		}},
		{Name: statusPass, Every: loop.Uncalled, Do: func(ctx context.Context, _ *loop.Turn) error {
			_, _, err := m.ChangeStatus(ctx, time.Time{})
			return err
		}},
		{Name: countPass, Every: loop.Uncalled, Leased: true, Do: func(ctx context.Context, _ *loop.Turn) error {
			if m.counting.rests() {
				return nil
			}
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
	made, err := partition.Keep(ctx, m.store.queries(), m.c.Spans.Now(), max(1, m.c.PartitionsAhead), now)
	if err != nil {
		return err
	}
	if made > 0 {
		m.c.Log.InfoContext(ctx, "partitions made", "count", made)
	}
	return nil
}
