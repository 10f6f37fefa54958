package maintenance

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// targets are what is to be cancelled in pieces: orders, the oldest of each job,
// and suspended tenants. One list that cannot be read leaves the other.
func (s *store) targets(ctx context.Context) (targets []target, errs []error) {
	orders, err := s.queries().ListCancellations(ctx, cancelBatch)
	if err != nil {
		errs = append(errs, fmt.Errorf("list what is to be cancelled: %w", postgres.Fault(err)))
	}
	for _, o := range orders {
		targets = append(targets, target{
			tenant: o.TenantID, job: o.JobID, generation: o.Generation, spare: o.SpareBackfills, reason: o.Reason, by: o.CancelledBy,
		})
	}
	ids, err := s.queries().ListSuspendedTenants(ctx, cancelBatch)
	if err != nil {
		errs = append(errs, fmt.Errorf("list suspended tenants: %w", postgres.Fault(err)))
	}
	for _, id := range ids {
		targets = append(targets, target{tenant: id, reason: "the tenant is suspended", by: "platform"})
	}
	return targets, errs
}

// cancelPiece cancels up to at.size executions behind at.after, and answers how
// many they were and the place of the last. The error is the driver's own.
func (s *store) cancelPiece(ctx context.Context, t target, at progress) (n int, last place, err error) {
	var row db.CancelPieceOfJobRow
	if t.job == uuid.Nil {
		var of db.CancelPieceOfTenantRow
		of, err = s.queries().CancelPieceOfTenant(ctx, db.CancelPieceOfTenantParams{
			TenantID: t.tenant, AfterAt: at.after.at, AfterID: at.after.id, PieceSize: at.size, Reason: t.reason, CancelledBy: t.by,
		})
		row = db.CancelPieceOfJobRow(of)
	} else {
		row, err = s.queries().CancelPieceOfJob(ctx, db.CancelPieceOfJobParams{
			TenantID: t.tenant, JobID: t.job, Generation: t.generation, SpareBackfills: t.spare,
			AfterAt: at.after.at, AfterID: at.after.id, PieceSize: at.size, Reason: t.reason, CancelledBy: t.by,
		})
	}
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return 0, place{}, nil
	}
	if err != nil {
		return 0, place{}, fmt.Errorf("cancel a piece of %d executions: %w", at.size, err)
	}
	return int(row.Executions), place{row.ScheduledAt, row.ID}, nil
}

// nextPlace is the place of the next execution to cancel; the last place where
// there is none.
func (s *store) nextPlace(ctx context.Context, t target, at progress) (place, error) {
	var row db.FindPieceOfJobRow
	var err error
	if t.job == uuid.Nil {
		var of db.FindPieceOfTenantRow
		of, err = s.queries().FindPieceOfTenant(ctx, db.FindPieceOfTenantParams{TenantID: t.tenant, AfterAt: at.after.at, AfterID: at.after.id})
		row = db.FindPieceOfJobRow(of)
	} else {
		row, err = s.queries().FindPieceOfJob(ctx, db.FindPieceOfJobParams{
			TenantID: t.tenant, JobID: t.job, Generation: t.generation, SpareBackfills: t.spare, AfterAt: at.after.at, AfterID: at.after.id,
		})
	}
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return at.after, nil
	}
	if err != nil {
		return at.after, fmt.Errorf("find the execution that cannot be cancelled: %w", postgres.Fault(err))
	}
	return place{row.ScheduledAt, row.ID}, nil
}

// parkWaiting parks an execution that waits and whose end is refused.
func (s *store) parkWaiting(ctx context.Context, t target, id uuid.UUID, why error) error {
	err := s.queries().ParkWaitingExecution(ctx, db.ParkWaitingExecutionParams{
		TenantID: t.tenant, ID: id, Reason: t.reason, CancelledBy: t.by,
		Why: fmt.Sprintf("the execution is cancelled and its end could not be stored: %.500s. It is kept and tried again by itself", postgres.Why(why)),
	})
	if err != nil {
		return fmt.Errorf("park an execution: %w", postgres.Fault(err))
	}
	return nil
}

// closeOrder deletes an order of which nothing is left to do.
func (s *store) closeOrder(ctx context.Context, t target) error {
	if t.job == uuid.Nil {
		return nil
	}
	_, err := s.queries().CloseCancellation(ctx, db.CloseCancellationParams{TenantID: t.tenant, JobID: t.job, Generation: t.generation})
	if err != nil {
		return fmt.Errorf("close an order to cancel: %w", postgres.Fault(err))
	}
	return nil
}
