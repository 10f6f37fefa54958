package metric

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/rollup"
)

// place is where a roll-up stands.
type place struct {
	tenant uuid.UUID
	part   int16
	span   rollup.Span
	at     time.Time
}

// upsertBatch bounds the roll-ups of one statement.
const upsertBatch = 1000

// back rolls up one stretch of what was over before roll-ups were kept, the newest
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
		start, err := tx.FindStretchStart(ctx, db.FindStretchStartParams{ToAt: *span.RolledFrom, Rows: stretchRows})
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

// roll adds what ended after one instant and up to another to the roll-ups of its
// tenants. The caller holds the cursor locked and moves it.
func roll(ctx context.Context, tx *postgres.Tx, from, to time.Time) error {
	rows, err := tx.ListOutcomeCells(ctx, db.ListOutcomeCellsParams{FromAt: from, ToAt: to})
	if err != nil {
		return fmt.Errorf("count what ended: %w", err)
	}
	piles := map[place][]rollup.Cell{}
	for i := range rows {
		pile(piles, &rows[i])
	}
	places := make([]place, 0, min(len(piles), upsertBatch))
	for at := range piles {
		if places = append(places, at); len(places) == upsertBatch {
			if err := merge(ctx, tx, places, piles); err != nil {
				return err
			}
			places = places[:0]
		}
	}
	return merge(ctx, tx, places, piles)
}

// pile puts counts where they belong: to the tenant and to the job's part, to the
// hour, the day and the week.
func pile(piles map[place][]rollup.Cell, r *db.ListOutcomeCellsRow) {
	c := rollup.Cell{
		Kind: rollup.Kind{JobType: r.JobType, Trigger: r.TriggerType, Status: r.Status}, Bucket: int(r.Bucket),
		Rows: r.Rows, Retried: r.Retried, DurationMS: r.DurationMs,
	}
	for _, span := range []rollup.Span{rollup.Hour, rollup.Day, rollup.Week} {
		to := place{r.TenantID, rollup.Whole, span, span.Begin(r.At)}
		if c.Quarter = 0; span == rollup.Hour {
			c.Quarter = int(r.At.Sub(to.at) / rollup.Quarter)
		}
		c.Job = uuid.Nil
		piles[to] = append(piles[to], c)
		c.Job, to.part = r.JobID, rollup.PartOf(r.JobID)
		piles[to] = append(piles[to], c)
	}
}

// merge adds piles to the roll-ups of some places.
func merge(ctx context.Context, tx *postgres.Tx, places []place, piles map[place][]rollup.Cell) error {
	var k db.ListRollupsByKeysParams
	for _, p := range places {
		k.TenantIds, k.Parts, k.Spans, k.Ats = append(k.TenantIds, p.tenant), append(k.Parts, p.part), append(k.Spans, int16(p.span)), append(k.Ats, p.at)
	}
	stored, err := tx.ListRollupsByKeys(ctx, k)
	if err != nil {
		return fmt.Errorf("read roll-ups: %w", err)
	}
	old := make(map[place][]byte, len(stored))
	for _, r := range stored {
		old[place{r.TenantID, r.Part, rollup.Span(r.Span), r.At.UTC()}] = r.Cells
	}
	u := db.UpsertRollupsParams{TenantIds: k.TenantIds, Parts: k.Parts, Spans: k.Spans, Ats: k.Ats}
	for _, p := range places {
		packed, err := rollup.Merge(old[p], piles[p])
		if err != nil {
			return fmt.Errorf("the roll-up of tenant %s, part %d, at %v: %w", p.tenant, p.part, p.at, err)
		}
		u.Cells = append(u.Cells, packed)
	}
	if err := tx.UpsertRollups(ctx, u); err != nil {
		return fmt.Errorf("write roll-ups: %w", err)
	}
	return nil
}
