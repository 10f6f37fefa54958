package dispatch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Claim claims what it can of the executions: first those that wait for a worker
// alone, in one round trip; then, of what is left, those that wait for a concurrency
// slot or have a concurrency key. It pools what this worker leaves to others and what
// a limit of its tenant left behind: other workers find it there, and so
// does the search for the next execution. Held are executions that it did not try,
// because somebody else holds their job locked: a claim soon after may find it free.
// ForOthers says that it pooled some that this worker leaves to others, so they should be called.
// They are not called for what a limit left behind: the worker that makes room under the limit polls for it,
// and a call makes the whole fleet ask for what nobody may run.
func (s *Store) Claim(ctx context.Context, worker, token uuid.UUID, ids []uuid.UUID) (won []Claimed, held []uuid.UUID, forOthers bool, err error) {
	q := s.queries()
	won, err = claimReady(ctx, q, db.ClaimExecutionsParams{WorkerID: &worker, LeaseToken: &token, Ids: ids, LeftTypes: s.leftTypes, MaxRunning: s.maxRunning()})
	if err != nil || len(won) == len(ids) {
		return won, nil, false, err
	}
	left, err := q.ListUnclaimedExecutions(ctx, db.ListUnclaimedExecutionsParams{Ids: ids, LeftTypes: s.leftTypes})
	if err != nil {
		return nil, nil, false, fmt.Errorf("list executions that were not claimed: %w", postgres.Fault(err))
	}
	limited, unpooled, forOthers := sortUnclaimed(left)
	if len(unpooled) > 0 {
		if err := s.Pool(ctx, unpooled); err != nil {
			return nil, nil, false, err
		}
	}
	if len(limited.ids) == 0 {
		return won, nil, forOthers, nil
	}
	more, held, err := s.claimLimited(ctx, limited, db.ClaimLimitedExecutionsParams{
		WorkerID: &worker, LeaseToken: &token, LeftTypes: s.leftTypes, MaxRunning: s.maxRunning(),
	})
	return append(won, more...), held, forOthers, err
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

// limited are executions that wait for a concurrency slot or have a concurrency key. An
// execution that has its slot and waits for its key alone needs no lock of its job, and
// its job here is uuid.Nil.
type limited struct{ ids, jobs []uuid.UUID }

func (l *limited) add(id, job uuid.UUID, needsSlot bool) {
	if !needsSlot {
		job = uuid.Nil
	}
	l.ids, l.jobs = append(l.ids, id), append(l.jobs, job)
}

// sortUnclaimed divides executions into those that wait for a slot or have a key, in the order of the
// jobs, and those that are not in the pool yet. forOthers says that this worker leaves one of the latter to
// other workers.
func sortUnclaimed(left []db.ListUnclaimedExecutionsRow) (waiting limited, unpooled []uuid.UUID, forOthers bool) {
	for _, r := range left {
		if r.Limited {
			waiting.add(r.ID, r.JobID, r.NeedsSlot)
			continue
		}
		unpooled = append(unpooled, r.ID)
		forOthers = forOthers || r.LeftToOthers
	}
	return waiting, unpooled, forOthers
}

// claimLimited claims those that wait for a slot or have a key.
func (s *Store) claimLimited(ctx context.Context, of limited, p db.ClaimLimitedExecutionsParams) (won []Claimed, held []uuid.UUID, err error) {
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		if p.Ids, held, err = s.lockJobs(ctx, tx, of); err != nil || len(p.Ids) == 0 {
			return err
		}
		if won, err = claimLocked(ctx, tx, p); err != nil || len(won) > 0 {
			return err
		}
		return unlockJobs(ctx, tx)
	})
	return won, held, err
}

// unlockJobs ends a claim that won nothing. Its jobs are free at once: triggers and promoters may
// wait for them, and the commit would take as long as the disk does. It is not rolled back, because
// a claim that met a limit has marked the tenant, so that the end of a run names the next one.
func unlockJobs(ctx context.Context, tx *postgres.Tx) error {
	err := tx.CommitWith(ctx, func(q *db.Queries) error { return q.CommitWithoutFlush(ctx) })
	if err != nil {
		return fmt.Errorf("unlock the jobs of a claim: %w", err)
	}
	return nil
}

// waitEvery is how many claims of limited executions come to each one that waits for the
// locks of its jobs. A claim that waits keeps everything else from this worker meanwhile,
// and what it has locked already from the other workers. But somebody has to wait now and
// then: a job that is triggered again and again is hardly ever free.
const waitEvery = 8

// lockJobs locks the jobs of executions, and returns those that may be claimed then and
// those whose jobs somebody else holds.
func (s *Store) lockJobs(ctx context.Context, tx *postgres.Tx, of limited) (free, held []uuid.UUID, err error) {
	jobs := slices.Compact(slices.DeleteFunc(slices.Clone(of.jobs), func(job uuid.UUID) bool { return job == uuid.Nil }))
	if len(jobs) == 0 {
		return of.ids, nil, nil
	}
	lock := tx.LockFreeJobs
	if s.limitedClaims.Add(1)%waitEvery == 0 {
		lock = tx.LockJobs
	}
	locked, err := lock(ctx, jobs)
	if err != nil {
		return nil, nil, fmt.Errorf("lock jobs: %w", err)
	}
	for i, id := range of.ids {
		if job := of.jobs[i]; job == uuid.Nil || slices.Contains(locked, job) {
			free = append(free, id)
		} else {
			held = append(held, id)
		}
	}
	return free, held, nil
}

// claimLocked counts the slots of jobs that are locked: a statement of its own, because
// one with the lock would count on the snapshot from before it and admit too many.
func claimLocked(ctx context.Context, tx *postgres.Tx, p db.ClaimLimitedExecutionsParams) (out []Claimed, err error) {
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
