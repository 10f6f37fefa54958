// Package derive finds out what tenants want to be told.
//
// It owns the pass that reads finished outcomes once, in the order in which they ended,
// and makes of them events: which failure is the first of a row, which completion ends one.
// It stores a delivery for each notification that tells an event, in the transaction that
// moves the cursor on, so that each event is told once. Completing an execution costs
// nothing for it. Another pass finds what did not end: jobs that were not completed in time.
// It refuses to send, and to know in what form something is told.
package derive

import (
	"context"
	"log/slog"
	"time"

	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/settled"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

const (
	// every is the least distance of two passes: an event is told this long after what
	// happened, and the time by which reading stays behind.
	every = 5 * time.Second
	// intervalRows bounds what one transaction reads, and maxIntervals how many a pass does.
	intervalRows = 5000
	maxIntervals = 20
	// mostWaiting is how many deliveries of a tenant may wait; events beyond are dropped.
	mostWaiting = 10_000
)

// Deriver makes events. One goroutine at a time calls Pass, and one CheckDeadlines.
type Deriver struct {
	store     store
	mark      *settled.Mark
	deadlines *settled.Mark
	metrics   *telemetry.Metrics
	log       *slog.Logger
}

// New makes one that acts as postgres.Engine.
func New(db *postgres.DB, metrics *telemetry.Metrics, log *slog.Logger) *Deriver {
	return &Deriver{store: store{db: db}, mark: settled.NewMark(db), deadlines: settled.NewMark(db), metrics: metrics, log: log}
}

// Report is what a pass did.
type Report struct {
	Told    int  // deliveries that were made
	Dropped int  // and those that were not, because too many wait
	More    bool // something is left to read
}

// Pass derives the events since the last one. It is fenced by the lease.
func (d *Deriver) Pass(ctx context.Context, held lease.Lease) (total Report, err error) {
	if settled, err := d.mark.Settle(ctx); err != nil || !settled {
		total.More = d.mark.Waiting()
		return total, err
	}
	for range maxIntervals {
		one, err := d.store.advance(ctx, held, d.mark.Until())
		if err != nil {
			return total, err
		}
		total.Told, total.Dropped, total.More = total.Told+one.Told, total.Dropped+one.Dropped, one.More
		d.metrics.EventsTold(one.Told, one.Dropped)
		if !one.More {
			d.mark.Reached()
			break
		}
	}
	return total, nil
}

// Passes is what a process that derives events does once maintenance has found that
// somebody wants to be told.
func (d *Deriver) Passes() []loop.Pass {
	return []loop.Pass{{Name: "derive-events", Every: loop.Uncalled, Apart: every, Leased: true, Do: func(ctx context.Context, turn *loop.Turn) error {
		report, err := d.Pass(ctx, turn.Lease)
		if report.More {
			turn.Again(loop.Soon)
		}
		return err
	}}, {Name: "check-deadlines", Every: loop.Uncalled, Apart: every, Leased: true, Do: func(ctx context.Context, turn *loop.Turn) error {
		report, err := d.CheckDeadlines(ctx, turn.Lease)
		if report.More {
			turn.Again(loop.Soon)
		}
		return err
	}}}
}
