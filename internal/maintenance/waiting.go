package maintenance

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
)

const (
	// countBudget is how long a pass counts, each second: a fifth of one
	// connection, whatever waits. So 500,000 waiting executions are counted each
	// second, and of 10 million a number is 20 s old.
	countBudget = 200 * time.Millisecond
	// countFrom is how many must wait for a number to be kept.
	countFrom = 500
	// countTenants is how many tenants one statement counts, at most; fewer where
	// that takes long.
	countTenants = 64
)

// waitingCount is where the counting is.
type waitingCount struct {
	after   uuid.UUID
	tenants int32
}

// CountWaiting goes on counting what waits, of tenants and jobs that have much,
// for a fifth of a second at most: admissions compare the numbers with the limits.
// One process at a time does so. It says whether all tenants were counted.
func (m *Maintainer) CountWaiting(ctx context.Context) (all bool, err error) {
	c := &m.counting
	for began := clock.Start(); began.Elapsed() < countBudget; {
		mark := clock.Start()
		if c.after, err = m.store.countWaiting(ctx, *c, m.c.Backlog()); err != nil {
			c.tenants = max(1, c.tenants/2)
			return false, err
		}
		switch took := mark.Elapsed(); {
		case took > countBudget:
			c.tenants = max(1, c.tenants/2)
		case took < countBudget/8:
			c.tenants = min(countTenants, 2*c.tenants)
		}
		if c.after == uuid.Nil {
			return true, nil
		}
	}
	return false, nil
}
