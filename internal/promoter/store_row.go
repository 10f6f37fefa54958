package promoter

import (
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// Rows stop here. Statements take one array per column, all of one length.

func dueJobs(rows []db.ClaimDueJobsRow) []dueJob {
	jobs := make([]dueJob, len(rows))
	for i, r := range rows {
		d := schedule.Definition{Zone: r.Timezone, Anchor: r.AnchorAt.UTC(), Key: r.ID.String()}
		if r.CronExpression != nil {
			d.Cron = *r.CronExpression
		}
		if r.IntervalMs != nil {
			d.Interval = time.Duration(*r.IntervalMs) * time.Millisecond
		}
		d.RunAt, d.Start, d.End = orZero(r.RunAt), orZero(r.StartDate), orZero(r.EndDate)
		jobs[i] = dueJob{
			id: r.ID, tenant: r.TenantID, version: int(r.Version), jobType: r.JobType, priority: int(r.Priority),
			maxAttempts: int(r.MaxAttempts), timeout: time.Duration(r.TimeoutSeconds) * time.Second, definition: d,
			misfirePolicy: r.MisfirePolicy, misfireLimit: int(r.MisfireLimit),
			misfireGrace: time.Duration(r.MisfireGraceSeconds) * time.Second, due: r.NextExecutionAt.UTC(),
		}
	}
	return jobs
}

func insertDue(runs []run, now time.Time) db.InsertDueExecutionsParams {
	n := len(runs)
	p := db.InsertDueExecutionsParams{
		Now: postgres.At(now), Ids: make([]uuid.UUID, n), TenantIds: make([]uuid.UUID, n), JobIds: make([]uuid.UUID, n),
		JobVersions: make([]int32, n), ScheduledAt: make([]time.Time, n), JobTypes: make([]string, n), Priorities: make([]int16, n),
		MaxAttempts: make([]int32, n), TimeoutsMs: make([]int32, n),
	}
	for i, r := range runs {
		p.Ids[i], p.TenantIds[i], p.JobIds[i], p.JobVersions[i] = r.id, r.job.tenant, r.job.id, int32(r.job.version)
		p.ScheduledAt[i], p.JobTypes[i], p.Priorities[i] = r.at, r.job.jobType, int16(r.job.priority)
		p.MaxAttempts[i], p.TimeoutsMs[i] = int32(r.job.maxAttempts), int32(r.job.timeout.Milliseconds())
	}
	return p
}

func insertMissed(misses []missed, now time.Time) db.InsertMissedExecutionsParams {
	p := db.InsertMissedExecutionsParams{Now: postgres.At(now)}
	for _, m := range misses {
		p.Ids = append(p.Ids, execution.ScheduledID(m.job.id, m.first))
		p.TenantIds = append(p.TenantIds, m.job.tenant)
		p.JobIds = append(p.JobIds, m.job.id)
		p.JobVersions = append(p.JobVersions, int32(m.job.version))
		p.ScheduledAt = append(p.ScheduledAt, m.first)
		p.JobTypes = append(p.JobTypes, m.job.jobType)
		p.Priorities = append(p.Priorities, int16(m.job.priority))
		p.Reasons = append(p.Reasons, m.reason)
		p.MissedCounts = append(p.MissedCounts, int64(m.count))
		p.MissedUntil = append(p.MissedUntil, m.last)
	}
	return p
}

func advanceJobs(advances []advance) db.AdvanceJobsParams {
	n := len(advances)
	p := db.AdvanceJobsParams{
		Ids: make([]uuid.UUID, n), NextAt: make([]time.Time, n), LastAt: make([]time.Time, n), Runs: make([]int64, n), Reasons: make([]string, n),
	}
	for i, a := range advances {
		p.Ids[i], p.NextAt[i], p.LastAt[i], p.Runs[i], p.Reasons[i] = a.job.id, a.next, a.last, int64(a.runs), a.reason
		if a.next.IsZero() {
			p.NextAt[i] = never
		}
	}
	return p
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
