package collect

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/settled"
)

const (
	// Every is the distance of two snapshots. They stand on the clock's half
	// minutes, so whichever process takes one, and however often, there is one for each.
	Every = 30 * time.Second
	// interval and intervalRows bound what one transaction counts, and maxIntervals
	// how many a pass does: after an outage of the promoters it catches up with two
	// days at once, or with 1.2 million outcomes.
	interval     = time.Hour
	intervalRows = 25_000
	maxIntervals = 48
	// backIntervals is the same for what was finished before roll-ups were kept: 100,000
	// outcomes a pass, so that an upgrade takes time and not the database.
	backIntervals = 4
)

// Collector counts. One goroutine at a time calls Pass.
type Collector struct {
	store store
	mark  *settled.Mark
	older bool // what was finished before roll-ups were kept is rolled up
}

// NewCollector makes one that acts as postgres.Engine.
func NewCollector(db *postgres.DB) *Collector {
	return &Collector{store: store{db: db}, mark: settled.NewMark(db)}
}

// Pass counts the outcomes since the last one, adds them to the roll-ups, and
// takes the numbers of this half minute, unless somebody has taken them already;
// it says whether it took them. It is fenced by the lease. It counts nothing while
// Waiting reports true.
func (c *Collector) Pass(ctx context.Context, held lease.Lease) (taken bool, err error) {
	if settled, err := c.mark.Settle(ctx); err != nil || !settled {
		return false, err
	}
	for range maxIntervals {
		var done bool
		if done, taken, err = c.store.advance(ctx, held, c.mark.Until()); err != nil {
			return false, err
		}
		if done {
			c.mark.Reached()
			return taken, c.back(ctx, held)
		}
	}
	return false, nil
}

// Waiting reports whether the last pass found a transaction that has written and
// not ended, so that it could not count.
func (c *Collector) Waiting() bool { return c.mark.Waiting() }

// back rolls up a piece of what was finished before roll-ups were kept. Pass does it
// when it has reached the present.
func (c *Collector) back(ctx context.Context, held lease.Lease) error {
	for range backIntervals {
		if c.older {
			break
		}
		var err error
		if c.older, err = c.store.back(ctx, held); err != nil {
			return err
		}
	}
	return nil
}

// foldBudget is how long a pass of folding goes on, and foldIdle the distance to the next
// of one that found nothing to fold.
const foldBudget, foldIdle = time.Second, 2 * time.Minute

// Fold moves what is counted into the roll-ups, tenant by tenant, of those that
// have enough of it at now; a zero now means the database's clock. It says of how many, and
// whether its budget ended before the work did. Any number of processes may fold at once, each
// another tenant. A tenant whose roll-ups cannot be folded keeps what is counted,
// which statistics read, and stops no other.
func (c *Collector) Fold(ctx context.Context, now time.Time) (folded int, more bool, err error) {
	begin, failed := clock.Start(), []uuid.UUID{}
	var faults []error
	for ctx.Err() == nil {
		tenant, err := c.store.fold(ctx, now, failed)
		switch {
		case err != nil && (tenant == uuid.Nil || !postgres.Refused(err) && fault.KindOf(err) == fault.Unavailable):
			return folded, false, errors.Join(append(faults, err)...)
		case err != nil:
			failed, faults = append(failed, tenant), append(faults, err)
		case tenant == uuid.Nil:
			return folded, false, errors.Join(faults...)
		default:
			folded++
		}
		if begin.Elapsed() >= foldBudget {
			return folded, true, errors.Join(faults...)
		}
	}
	return folded, false, errors.Join(faults...)
}

// Passes is what a process that collects does again and again.
func (c *Collector) Passes() []loop.Pass {
	return []loop.Pass{
		// Called for each half minute, and twice as often while something ends.
		{Name: lease.Metrics, Every: loop.Uncalled, Apart: Every / 2, Leased: true, Do: func(ctx context.Context, turn *loop.Turn) error {
			_, err := c.Pass(ctx, turn.Lease)
			if err == nil && c.Waiting() {
				turn.Again(loop.Soon)
			}
			return err
		}},
		{Name: lease.Fold1, Every: Every, Leased: true, Do: c.fold},
		{Name: lease.Fold2, Every: Every, Leased: true, Do: c.fold},
	}
}

func (c *Collector) fold(ctx context.Context, turn *loop.Turn) error {
	folded, more, err := c.Fold(ctx, time.Time{})
	switch {
	case more:
		turn.Again(loop.Soon)
	case folded == 0 && err == nil:
		turn.Again(foldIdle)
	}
	return err
}
