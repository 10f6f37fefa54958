package promoter

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

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
		q.PurgeHistory, q.PurgeRollups, q.PurgeJobs, q.PurgeIdempotencyKeys, q.PurgeCalendars, q.PurgeSecrets, q.PurgeApiKeys, q.PurgeExecutionDays,
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
