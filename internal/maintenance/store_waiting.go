package maintenance

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

func (s *store) countWaiting(ctx context.Context, c waitingCount, most tenant.Backlog) (after uuid.UUID, err error) {
	least := int64(countFrom)
	for _, bound := range []int{most.Max, most.MaxPerJob} {
		if bound > 0 {
			least = min(least, int64(bound))
		}
	}
	after, err = s.queries().CountWaiting(ctx, db.CountWaitingParams{After: c.after, Tenants: c.tenants, AtLeast: least})
	if err != nil {
		return c.after, fmt.Errorf("count what waits: %w", postgres.Fault(err))
	}
	return after, nil
}
