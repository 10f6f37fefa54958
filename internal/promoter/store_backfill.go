package promoter

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/backfill"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/job/schedules"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// decideBackfills says what becomes of claimed backfills.
type decideBackfills func(ctx context.Context, due []runningBackfill, sets schedules.Calendars, at time.Time) []backfillStep

// dueBackfills says which backfills to claim.
type dueBackfills struct {
	now        time.Time   // zero: the database's clock
	ids        []uuid.UUID // of these alone; nil: of all
	passedOver []uuid.UUID // none of these
}

// advanceBackfills claims backfills whose next batch is due, lets decide plan
// it, and writes executions and cursors in the same transaction. It answers which
// it claimed also where it failed.
func (s *store) advanceBackfills(ctx context.Context, which dueBackfills, decide decideBackfills) (made []backfillStep, claimed []uuid.UUID, err error) {
	of, full, err := s.executionBounds(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("advance backfills: %w", postgres.Fault(err))
	}
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		rows, err := tx.ClaimBackfills(ctx, db.ClaimBackfillsParams{
			Now: postgres.At(which.now), BatchSize: backfillBatch, Ids: which.ids, PassedOver: append([]uuid.UUID{}, which.passedOver...),
		})
		if err != nil {
			return fmt.Errorf("claim backfills: %w", err)
		}
		if len(rows) == 0 {
			return nil
		}
		for _, r := range rows {
			claimed = append(claimed, r.Backfill.ID)
		}
		due := runningBackfills(rows)
		if err := countBackfilled(ctx, tx, due); err != nil {
			return err
		}
		jobs := make([]dueJob, len(due))
		for i, b := range due {
			jobs[i] = b.job
		}
		sets, err := schedules.Load(ctx, tx, policies(jobs))
		if err != nil {
			return err
		}
		at := rows[0].At.UTC()
		made = decide(ctx, due, sets, at)
		full.hold(made, at)
		if err := makePartitions(ctx, tx, made, at); err != nil {
			return err
		}
		if err := countDailySteps(ctx, tx, made, of, at); err != nil {
			return err
		}
		return tx.CommitWith(ctx, func(q *db.Queries) error { return writeBackfills(ctx, q, made, at) })
	})
	if err != nil {
		return nil, claimed, fmt.Errorf("advance backfills: %w", err)
	}
	return made, claimed, nil
}

// makePartitions makes the partitions that the executions will need once they end,
// which may be long past. A day that somebody took out of the history holds up
// the backfills that come to it.
func makePartitions(ctx context.Context, tx *postgres.Tx, steps []backfillStep, at time.Time) error {
	missing, err := partition.ListMissing(ctx, tx.Queries, timesOf(steps))
	if err != nil || len(missing) == 0 {
		return err
	}
	for _, m := range missing {
		for i := range steps {
			if first := slices.IndexFunc(steps[i].times, m.Holds); m.Detached != "" && first >= 0 {
				steps[i].hold(len(steps[i].times)-first, "the executions of "+m.String()+" were taken out of the history (table "+m.Detached+")", at.Add(heldFor))
			}
		}
	}
	_, err = partition.Make(ctx, tx.Queries, timesOf(steps))
	return err
}

// holdBackfill has one that failed alone wait, and say why.
func (s *store) holdBackfill(ctx context.Context, now time.Time, id uuid.UUID, why string) error {
	if err := s.queries().HoldBackfill(ctx, db.HoldBackfillParams{ID: id, HeldBy: why, Now: postgres.At(now)}); err != nil {
		return fmt.Errorf("hold a backfill: %w", postgres.Fault(err))
	}
	return nil
}

func runningBackfills(rows []db.ClaimBackfillsRow) []runningBackfill {
	out := make([]runningBackfill, len(rows))
	for i, r := range rows {
		b := r.Backfill
		var spec job.Spec
		unreadable := json.Unmarshal(r.Spec, &spec)
		made := dueJob{
			id: b.JobID, tenant: b.TenantID, version: int(b.JobVersion), name: spec.Name, jobType: spec.Type, config: spec.Config,
			maxAttempts: spec.Retry.MaxRetries + 1, policy: spec.Policy, anchor: backfill.Anchor(spec.Policy, r.AnchorAt.UTC(), b.FromAt.UTC()),
		}
		out[i] = runningBackfill{
			unreadable: unreadable, job: made,
			id: b.ID, cursor: b.CursorAt.UTC(), to: b.ToAt.UTC(), due: b.NextBatchAt.UTC(), deleted: r.Deleted,
			distance: time.Minute / time.Duration(b.RatePerMinute), share: int(b.DailyShare), gate: int(r.MaxConcurrent), key: made.key(b.Parameters),
		}
		if job.Overlap(r.OverlapPolicy) == job.OverlapAllow {
			out[i].gate = 0
		}
	}
	return out
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

func timesOf(steps []backfillStep) (all []time.Time) {
	for _, s := range steps {
		all = append(all, s.times...)
	}
	return all
}

func writeBackfills(ctx context.Context, q *db.Queries, steps []backfillStep, at time.Time) error {
	if p := insertBackfilled(steps, at); len(p.Ids) > 0 {
		if err := q.InsertBackfillExecutions(ctx, p); err != nil {
			return fmt.Errorf("insert the executions of backfills: %w", err)
		}
	}
	for _, s := range steps {
		err := q.AdvanceBackfill(ctx, db.AdvanceBackfillParams{
			ID: s.id, CursorAt: s.cursor, Made: int32(len(s.times)), NextBatchAt: s.next, Status: string(s.status), HeldBy: s.heldBy, Now: at,
		})
		if err != nil {
			return fmt.Errorf("advance a backfill: %w", err)
		}
	}
	return nil
}
