package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// claim takes what it can of the wishes: first what has its place, in one
// round trip; then, of what is left, the runs that wait for a place of their
// job or have a concurrency key. What this worker does not run goes to the pool,
// where those that do find it, and so does what a limit of its tenant left behind:
// whatever ends looks for the next there.
func (s *store) claim(ctx context.Context, worker, token uuid.UUID, ids []uuid.UUID) ([]claimed, error) {
	q := db.New(s.db.Pool())
	rows, err := q.ClaimExecutions(ctx, db.ClaimExecutionsParams{WorkerID: &worker, LeaseToken: &token, Ids: ids, JobTypes: s.types, MaxRunning: s.maxRunning})
	if err != nil {
		return nil, fmt.Errorf("claim executions: %w", postgres.Fault(err))
	}
	out := make([]claimed, len(rows))
	for i, r := range rows {
		out[i] = fromClaim(r)
	}
	if len(rows) == len(ids) {
		return out, nil
	}
	left, err := q.ListLeftExecutions(ctx, db.ListLeftExecutionsParams{Ids: ids, JobTypes: s.types})
	if err != nil {
		return nil, fmt.Errorf("list what a claim left: %w", postgres.Fault(err))
	}
	jobs, bound, unpooled := sortLeft(left)
	if len(unpooled) > 0 {
		if err := s.pool(ctx, unpooled); err != nil {
			return nil, err
		}
	}
	if !bound {
		return out, nil
	}
	gated, err := s.claimGated(ctx, jobs, db.ClaimGatedExecutionsParams{
		WorkerID: &worker, LeaseToken: &token, Ids: ids, JobTypes: s.types, MaxRunning: s.maxRunning,
	})
	return append(out, gated...), err
}

// sortLeft answers of which jobs runs wait for a place, whether something waits
// for a place or a key, and what nobody looks for yet. What has its place and
// waits for its key alone needs no lock of its job.
func sortLeft(left []db.ListLeftExecutionsRow) (jobs []uuid.UUID, bound bool, unpooled []uuid.UUID) {
	for _, r := range left {
		switch {
		case r.Unpooled:
			unpooled = append(unpooled, r.ID)
			continue
		case r.Gated && (len(jobs) == 0 || jobs[len(jobs)-1] != r.JobID): // they come in the order of their jobs
			jobs = append(jobs, r.JobID)
		}
		bound = true
	}
	return jobs, bound, unpooled
}

// claimGated locks the jobs, then counts their places: two statements, because
// one would count on the snapshot from before the lock and admit too many.
func (s *store) claimGated(ctx context.Context, jobs []uuid.UUID, p db.ClaimGatedExecutionsParams) (out []claimed, err error) {
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		if len(jobs) > 0 {
			if err := tx.LockJobs(ctx, jobs); err != nil {
				return fmt.Errorf("lock jobs: %w", err)
			}
		}
		rows, err := tx.ClaimGatedExecutions(ctx, p)
		if err != nil {
			return fmt.Errorf("claim executions that wait for a place: %w", err)
		}
		for _, r := range rows {
			out = append(out, fromClaim(db.ClaimExecutionsRow(r)))
		}
		return nil
	})
	return out, err
}

func fromClaim(r db.ClaimExecutionsRow) claimed {
	return claimed{
		id: r.ID, tenant: r.TenantID, job: r.JobID, version: int(r.JobVersion), scheduledAt: r.ScheduledAt.UTC(),
		availableAt: r.DueAt.UTC(), trigger: r.TriggerType, jobType: r.JobType, priority: int(r.Priority), parameters: r.Parameters,
		attempt: int(r.Attempt), maxAttempts: int(r.MaxAttempts), token: *r.LeaseToken,
		timeout: time.Duration(r.TimeoutMs) * time.Millisecond, claimedAt: r.ClaimedAt.UTC(),
	}
}
