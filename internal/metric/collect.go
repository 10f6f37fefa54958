package metric

import (
	"context"
	"time"

	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

const (
	// Every is the distance of two snapshots. They stand on the clock's half
	// minutes, so whoever takes one, and however often, there is one for each.
	Every = 30 * time.Second
	// lag is how far counting stays behind now: an outcome bears the instant at
	// which its transaction began, and the longest may take a statement's time-out
	// several times.
	lag = 15 * time.Second
	// stretch bounds what one transaction counts, and maxStretches how many a pass
	// does: after an outage of the promoters it catches up with two days at once.
	stretch      = time.Hour
	maxStretches = 48
)

// Collector counts.
type Collector struct{ store store }

// NewCollector makes one that acts as postgres.Engine.
func NewCollector(db *postgres.DB) *Collector { return &Collector{store: store{db: db}} }

// Pass counts the outcomes since the last one and takes the numbers of this half
// minute, and says whether it did; it does nothing where somebody has taken them
// already. It is fenced by the lease.
func (c *Collector) Pass(ctx context.Context, held lease.Lease) (taken bool, err error) {
	for range maxStretches {
		done, taken, err := c.store.advance(ctx, held)
		if err != nil || done {
			return taken, err
		}
	}
	return false, nil
}
