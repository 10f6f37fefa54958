package maintenance

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/job/schedules"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// sample takes jobs from an id on, and from the first id on when that reaches
// the end.
func (s *store) sample(ctx context.Context, now time.Time, from uuid.UUID) (jobs []sampledJob, err error) {
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		rows, err := tx.ListJobsToAudit(ctx, db.ListJobsToAuditParams{Now: postgres.At(now), FromID: from, SampleSize: sampleSize})
		if err == nil && len(rows) < sampleSize {
			more, second := tx.ListJobsToAudit(ctx, db.ListJobsToAuditParams{Now: postgres.At(now), SampleSize: int32(sampleSize - len(rows))})
			rows, err = append(rows, more...), second
		}
		if err != nil {
			return fmt.Errorf("list jobs to reconcile: %w", err)
		}
		seen := map[uuid.UUID]bool{}
		for i := range rows {
			if id := rows[i].ID; !seen[id] {
				seen[id] = true
				jobs = append(jobs, sampled(&rows[i]))
			}
		}
		calendars, err := schedules.Load(ctx, tx, func(yield func(*job.Policy) bool) {
			for i := range jobs {
				if !yield(&jobs[i].policy) {
					return
				}
			}
		})
		for i := range jobs {
			jobs[i].calendars = calendars
		}
		return err
	})
	return jobs, err
}

func sampled(r *db.ListJobsToAuditRow) sampledJob {
	j := sampledJob{
		id: r.ID, tenant: r.TenantID, version: int(r.Version), anchor: r.AnchorAt.UTC(), due: r.NextExecutionAt.UTC(),
		changed: clock.Later(clock.Later(r.CreatedAt, r.UpdatedAt), r.StatusAt).UTC(), at: r.At.UTC(),
	}
	j.unreadable = j.policy.Read(r)
	return j
}

// countOutcomes counts, for some jobs, the rows of single scheduled times in the span
// of each, and lists the ranges of missed ones that reach into it.
func (s *store) countOutcomes(ctx context.Context, of map[uuid.UUID]span) (rows map[uuid.UUID]int, missed map[uuid.UUID][]span, err error) {
	var p db.CountOutcomesOfJobsParams
	for id, in := range of {
		p.Ids, p.Froms, p.Tos = append(p.Ids, id), append(p.Froms, in.from), append(p.Tos, in.to)
	}
	counted, err := s.queries().CountOutcomesOfJobs(ctx, p)
	if err != nil {
		return nil, nil, fmt.Errorf("count the rows of jobs: %w", postgres.Fault(err))
	}
	ranges, err := s.queries().ListMissedRangesOfJobs(ctx, db.ListMissedRangesOfJobsParams(p))
	if err != nil {
		return nil, nil, fmt.Errorf("list the missed ranges of jobs: %w", postgres.Fault(err))
	}
	rows, missed = make(map[uuid.UUID]int, len(counted)), map[uuid.UUID][]span{}
	for _, c := range counted {
		rows[c.JobID] = int(c.Rows)
	}
	for _, r := range ranges {
		missed[r.JobID] = append(missed[r.JobID], span{from: r.ScheduledAt.UTC(), to: r.MissedUntil.UTC()})
	}
	return rows, missed, nil
}

func (s *store) recordDifferences(ctx context.Context, now time.Time, found []difference) error {
	p := db.RecordAuditParams{Now: postgres.At(now)}
	for _, f := range found {
		p.Ids, p.Differences = append(p.Ids, f.job), append(p.Differences, f.rows)
	}
	if err := s.queries().RecordAudit(ctx, p); err != nil {
		return fmt.Errorf("record what differs: %w", postgres.Fault(err))
	}
	return nil
}
