// Package count adds what ended to the counts of objectives.
//
// It owns the pass that reads executions once, in the order in which they ended, and the
// numbers of objectives in danger. It refuses to know what a tenant sees of them.
package count

import (
	"context"
	"time"

	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/settled"
)

const (
	// every is the least distance of two passes.
	every = 30 * time.Second
	// One transaction reads at most intervalRows executions and judges at most intervalPairs pairs of
	// an execution and an objective. A tenant with a hundred objectives makes the intervals shorter;
	// each interval still counts the executions of all tenants. A pass does maxIntervals of them.
	intervalRows  = 20_000
	intervalPairs = 50_000
	maxIntervals  = 20
)

// Counter counts. One goroutine at a time calls Pass.
type Counter struct {
	store store
	mark  *settled.Mark
}

// New makes one that acts as postgres.Engine.
func New(db *postgres.DB) *Counter { return &Counter{store: store{db}, mark: settled.NewMark(db)} }

// Pass counts what ended since the last one, measures the objectives, and says whether
// something is left to count. It is fenced by the lease. Without objectives it reads nothing
// that ended.
func (c *Counter) Pass(ctx context.Context, held lease.Lease) (more bool, err error) {
	has, err := c.store.hasObjectives(ctx)
	if err != nil {
		return false, err
	}
	if !has {
		c.mark.Reached()
		return false, c.store.measure(ctx)
	}
	settled, err := c.mark.Settle(ctx)
	if err != nil || !settled {
		return c.mark.Waiting(), err
	}
	more = true
	for n := 0; more && n < maxIntervals; n++ {
		if more, err = c.store.advance(ctx, held, c.mark.Until()); err != nil {
			return false, err
		}
	}
	if more {
		return true, nil
	}
	c.mark.Reached()
	if err := c.store.trim(ctx); err != nil {
		return false, err
	}
	return false, c.store.measure(ctx)
}

// Passes is what a process that counts does while there are objectives.
func (c *Counter) Passes() []loop.Pass {
	return []loop.Pass{{Name: "count-objectives", Every: loop.Uncalled, Apart: every, Leased: true, Do: func(ctx context.Context, turn *loop.Turn) error {
		more, err := c.Pass(ctx, turn.Lease)
		if more {
			turn.Again(loop.Soon)
		}
		return err
	}}}
}
