package promoter

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/backfill"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// decideBackfills says what becomes of claimed backfills.
type decideBackfills func(ctx context.Context, due []runningBackfill, sets calendars, at time.Time) []backfillStep

// advanceBackfills claims backfills whose next batch is due, lets decide plan
// it, and writes executions and cursors in the same transaction.
func (s *store) advanceBackfills(ctx context.Context, now time.Time, decide decideBackfills) (made []backfillStep, err error) {
	of, err := s.dailyBounds(ctx)
	if err != nil {
		return nil, fmt.Errorf("advance backfills: %w", postgres.Fault(err))
	}
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		rows, err := tx.ClaimBackfills(ctx, db.ClaimBackfillsParams{Now: postgres.At(now), BatchSize: backfillBatch})
		if err != nil {
			return fmt.Errorf("claim backfills: %w", err)
		}
		if len(rows) == 0 {
			return nil
		}
		due, err := runningBackfills(rows)
		if err != nil {
			return err
		}
		if err := countBackfilled(ctx, tx, due); err != nil {
			return err
		}
		jobs := make([]dueJob, len(due))
		for i, b := range due {
			jobs[i] = b.job
		}
		sets, err := loadCalendars(ctx, tx, jobs)
		if err != nil {
			return err
		}
		at := rows[0].At.UTC()
		made = decide(ctx, due, sets, at)
		if err := countDailySteps(ctx, tx, made, of, at); err != nil {
			return err
		}
		// An execution that ends needs the partition of its instant, which may
		// be long past.
		if _, err := partition.Make(ctx, tx.Queries, instantsOf(made)); err != nil {
			return err
		}
		return tx.CommitWith(ctx, func(q *db.Queries) error { return writeBackfills(ctx, q, made, at) })
	})
	if err != nil {
		return nil, fmt.Errorf("advance backfills: %w", err)
	}
	return made, nil
}

func runningBackfills(rows []db.ClaimBackfillsRow) ([]runningBackfill, error) {
	out := make([]runningBackfill, len(rows))
	for i, r := range rows {
		b := r.Backfill
		var spec job.Spec
		if err := json.Unmarshal(r.Spec, &spec); err != nil {
			return nil, fmt.Errorf("read version %d of job %s: %w", b.JobVersion, b.JobID, err)
		}
		out[i] = runningBackfill{
			id: b.ID, cursor: b.CursorAt.UTC(), to: b.ToAt.UTC(), due: b.NextBatchAt.UTC(), deleted: r.Deleted,
			distance: time.Minute / time.Duration(b.RatePerMinute), gate: int(r.MaxConcurrent), key: spec.KeyOf(b.JobID, b.Parameters),
			job: dueJob{
				id: b.JobID, tenant: b.TenantID, version: int(b.JobVersion), jobType: spec.Type, maxAttempts: spec.Retry.MaxRetries + 1,
				spec: spec, anchor: backfill.Anchor(spec, r.AnchorAt.UTC(), b.FromAt.UTC()),
			},
		}
		if job.Overlap(r.OverlapPolicy) == job.OverlapAllow {
			out[i].gate = 0
		}
	}
	return out, nil
}

// countBackfilled counts what backfills have made that is not over.
func countBackfilled(ctx context.Context, tx *postgres.Tx, due []runningBackfill) error {
	p := db.CountActiveByBackfillsParams{}
	for _, b := range due {
		p.JobIds, p.BackfillIds = append(p.JobIds, b.job.id), append(p.BackfillIds, b.id)
	}
	rows, err := tx.CountActiveByBackfills(ctx, p)
	if err != nil {
		return fmt.Errorf("count the active executions of backfills: %w", err)
	}
	counts := make(map[uuid.UUID]db.CountActiveByBackfillsRow, len(rows))
	for _, r := range rows {
		counts[r.BackfillID] = r
	}
	for i := range due {
		due[i].active, due[i].waiting = int(counts[due[i].id].Active), int(counts[due[i].id].Waiting)
	}
	return nil
}

func instantsOf(steps []backfillStep) (all []time.Time) {
	for _, s := range steps {
		all = append(all, s.instants...)
	}
	return all
}

func writeBackfills(ctx context.Context, q *db.Queries, steps []backfillStep, at time.Time) error {
	p := db.InsertBackfillExecutionsParams{Now: at}
	for _, s := range steps {
		for _, instant := range s.instants {
			p.Ids, p.BackfillIds = append(p.Ids, execution.BackfillID(s.id, instant)), append(p.BackfillIds, s.id)
			p.ScheduledAt, p.JobTypes = append(p.ScheduledAt, instant), append(p.JobTypes, s.job.jobType)
			p.Priorities, p.MaxAttempts = append(p.Priorities, int16(s.job.spec.Priority)), append(p.MaxAttempts, int32(s.job.maxAttempts))
			p.TimeoutsMs, p.ConcurrencyLimits = append(p.TimeoutsMs, int32(s.job.spec.Timeout)*1000), append(p.ConcurrencyLimits, int16(s.gate))
			p.ConcurrencyKeys = append(p.ConcurrencyKeys, s.key)
		}
	}
	if len(p.Ids) > 0 {
		if err := q.InsertBackfillExecutions(ctx, p); err != nil {
			return fmt.Errorf("insert the executions of backfills: %w", err)
		}
	}
	for _, s := range steps {
		err := q.AdvanceBackfill(ctx, db.AdvanceBackfillParams{
			ID: s.id, CursorAt: s.cursor, Made: int32(len(s.instants)), NextBatchAt: s.next, Status: string(s.status), HeldBy: s.heldBy, Now: at,
		})
		if err != nil {
			return fmt.Errorf("advance a backfill: %w", err)
		}
	}
	return nil
}
