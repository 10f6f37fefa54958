// Package collect makes dead letters, and keeps them within bounds.
//
// It owns the pass that reads failed executions once, in the order in which they ended, and
// the one that counts dead letters and drops the oldest of a tenant that has too many.
// Completing an execution costs nothing for it; see migration 000430 for the ways that were
// weighed. It refuses to remove what retention removes.
package collect

import (
	"context"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/deadletter"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/settled"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

const (
	// every is the least distance of two passes. Reading stays 15 s behind (package settled), so that
	// asking more often would show dead letters little sooner and cost an idle installation more.
	every = 10 * time.Second
	// intervalRows bounds what one transaction reads, and maxIntervals how many a pass does.
	intervalRows = 5000
	maxIntervals = 20
	// raced is how far back a count looks for retries that crossed the pass that read their
	// executions: longer than two counts are apart.
	raced = time.Hour
	// countEvery is the distance of two counts, and countRest how many times its own length a
	// count is followed by none, up to countRestMost: a hundredth of a core at most.
	countEvery    = time.Minute
	countRest     = 100
	countRestMost = 10 * time.Minute
	// trimRows bounds one statement that drops, and trimBudget how long a pass drops.
	trimRows   = 5000
	trimBudget = time.Second
)

// Collector makes dead letters. One goroutine at a time calls each of its passes.
type Collector struct {
	store   store
	mark    *settled.Mark
	metrics *telemetry.Metrics
	most    int
}

// New makes one that acts as postgres.Engine. most is how many dead letters a tenant may have;
// 0: deadletter.MaxPerTenant.
func New(db *postgres.DB, metrics *telemetry.Metrics, most int) *Collector {
	if most == 0 {
		most = deadletter.MaxPerTenant
	}
	return &Collector{store: store{db: db}, mark: settled.NewMark(db), metrics: metrics, most: most}
}

// Pass makes dead letters of what failed since the last one, and says how many, and whether
// something is left to read. It is fenced by the lease.
func (c *Collector) Pass(ctx context.Context, held lease.Lease) (made int, more bool, err error) {
	if settled, err := c.mark.Settle(ctx); err != nil || !settled {
		return 0, c.mark.Waiting(), err
	}
	for range maxIntervals {
		n, left, err := c.store.advance(ctx, held, c.mark.Until())
		if err != nil {
			return made, false, err
		}
		c.metrics.DeadLetters("made", n)
		made, more = made+n, left
		if !left {
			c.mark.Reached()
			break
		}
	}
	return made, more, nil
}

// Count counts the dead letters of all tenants, keeps the number where every process may read
// it, and drops the oldest of tenants that have too many and those that a retry crossed. It
// says whether it has to go on.
func (c *Collector) Count(ctx context.Context) (dropped int, more bool, err error) {
	if err := c.store.mend(ctx); err != nil {
		return 0, false, err
	}
	counts, err := c.store.count(ctx)
	if err != nil {
		return 0, false, err
	}
	begin := clock.Start()
	for tenant, n := range counts {
		for n > c.most {
			if begin.Elapsed() > trimBudget {
				return dropped, true, nil
			}
			gone, err := c.store.trim(ctx, tenant, min(n-c.most, trimRows))
			if err != nil {
				return dropped, false, err
			}
			c.metrics.DeadLetters("dropped", gone)
			if dropped, n = dropped+gone, n-gone; gone == 0 {
				break // others hold the oldest ones: the next count tries again
			}
		}
	}
	return dropped, false, nil
}

// Passes is what a process that makes dead letters does again and again.
func (c *Collector) Passes() []loop.Pass {
	return []loop.Pass{
		{Name: "collect-dead-letters", Every: loop.Uncalled, Apart: every, Leased: true, Do: func(ctx context.Context, turn *loop.Turn) error {
			_, more, err := c.Pass(ctx, turn.Lease)
			if more {
				turn.Again(loop.Soon)
			}
			return err
		}},
		{Name: "count-dead-letters", Every: countEvery, Leased: true, Do: func(ctx context.Context, turn *loop.Turn) error {
			begin := clock.Start()
			_, more, err := c.Count(ctx)
			if more {
				turn.Again(loop.Soon)
			} else if rest := clock.Rest(begin.Elapsed(), countRest, countEvery, countRestMost); rest > countEvery {
				turn.Again(rest)
			}
			return err
		}},
	}
}
