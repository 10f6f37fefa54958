package collect

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/statistics/rollup"
)

// back rolls up one interval of what was finished before roll-ups were kept, the newest
// first; done says that nothing is left.
func (s store) back(ctx context.Context, held lease.Lease) (done bool, err error) {
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		if err := held.Guard(ctx, tx); err != nil {
			return err
		}
		span, err := tx.LockRolledSpan(ctx)
		if err != nil {
			return fmt.Errorf("find what is rolled up: %w", err)
		}
		if done = span.RolledFrom == nil; done {
			return nil
		}
		start, err := tx.FindIntervalStart(ctx, db.FindIntervalStartParams{ToAt: *span.RolledFrom, Rows: intervalRows})
		if err != nil {
			return fmt.Errorf("find the last outcomes that are not rolled up: %w", err)
		}
		if err := roll(ctx, tx, start, *span.RolledFrom); err != nil {
			return err
		}
		left := &start
		if done = start.Year() <= 1; done {
			left = nil
		}
		return move(ctx, tx, left, span.RolledTo)
	})
	return done, err
}

func move(ctx context.Context, tx *postgres.Tx, from *time.Time, to time.Time) error {
	if err := tx.MoveRolledSpan(ctx, db.MoveRolledSpanParams{RolledFrom: from, RolledTo: to}); err != nil {
		return fmt.Errorf("note what is rolled up: %w", err)
	}
	return nil
}

// hour is one of scheduled_at, of a tenant.
type hour struct {
	tenant uuid.UUID
	at     time.Time
}

// roll keeps what ended after one time and up to another, a row for each tenant
// and hour, to be folded into their roll-ups. The caller holds the cursor locked and
// moves it.
func roll(ctx context.Context, tx *postgres.Tx, from, to time.Time) error {
	rows, err := tx.ListOutcomeCells(ctx, db.ListOutcomeCellsParams{FromAt: from, ToAt: to})
	if err != nil {
		return fmt.Errorf("count what ended: %w", err)
	}
	piles, outcomes := map[hour][]rollup.Cell{}, map[hour]int64{}
	for i := range rows {
		r := &rows[i]
		of := hour{r.TenantID, rollup.Hour.Begin(r.At)}
		outcomes[of] += r.Rows
		piles[of] = append(piles[of], rollup.Cell{
			Job: r.JobID, Kind: rollup.Kind{JobType: r.JobType, Trigger: r.TriggerType, Status: r.Status}, Bucket: int(r.Bucket),
			Quarter: int(r.At.Sub(of.at) / rollup.Quarter), Rows: r.Rows, Retried: r.Retried, DurationMS: r.DurationMs,
		})
	}
	var p db.InsertOutcomeDeltasParams
	for of, cells := range piles {
		packed, err := rollup.Merge(nil, cells)
		if err != nil {
			return fmt.Errorf("pack what ended: %w", err)
		}
		p.TenantIds, p.Ats, p.Outcomes, p.Cells = append(p.TenantIds, of.tenant), append(p.Ats, of.at), append(p.Outcomes, outcomes[of]), append(p.Cells, packed)
	}
	if len(piles) == 0 {
		return nil
	}
	if err := tx.InsertOutcomeDeltas(ctx, p); err != nil {
		return fmt.Errorf("keep what ended: %w", err)
	}
	return nil
}
