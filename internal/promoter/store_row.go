package promoter

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
)

// Rows stop here. Statements take one array per column, all of one length.

func claimDue(d due) db.ClaimDueJobsParams {
	return db.ClaimDueJobsParams{
		Now: postgres.At(d.now), Since: d.since, BatchSize: int32(d.batch), Chosen: orEmpty(d.chosen),
		ExceptIds: orEmpty(d.exceptIDs), ExceptTenants: orEmpty(d.exceptTenants), SeeBacklogs: d.backlogs, BacklogOver: backlogAfter,
	}
}

// orEmpty is an array for a statement, which takes none for unknown.
func orEmpty(ids []uuid.UUID) []uuid.UUID {
	if ids == nil {
		return []uuid.UUID{}
	}
	return ids
}

// boundStatements gives the statements of a transaction so much time. Waiting for
// a lock ends earlier, so that the error says which of the two it was.
func boundStatements(ctx context.Context, tx *postgres.Tx, most time.Duration) error {
	ms := most.Milliseconds()
	if _, err := tx.BoundStatements(ctx, db.BoundStatementsParams{LockTimeout: fmt.Sprint(ms * 4 / 5), StatementTimeout: fmt.Sprint(ms)}); err != nil {
		return fmt.Errorf("bound the time of statements: %w", err)
	}
	return nil
}

func dueJobs(rows []db.ClaimDueJobsRow) []dueJob {
	jobs := make([]dueJob, len(rows))
	for i := range rows {
		r := &rows[i]
		jobs[i] = dueJob{
			id: r.ID, tenant: r.TenantID, version: int(r.Version), name: r.Name, jobType: r.JobType, config: r.Config, maxAttempts: int(r.MaxAttempts),
			anchor: r.AnchorAt.UTC(), count: r.ExecutionCount, resume: job.MisfirePolicy(columns.OrZero(r.ResumePolicy)), due: r.NextExecutionAt.UTC(), until: columns.OrZero(r.CatchUpUntil).UTC(),
			places: job.Places{Taken: int(r.Taken), Waiting: int(r.Waiting)}, hasBacklog: r.HasBacklog,
			generation: r.Generation, active: int(r.Taken + r.Waiting), cancelling: r.Cancelling,
		}
		jobs[i].unreadable = jobs[i].policy.Read(r)
	}
	return jobs
}

func insertDue(runs []run, now time.Time) db.InsertDueExecutionsParams {
	n := len(runs)
	p := db.InsertDueExecutionsParams{
		Now: postgres.At(now), Ids: make([]uuid.UUID, n), TenantIds: make([]uuid.UUID, n), JobIds: make([]uuid.UUID, n),
		JobVersions: make([]int32, n), ScheduledAt: make([]time.Time, n), JobTypes: make([]string, n), Priorities: make([]int16, n),
		MaxAttempts: make([]int32, n), TimeoutsMs: make([]int32, n), ConcurrencyLimits: make([]int16, n), ConcurrencyKeys: make([]string, n),
		Generations: make([]int32, n), Pooled: make([]bool, n), AvailableAt: make([]time.Time, n),
	}
	for i, r := range runs {
		p.Ids[i], p.TenantIds[i], p.JobIds[i], p.JobVersions[i] = r.id, r.job.tenant, r.job.id, int32(r.job.version)
		p.ScheduledAt[i], p.JobTypes[i], p.Priorities[i] = r.at, r.job.jobType, int16(r.job.policy.Priority)
		p.MaxAttempts[i], p.TimeoutsMs[i] = int32(r.job.maxAttempts), int32(r.job.policy.Timeout)*1000
		p.Generations[i] = r.job.generation
		p.ConcurrencyLimits[i], p.ConcurrencyKeys[i], p.Pooled[i], p.AvailableAt[i] = int16(r.gate), r.key(), r.pooled, r.available
	}
	p.FirstAt, p.LastAt = span(p.ScheduledAt)
	return p
}

func insertBackfilled(steps []backfillStep, now time.Time) db.InsertBackfillExecutionsParams {
	p := db.InsertBackfillExecutionsParams{Now: now}
	for _, s := range steps {
		for _, at := range s.times {
			p.Ids, p.BackfillIds = append(p.Ids, execution.BackfillID(s.id, at)), append(p.BackfillIds, s.id)
			p.ScheduledAt, p.JobTypes = append(p.ScheduledAt, at), append(p.JobTypes, s.job.jobType)
			p.Priorities, p.MaxAttempts = append(p.Priorities, int16(s.job.policy.Priority)), append(p.MaxAttempts, int32(s.job.maxAttempts))
			p.TimeoutsMs, p.ConcurrencyLimits = append(p.TimeoutsMs, int32(s.job.policy.Timeout)*1000), append(p.ConcurrencyLimits, int16(s.gate))
			p.ConcurrencyKeys = append(p.ConcurrencyKeys, s.key)
		}
	}
	p.FirstAt, p.LastAt = span(p.ScheduledAt)
	return p
}

// span is the first and the last of the times; zero of none.
func span(times []time.Time) (first, last time.Time) {
	if len(times) == 0 {
		return first, last
	}
	return slices.MinFunc(times, time.Time.Compare), slices.MaxFunc(times, time.Time.Compare)
}

func insertSkips(rows []skip, now time.Time) db.InsertSkippedExecutionsParams {
	p := db.InsertSkippedExecutionsParams{Now: postgres.At(now)}
	for _, u := range rows {
		p.Ids = append(p.Ids, execution.ScheduledID(u.job.id, u.first))
		p.TenantIds = append(p.TenantIds, u.job.tenant)
		p.JobIds = append(p.JobIds, u.job.id)
		p.JobVersions = append(p.JobVersions, int32(u.job.version))
		p.ScheduledAt = append(p.ScheduledAt, u.first)
		p.JobTypes = append(p.JobTypes, u.job.jobType)
		p.Priorities = append(p.Priorities, int16(u.job.policy.Priority))
		p.Reasons = append(p.Reasons, u.reason)
		p.Statuses = append(p.Statuses, string(u.status))
		p.MissedCounts = append(p.MissedCounts, int64(u.count))
		p.MissedUntil = append(p.MissedUntil, u.last)
	}
	return p
}

func advanceJobs(advances []advance, now time.Time) db.AdvanceJobsParams {
	n := len(advances)
	p := db.AdvanceJobsParams{
		Now: postgres.At(now), Ids: make([]uuid.UUID, n), NextAt: make([]time.Time, n), LastAt: make([]time.Time, n),
		UntilAt: make([]time.Time, n), Runs: make([]int64, n), Reasons: make([]string, n), ChangedIds: []uuid.UUID{},
	}
	for i, a := range advances {
		p.Ids[i], p.NextAt[i], p.LastAt[i], p.Runs[i], p.Reasons[i] = a.job.id, a.next, a.last, int64(a.runs), a.reason
		if a.next.IsZero() {
			p.NextAt[i] = columns.Never
		}
		if p.UntilAt[i] = a.until; a.until.IsZero() {
			p.UntilAt[i] = columns.Never
		}
		if a.next.IsZero() || a.job.resume != "" {
			p.ChangedIds = append(p.ChangedIds, a.job.id)
		}
	}
	return p
}
