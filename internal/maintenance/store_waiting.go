package maintenance

import (
	"context"
	"fmt"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// countLeast is how many must wait for a number to be kept, where the tenant has no
// limit of its own.
func countLeast(most tenant.Backlog) int64 {
	least := int64(countFrom)
	for _, bound := range []int{most.Max, most.MaxPerJob} {
		if bound > 0 {
			least = min(least, int64(bound))
		}
	}
	return least
}

// countNextWaiting counts what waits among the next rows, most of them at once.
func (s *store) countNextWaiting(ctx context.Context, after rowPlace, most int32) (page, error) {
	r, err := s.queries().CountNextWaiting(ctx, db.CountNextWaitingParams{
		Within: after.within, AfterTenant: after.tenant, AfterAt: after.at, AfterID: after.id, Most: most,
	})
	if err != nil {
		return page{}, fmt.Errorf("count what waits: %w", postgres.Fault(err))
	}
	counted := page{jobs: make([]waitingJob, len(r.JobIds)), last: rowPlace{tenant: r.LastTenant, at: r.LastAt, id: r.LastID}}
	for i := range counted.jobs {
		counted.jobs[i] = waitingJob{numberKey{r.TenantIds[i], r.JobIds[i]}, r.Waiting[i], int64(r.Own[i])}
	}
	// Fewer rows than asked for are the last ones of the tenant, or of all.
	full := r.RowsRead == most
	counted.last.within, counted.all = full, !full && !after.within
	return counted, nil
}

// keepWaiting keeps numbers, which are all that are to be kept from one key up to but
// without another, and are in order.
func (s *store) keepWaiting(ctx context.Context, from, until numberKey, numbers []number) error {
	for from != until {
		some, next := numbers, until
		if len(some) > keepNumbers {
			some, next = some[:keepNumbers], some[keepNumbers].of
		}
		p := db.KeepWaitingParams{FromTenant: from.tenant, FromJob: from.job, UntilTenant: next.tenant, UntilJob: next.job}
		for _, n := range some {
			p.TenantIds, p.JobIds, p.Waiting = append(p.TenantIds, n.of.tenant), append(p.JobIds, n.of.job), append(p.Waiting, n.waiting)
		}
		if err := s.queries().KeepWaiting(ctx, p); err != nil {
			return fmt.Errorf("keep the numbers of what waits: %w", postgres.Fault(err))
		}
		from, numbers = next, numbers[len(some):]
	}
	return nil
}
