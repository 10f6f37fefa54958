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

// countOutcomes counts the rows of single scheduled times in a span, and lists
// the ranges of missed ones that reach into it.
func (s *store) countOutcomes(ctx context.Context, id uuid.UUID, in span) (rows int, missed []span, err error) {
	n, err := s.queries().CountOutcomesOfJob(ctx, db.CountOutcomesOfJobParams{JobID: id, FromAt: in.from, ToAt: in.to})
	if err != nil {
		return 0, nil, fmt.Errorf("count a job's rows: %w", postgres.Fault(err))
	}
	ranges, err := s.queries().ListMissedRangesOfJob(ctx, db.ListMissedRangesOfJobParams{
		JobID: id, FromAt: in.from, ToAt: in.to, Since: in.from.AddDate(-1, 0, 0),
	})
	if err != nil {
		return 0, nil, fmt.Errorf("list a job's missed ranges: %w", postgres.Fault(err))
	}
	for _, r := range ranges {
		missed = append(missed, span{from: r.ScheduledAt.UTC(), to: r.MissedUntil.UTC()})
	}
	return int(n), missed, nil
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
