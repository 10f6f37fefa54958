package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Claim claims what it can of the executions: first those that wait for a worker
// alone, in one round trip; then, of what is left, those that wait for a concurrency
// slot or have a concurrency key. It pools what this worker leaves to others and what
// a limit of its tenant left behind: other workers find it there, and so
// does the search for the next execution.
func (s *Store) Claim(ctx context.Context, worker, token uuid.UUID, ids []uuid.UUID) ([]Claimed, error) {
	q := s.queries()
	out, err := claimReady(ctx, q, db.ClaimExecutionsParams{WorkerID: &worker, LeaseToken: &token, Ids: ids, LeftTypes: s.leftTypes, MaxRunning: s.maxRunning()})
	if err != nil || len(out) == len(ids) {
		return out, err
	}
	left, err := q.ListUnclaimedExecutions(ctx, db.ListUnclaimedExecutionsParams{Ids: ids, LeftTypes: s.leftTypes})
	if err != nil {
		return nil, fmt.Errorf("list executions that were not claimed: %w", postgres.Fault(err))
	}
	jobs, limited, unpooled := sortUnclaimed(left)
	if len(unpooled) > 0 {
		if err := s.Pool(ctx, unpooled); err != nil {
			return nil, err
		}
	}
	if !limited {
		return out, nil
	}
	more, err := s.claimLimited(ctx, jobs, db.ClaimLimitedExecutionsParams{
		WorkerID: &worker, LeaseToken: &token, Ids: ids, LeftTypes: s.leftTypes, MaxRunning: s.maxRunning(),
	})
	return append(out, more...), err
}

// claimReady claims those that wait for a worker alone.
func claimReady(ctx context.Context, q *db.Queries, p db.ClaimExecutionsParams) ([]Claimed, error) {
	rows, err := q.ClaimExecutions(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("claim executions: %w", postgres.Fault(err))
	}
	out := make([]Claimed, len(rows))
	for i, r := range rows {
		out[i] = fromClaim(r)
	}
	return out, nil
}

// sortUnclaimed returns the jobs whose executions need a slot, whether anything waits
// for a slot or has a key, and what nobody polls yet. An execution that has its slot
// and waits for its key alone needs no lock of its job.
func sortUnclaimed(left []db.ListUnclaimedExecutionsRow) (jobs []uuid.UUID, limited bool, unpooled []uuid.UUID) {
	for _, r := range left {
		switch {
		case !r.Limited:
			unpooled = append(unpooled, r.ID)
			continue
		case r.NeedsSlot && (len(jobs) == 0 || jobs[len(jobs)-1] != r.JobID): // they come in the order of their jobs
			jobs = append(jobs, r.JobID)
		}
		limited = true
	}
	return jobs, limited, unpooled
}

// claimLimited claims those that wait for a slot or have a key.
func (s *Store) claimLimited(ctx context.Context, jobs []uuid.UUID, p db.ClaimLimitedExecutionsParams) (out []Claimed, err error) {
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		out, err = claimLocked(ctx, tx, jobs, p)
		return err
	})
	return out, err
}

// claimLocked locks the jobs, then counts their slots: two statements, because
// one would count on the snapshot from before the lock and admit too many.
func claimLocked(ctx context.Context, tx *postgres.Tx, jobs []uuid.UUID, p db.ClaimLimitedExecutionsParams) (out []Claimed, err error) {
	if len(jobs) > 0 {
		if err := tx.LockJobs(ctx, jobs); err != nil {
			return nil, fmt.Errorf("lock jobs: %w", err)
		}
	}
	rows, err := tx.ClaimLimitedExecutions(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("claim executions that wait for a slot or key: %w", err)
	}
	for _, r := range rows {
		out = append(out, fromClaim(db.ClaimExecutionsRow(r)))
	}
	return out, nil
}

func fromClaim(r db.ClaimExecutionsRow) Claimed {
	return Claimed{
		ID: r.ID, Tenant: r.TenantID, Job: r.JobID, Version: int(r.JobVersion), ScheduledAt: r.ScheduledAt.UTC(),
		AvailableAt: r.DueAt.UTC(), Trigger: r.TriggerType, JobType: r.JobType, Priority: int(r.Priority), Parameters: r.Parameters,
		Attempt: int(r.Attempt), MaxAttempts: int(r.MaxAttempts), Token: *r.LeaseToken,
		Timeout: time.Duration(r.TimeoutMs) * time.Millisecond, StartedAt: r.StartedAt.UTC(), ClaimedAt: r.ClaimedAt.UTC(),
	}
}
