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

// Stop makes a job inactive, cancels what waits of it, asks what runs to end
// and ends its backfills, in one step: once it returned, no promotion and no
// backfill makes a run of it, and nothing that it has starts. One that is inactive
// already keeps its reason. An empty reason is "stopped".
func (s *Store) Stop(ctx context.Context, who tenant.Actor, id uuid.UUID, reason string) (job Job, err error) {
	reason = cmp.Or(reason, "stopped")
	err = s.change(ctx, who, id, func(tx *postgres.Tx, old Job) (db.ScheduledJob, error) {
		if err := endRuns(ctx, tx, who, []uuid.UUID{id}, reason); err != nil {
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

// cancellingMost bounds what is counted of what is being cancelled.
const cancellingMost = 10_000

// shown is a job with how far the cancelling of its executions is, which is asked
// of a job only that was ever ended with many.
func shown(ctx context.Context, tx *postgres.Tx, row db.ScheduledJob) (Job, error) {
	j, err := fromRow(&row)
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
