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
	if s.bounds.full, err = s.fullBacklogs(ctx, s.backlog()); err != nil {
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
// says how many of each are beyond it; only the others stay counted. Unless it waits, nothing
// is counted for tenants whose count is busy: another transaction has locked it.
func takeDaily(ctx context.Context, tx *postgres.Tx, added, of map[uuid.UUID]int, at time.Time, waits bool) (over map[uuid.UUID]int, busy map[uuid.UUID]bool, err error) {
	totals, err := countToday(ctx, tx, added, at, waits)
	if err != nil {
		return nil, nil, err
	}
	over, busy = map[uuid.UUID]int{}, map[uuid.UUID]bool{}
	for id := range added {
		total, counted := totals[id]
		if !counted {
			busy[id] = true
		} else if beyond := min(total-of[id], added[id]); beyond > 0 {
			over[id] = beyond
		}
	}
	return over, busy, returnToday(ctx, tx, over)
}

// countToday counts executions, and says how many each tenant has had today with them. Unless
// it waits, it passes over tenants whose count another transaction has locked.
func countToday(ctx context.Context, tx *postgres.Tx, added map[uuid.UUID]int, at time.Time, waits bool) (totals map[uuid.UUID]int, err error) {
	if len(added) == 0 {
		return nil, nil
	}
	count := db.CountExecutionsByTenantsParams{At: at, Waits: waits}
	for tenant, n := range added {
		count.TenantIds, count.Added = append(count.TenantIds, tenant), append(count.Added, int32(n))
	}
	rows, err := tx.CountExecutionsByTenants(ctx, count)
	if err != nil {
		return nil, fmt.Errorf("count the executions of the day: %w", err)
	}
	totals = make(map[uuid.UUID]int, len(rows))
	for _, r := range rows {
		totals[r.TenantID] = int(r.Executions)
	}
	return totals, nil
}

// returnToday takes back what countToday counted and nobody made.
func returnToday(ctx context.Context, tx *postgres.Tx, unused map[uuid.UUID]int) error {
	if len(unused) == 0 {
		return nil
	}
	var back db.ReturnExecutionsByTenantsParams
	for id, n := range unused {
		back.TenantIds, back.Unused = append(back.TenantIds, id), append(back.Unused, int32(n))
	}
	if err := tx.ReturnExecutionsByTenants(ctx, back); err != nil {
		return fmt.Errorf("count the executions of the day: %w", err)
	}
	return nil
}

// countDaily counts what a plan makes, and cuts what is beyond the day's bound. A plan that waits
// for no lock leaves out the tenants whose count is busy. A transaction that runs a job of such a
// tenant now has it locked until its commit, and the jobs of all tenants would wait for that.
func countDaily(ctx context.Context, tx *postgres.Tx, made *plan, of map[uuid.UUID]int, at time.Time, waits bool) error {
	if len(of) == 0 {
		return nil
	}
	added := map[uuid.UUID]int{}
	for _, r := range made.runs {
		if _, ok := of[r.job.tenant]; ok {
			added[r.job.tenant]++
		}
	}
	over, busy, err := takeDaily(ctx, tx, added, of, at, waits)
	if err != nil {
		return err
	}
	if len(busy) > 0 {
		made.leave(busy)
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
// beyond their share of the day's bound.
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
	made, err := countToday(ctx, tx, added, at, true)
	if err != nil {
		return err
	}
	for id, n := range added {
		made[id] -= n
	}
	unused := map[uuid.UUID]int{}
	for i := range steps {
		s := &steps[i]
		id, wanted := s.job.tenant, len(s.times)
		if added[id] == 0 || wanted == 0 {
			continue
		}
		most, by := of[id], "maxExecutionsPerDay"
		if share := (of[id]*s.share + 99) / 100; share < most {
			most, by = share, "dailyShare"
		}
		if over := min(wanted, made[id]+wanted-most); over > 0 {
			s.hold(over, by, nextDay(at))
			unused[id] += over
		}
		made[id] += len(s.times)
	}
	return returnToday(ctx, tx, unused)
}
