package job

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// CancelAtOnce is how many executions of a job are cancelled in the request that
// asks for it. Of a job with more, the request leaves an order behind, which
// every claim obeys at once, and promoters cancel them in pieces.
const CancelAtOnce = 1000

// Stop makes a job inactive, cancels what waits of it, asks what runs to end
// and ends its backfills, in one step: once it returned, no promotion and no
// backfill makes a run of it, and nothing that it has starts. One that is inactive
// already keeps its reason. An empty reason is "stopped".
func (s *Store) Stop(ctx context.Context, who tenant.Actor, id uuid.UUID, reason string) (job Job, err error) {
	reason = cmp.Or(reason, "stopped")
	err = s.change(ctx, who, id, func(tx *postgres.Tx, old Job) (db.ScheduledJob, error) {
		_, err := tx.CancelBackfillsByJob(ctx, db.CancelBackfillsByJobParams{TenantID: who.TenantID, JobID: id, Now: tx.At})
		if err != nil {
			return db.ScheduledJob{}, fmt.Errorf("cancel the job's backfills: %w", err)
		}
		if err := cancelAll(ctx, tx, who, id, reason); err != nil {
			return db.ScheduledJob{}, err
		}
		if old.Status == Inactive && !old.Parked() {
			return tx.GetJob(ctx, db.GetJobParams{TenantID: who.TenantID, ID: id})
		}
		return tx.UpdateJobStatus(ctx, db.UpdateJobStatusParams{
			TenantID: who.TenantID, ID: id, Status: string(Inactive), StatusReason: reason, StatusBy: who.Subject, Now: tx.At,
		})
	}, &job)
	return job, err
}

// cancelAll ends what waits of a job whose row is held locked, and asks what
// runs to end, or orders both where they are many. The order of the two
// statements matters: the first locks all of them, so the second finds what the
// first saw running.
func cancelAll(ctx context.Context, tx *postgres.Tx, who tenant.Actor, id uuid.UUID, reason string) error {
	n, err := tx.CountExecutionsOfJob(ctx, db.CountExecutionsOfJobParams{TenantID: who.TenantID, JobID: id, Most: CancelAtOnce + 1})
	if err != nil {
		return fmt.Errorf("count executions: %w", err)
	}
	if n > CancelAtOnce {
		order := db.OrderCancellationParams{TenantID: who.TenantID, JobID: id, Now: tx.At, Reason: reason, CancelledBy: who.Subject}
		if err := tx.OrderCancellation(ctx, order); err != nil {
			return fmt.Errorf("order executions to be cancelled: %w", err)
		}
		return nil
	}
	waiting := db.CancelWaitingByJobParams{TenantID: who.TenantID, JobID: id, Now: tx.At, Reason: reason, CancelledBy: who.Subject}
	if _, err := tx.CancelWaitingByJob(ctx, waiting); err != nil {
		return fmt.Errorf("cancel waiting executions: %w", err)
	}
	running := db.RequestCancelByJobParams{TenantID: who.TenantID, JobID: id, Now: tx.At, Reason: reason, CancelledBy: who.Subject}
	if _, err := tx.RequestCancelByJob(ctx, running); err != nil {
		return fmt.Errorf("cancel running executions: %w", err)
	}
	return nil
}

// cancellingMost bounds what is counted of what is being cancelled.
const cancellingMost = 10_000

// shown is a job with how far the cancelling of its executions is, which is asked
// of a job only that was ever ended with many.
func shown(ctx context.Context, tx *postgres.Tx, row db.ScheduledJob) (Job, error) {
	j, err := fromRow(row)
	if err != nil || row.Generation == 0 {
		return j, err
	}
	c, err := tx.GetCancellation(ctx, db.GetCancellationParams{TenantID: row.TenantID, JobID: row.ID, Most: cancellingMost})
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return j, nil
	}
	if err != nil {
		return Job{}, fmt.Errorf("read how far the cancelling is: %w", err)
	}
	j.Cancelling = &cancelling{RequestedAt: c.RequestedAt.UTC(), Remaining: int(c.Remaining)}
	return j, nil
}
