package promoter

import (
	"bytes"
	"context"
	"fmt"
	"slices"
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
}

// dailyBounds reads the bounds, every two seconds at most.
func (s *store) dailyBounds(ctx context.Context) (map[uuid.UUID]int, error) {
	s.bounds.mu.Lock()
	defer s.bounds.mu.Unlock()
	if s.bounds.known && s.bounds.at.Elapsed() < boundsAge {
		return s.bounds.of, nil
	}
	rows, err := s.queries().ListDailyBounds(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the bounds on executions: %w", err)
	}
	s.bounds.of = make(map[uuid.UUID]int, len(rows))
	for _, r := range rows {
		s.bounds.of[r.ID] = int(r.Bound)
	}
	s.bounds.known, s.bounds.at = true, clock.Start()
	return s.bounds.of, nil
}

// countDaily counts what a plan makes for tenants with a bound on a day's
// executions, and cuts what is beyond it. It locks the counters in the order
// of tenants, so that promoters do not wait for one another in a circle.
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
	tenants := make([]uuid.UUID, 0, len(added))
	for id := range added {
		tenants = append(tenants, id)
	}
	slices.SortFunc(tenants, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	for _, id := range tenants {
		total, err := tx.CountExecutions(ctx, db.CountExecutionsParams{TenantID: id, At: at, Added: int32(added[id])})
		if err != nil {
			return fmt.Errorf("count the executions of the day: %w", err)
		}
		made.roundTrips++
		if over := int(total) - of[id]; over > 0 {
			made.cut(id, min(over, added[id]))
		}
	}
	return nil
}

func (s *store) holdJobs(ctx context.Context) (int, error) {
	n, err := s.queries().HoldJobs(ctx)
	if err != nil {
		return 0, fmt.Errorf("pause the jobs of suspended tenants: %w", postgres.Fault(err))
	}
	return int(n), nil
}

func (s *store) freeJobs(ctx context.Context) (int, error) {
	n, err := s.queries().FreeJobs(ctx)
	if err != nil {
		return 0, fmt.Errorf("resume the jobs of tenants: %w", postgres.Fault(err))
	}
	return int(n), nil
}

// cancelHeld ends what waits of tenants that may not act and asks what runs to
// end, job by job.
func (s *store) cancelHeld(ctx context.Context) (int, error) {
	jobs, err := s.queries().ListHeldExecutionsOfTenants(ctx)
	if err != nil {
		return 0, fmt.Errorf("list the executions of suspended tenants: %w", postgres.Fault(err))
	}
	for _, j := range jobs {
		err := s.db.InTx(ctx, func(tx *postgres.Tx) error {
			const reason, by = "the tenant is suspended", "platform"
			_, err := tx.CancelWaitingByJob(ctx, db.CancelWaitingByJobParams{TenantID: j.TenantID, JobID: j.JobID, Now: tx.At, Reason: reason, CancelledBy: by})
			if err != nil {
				return fmt.Errorf("cancel waiting executions: %w", err)
			}
			running := db.RequestCancelByJobParams{TenantID: j.TenantID, JobID: j.JobID, Now: tx.At, Reason: reason, CancelledBy: by}
			if _, err := tx.RequestCancelByJob(ctx, running); err != nil {
				return fmt.Errorf("cancel running executions: %w", err)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	return len(jobs), nil
}

// purge removes a piece of each tenant that is being deleted and of which
// nothing runs, and says of how many nothing was left.
func (s *store) purge(ctx context.Context) (purged int, err error) {
	ids, err := s.queries().ListDeletingTenants(ctx)
	if err != nil {
		return 0, fmt.Errorf("list deleted tenants: %w", postgres.Fault(err))
	}
	for _, id := range ids {
		active, err := s.queries().CountActiveOfTenant(ctx, id)
		if err != nil {
			return purged, fmt.Errorf("count active executions: %w", postgres.Fault(err))
		}
		if active > 0 {
			continue // they are asked to end; the next pass looks again
		}
		left, err := s.purgeSome(ctx, id)
		if err != nil {
			return purged, fmt.Errorf("purge tenant %s: %w", id, postgres.Fault(err))
		}
		if left {
			continue
		}
		n, err := s.queries().PurgeTenant(ctx, id)
		if err != nil {
			return purged, fmt.Errorf("purge tenant %s: %w", id, postgres.Fault(err))
		}
		purged += int(n)
	}
	return purged, nil
}

// purgePieces is how many pieces of one tenant a pass removes.
const purgePieces = 20

// purgeSome removes rows, each statement a bounded number, and says whether
// there may be more.
func (s *store) purgeSome(ctx context.Context, id uuid.UUID) (left bool, err error) {
	q, pieces := s.queries(), 0
	for _, purge := range []func(context.Context, uuid.UUID) (int64, error){
		q.PurgeHistory, q.PurgeJobs, q.PurgeIdempotencyKeys, q.PurgeCalendars, q.PurgeSecrets, q.PurgeApiKeys, q.PurgeExecutionDays,
		q.PurgeJobCounts,
	} {
		for {
			n, err := purge(ctx, id)
			if err != nil {
				return true, err
			}
			if n == 0 {
				break
			}
			if pieces++; pieces >= purgePieces {
				return true, nil
			}
		}
	}
	return false, nil
}
