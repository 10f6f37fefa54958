package promoter

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

func (s *store) resumePaused(ctx context.Context, now time.Time) (int, error) {
	rows, err := s.queries().ResumePausedJobs(ctx, postgres.At(now))
	if err != nil {
		return 0, fmt.Errorf("resume jobs whose pause is over: %w", postgres.Fault(err))
	}
	return len(rows), nil
}

func (s *store) stopFailing(ctx context.Context, now time.Time) (int, error) {
	q := s.queries()
	failing, err := q.ListFailingJobs(ctx, postgres.At(now))
	if err != nil {
		return 0, fmt.Errorf("list failing jobs: %w", postgres.Fault(err))
	}
	if len(failing) == 0 {
		return 0, nil
	}
	ids := make([]uuid.UUID, len(failing))
	for i, f := range failing {
		ids[i] = f.ID
	}
	n, err := q.StopFailingJobs(ctx, db.StopFailingJobsParams{Now: postgres.At(now), Ids: ids})
	if err != nil {
		return 0, fmt.Errorf("stop failing jobs: %w", postgres.Fault(err))
	}
	return int(n), nil
}

// toAudit takes a sample of jobs from an id on, and from the first id on when
// that reaches the end.
func (s *store) toAudit(ctx context.Context, now time.Time, from uuid.UUID) (sample []auditJob, err error) {
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		rows, err := tx.ListJobsToAudit(ctx, db.ListJobsToAuditParams{Now: postgres.At(now), FromID: from, SampleSize: auditSample})
		if err == nil && len(rows) < auditSample {
			more, second := tx.ListJobsToAudit(ctx, db.ListJobsToAuditParams{Now: postgres.At(now), SampleSize: int32(auditSample - len(rows))})
			rows, err = append(rows, more...), second
		}
		if err != nil {
			return fmt.Errorf("list jobs to audit: %w", err)
		}
		jobs := make([]dueJob, len(rows))
		for i, r := range rows {
			jobs[i] = auditedJob(r)
		}
		sets, err := loadCalendars(ctx, tx, jobs)
		if err != nil {
			return err
		}
		seen := map[uuid.UUID]bool{}
		for i, r := range rows {
			if seen[r.ID] {
				continue
			}
			seen[r.ID] = true
			sample = append(sample, auditJob{dueJob: jobs[i], calendars: sets, quiet: later(later(r.CreatedAt, r.UpdatedAt), r.StatusAt).UTC(), at: r.At.UTC()})
		}
		return nil
	})
	return sample, err
}

func auditedJob(r db.ListJobsToAuditRow) dueJob {
	j := dueJob{
		id: r.ID, tenant: r.TenantID, version: int(r.Version), jobType: r.JobType, anchor: r.AnchorAt.UTC(), due: r.NextExecutionAt.UTC(),
		spec: job.Spec{
			CronExpression: orZero(r.CronExpression), Interval: job.Duration(time.Duration(orZero(r.IntervalMs)) * time.Millisecond),
			RunAt: r.RunAt, Timezone: r.Timezone, StartDate: r.StartDate, EndDate: r.EndDate,
			JitterSeconds: int(r.JitterSeconds), DSTGap: r.DstGap, DSTOverlap: r.DstOverlap,
		},
	}
	j.unreadable = readCalendars(r.Calendars, &j.spec)
	return j
}

// countOutcomes counts the rows of single instants in a window, and lists the
// ranges of missed ones that reach into it.
func (s *store) countOutcomes(ctx context.Context, id uuid.UUID, w window) (rows int, missed []window, err error) {
	n, err := s.queries().CountOutcomesOfJob(ctx, db.CountOutcomesOfJobParams{JobID: id, FromAt: w.from, ToAt: w.to})
	if err != nil {
		return 0, nil, fmt.Errorf("count a job's rows: %w", postgres.Fault(err))
	}
	ranges, err := s.queries().ListMissedRangesOfJob(ctx, db.ListMissedRangesOfJobParams{
		JobID: id, FromAt: w.from, ToAt: w.to, Since: w.from.AddDate(-1, 0, 0),
	})
	if err != nil {
		return 0, nil, fmt.Errorf("list a job's missed ranges: %w", postgres.Fault(err))
	}
	for _, r := range ranges {
		missed = append(missed, window{from: r.ScheduledAt.UTC(), to: r.MissedUntil.UTC()})
	}
	return int(n), missed, nil
}

func (s *store) recordAudit(ctx context.Context, now time.Time, found []auditFinding) error {
	p := db.RecordAuditParams{Now: postgres.At(now)}
	for _, f := range found {
		p.Ids, p.Differences = append(p.Ids, f.job), append(p.Differences, f.difference)
	}
	if err := s.queries().RecordAudit(ctx, p); err != nil {
		return fmt.Errorf("record the audit: %w", postgres.Fault(err))
	}
	return nil
}
