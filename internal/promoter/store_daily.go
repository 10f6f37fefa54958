package promoter

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// boundsAge is how old the bounds on executions may be that promotion counts
// by.
const boundsAge = 2 * time.Second

// bounds are the executions a day that tenants may have, as they were a moment
// ago. Most have no bound, and for them nothing is counted.
type bounds struct {
	mu    sync.Mutex
	known bool
	at    clock.Mark
	of    map[uuid.UUID]int
	full  backlogs // where as many wait as may
}

// executionBounds reads the bounds and what is full, every two seconds at most.
func (s *store) executionBounds(ctx context.Context) (of map[uuid.UUID]int, full backlogs, err error) {
	s.bounds.mu.Lock()
	defer s.bounds.mu.Unlock()
	if s.bounds.known && s.bounds.at.Elapsed() < boundsAge {
		return s.bounds.of, s.bounds.full, nil
	}
	rows, err := s.queries().ListDailyBounds(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list the bounds on executions: %w", err)
	}
	if s.bounds.full, err = s.fullBacklogs(ctx, s.backlog); err != nil {
		return nil, nil, err
	}
	s.bounds.of = make(map[uuid.UUID]int, len(rows))
	for _, r := range rows {
		s.bounds.of[r.ID] = int(r.Bound)
	}
	s.bounds.known, s.bounds.at = true, clock.Start()
	return s.bounds.of, s.bounds.full, nil
}

// takeDaily counts executions for tenants with a bound on those of a day, and
// says how many of each are beyond it; only the others stay counted.
func takeDaily(ctx context.Context, tx *postgres.Tx, added, of map[uuid.UUID]int, at time.Time) (over map[uuid.UUID]int, err error) {
	if len(added) == 0 {
		return nil, nil
	}
	count := db.CountExecutionsByTenantsParams{At: at}
	for tenant, n := range added {
		count.TenantIds, count.Added = append(count.TenantIds, tenant), append(count.Added, int32(n))
	}
	totals, err := tx.CountExecutionsByTenants(ctx, count)
	if err != nil {
		return nil, fmt.Errorf("count the executions of the day: %w", err)
	}
	over = map[uuid.UUID]int{}
	var back db.ReturnExecutionsByTenantsParams
	for _, total := range totals {
		id := total.TenantID
		if beyond := min(int(total.Executions)-of[id], added[id]); beyond > 0 {
			over[id] = beyond
			back.TenantIds, back.Unused = append(back.TenantIds, id), append(back.Unused, int32(beyond))
		}
	}
	if len(over) == 0 {
		return over, nil
	}
	if err := tx.ReturnExecutionsByTenants(ctx, back); err != nil {
		return nil, fmt.Errorf("count the executions of the day: %w", err)
	}
	return over, nil
}

// countDaily counts what a plan makes, and cuts what is beyond the day's bound.
func countDaily(ctx context.Context, tx *postgres.Tx, made *plan, of map[uuid.UUID]int, at time.Time) error {
	if len(of) == 0 {
		return nil
	}
	added := map[uuid.UUID]int{}
	for _, r := range made.runs {
		if _, ok := of[r.job.tenant]; ok {
			added[r.job.tenant]++
		}
	}
	over, err := takeDaily(ctx, tx, added, of, at)
	if err != nil {
		return err
	}
	if len(over) > 0 {
		made.cut(func(r run) string {
			if over[r.job.tenant] == 0 {
				return ""
			}
			over[r.job.tenant]--
			return dailyLimitMet
		})
	}
	return nil
}

// countDailySteps counts what backfills make, and leaves for later what is
// beyond the day's bound.
func countDailySteps(ctx context.Context, tx *postgres.Tx, steps []backfillStep, of map[uuid.UUID]int, at time.Time) error {
	if len(of) == 0 {
		return nil
	}
	added := map[uuid.UUID]int{}
	for _, s := range steps {
		if _, ok := of[s.job.tenant]; ok && len(s.times) > 0 {
			added[s.job.tenant] += len(s.times)
		}
	}
	over, err := takeDaily(ctx, tx, added, of, at)
	if err != nil {
		return err
	}
	for i := len(steps) - 1; i >= 0; i-- {
		id := steps[i].job.tenant
		if n := min(over[id], len(steps[i].times)); n > 0 {
			steps[i].hold(n, "maxExecutionsPerDay", nextDay(at))
			over[id] -= n
		}
	}
	return nil
}
