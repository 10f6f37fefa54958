package collect

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/statistics/rollup"
)

const (
	// foldBytes bounds what one fold takes: some 400,000 outcomes of as many jobs.
	foldBytes = 10 << 20
	// foldCells bounds the counts that are merged at a time, and so what a fold holds.
	foldCells = 50_000
)

// fold moves what is counted of one tenant into its roll-ups, in one transaction;
// the tenant is Nil where none has enough to fold.
func (s store) fold(ctx context.Context, now time.Time, but []uuid.UUID) (tenant uuid.UUID, err error) {
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		if _, err := tx.ShareRolledSpan(ctx); err != nil {
			return fmt.Errorf("wait for a collector of the version before: %w", err)
		}
		tenant, err = tx.ClaimFold(ctx, db.ClaimFoldParams{But: but, Now: postgres.At(now)})
		if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
			return nil
		}
		if err != nil {
			return fmt.Errorf("find what to fold: %w", err)
		}
		deltas, err := tx.TakeOutcomeDeltas(ctx, db.TakeOutcomeDeltasParams{TenantID: tenant, MostBytes: foldBytes})
		if err != nil {
			return fmt.Errorf("take what is counted: %w", err)
		}
		f := folding{Tx: tx, tenant: tenant, piles: map[place][]rollup.Cell{}}
		if err := f.add(ctx, deltas); err != nil {
			return fmt.Errorf("fold the outcomes of tenant %s: %w", tenant, err)
		}
		return tx.SettleFold(ctx, db.SettleFoldParams{TenantID: tenant, Rows: int64(len(deltas)), Outcomes: f.outcomes, Folded: f.written})
	})
	return tenant, err
}

// place is where a roll-up of a tenant stands.
type place struct {
	part int16
	span rollup.Span
	at   time.Time
}

// folding adds counts to the roll-ups of one tenant.
type folding struct {
	*postgres.Tx

	tenant   uuid.UUID
	piles    map[place][]rollup.Cell // not merged yet
	cells    int                     // in the piles
	outcomes int64
	written  int64 // bytes of the roll-ups that were written
}

// add folds what was counted: that of the whole tenant, and part by part that of its
// jobs, so that no more than a few parts are held at a time.
func (f *folding) add(ctx context.Context, deltas []db.TakeOutcomeDeltasRow) error {
	parts := map[int16][]piece{}
	whole := map[time.Time]map[rollup.Cell]rollup.Cell{}
	for _, d := range deltas {
		f.outcomes += d.Outcomes
		at := d.At.UTC()
		if whole[at] == nil {
			whole[at] = map[rollup.Cell]rollup.Cell{}
		}
		err := rollup.Walk(d.Cells, nil, func(c *rollup.Cell, _ bool) { count(whole[at], c) })
		if err != nil {
			return err
		}
		split, err := rollup.Split(d.Cells)
		if err != nil {
			return err
		}
		for part, cells := range split {
			parts[part] = append(parts[part], piece{at, cells})
		}
	}
	for at, cells := range whole {
		for _, c := range cells {
			f.pile(rollup.Whole, at, c)
		}
	}
	for part, pieces := range parts {
		for _, p := range pieces {
			if err := rollup.Walk(p.cells, nil, func(c *rollup.Cell, _ bool) { f.pile(part, p.at, *c) }); err != nil {
				return err
			}
		}
		if f.cells >= foldCells {
			if err := f.merge(ctx); err != nil {
				return err
			}
		}
	}
	return f.merge(ctx)
}

// piece is what is packed of one hour and one part.
type piece struct {
	at    time.Time
	cells []byte
}

// count adds a job's cell to the one of the whole tenant.
func count(whole map[rollup.Cell]rollup.Cell, c *rollup.Cell) {
	key := rollup.Cell{Kind: c.Kind, Quarter: c.Quarter, Bucket: c.Bucket}
	sum, known := whole[key]
	if !known {
		sum = key
	}
	sum.Rows, sum.Retried, sum.DurationMS = sum.Rows+c.Rows, sum.Retried+c.Retried, sum.DurationMS+c.DurationMS
	whole[key] = sum
}

// pile puts a count where it belongs: to the hour, the day and the week.
func (f *folding) pile(part int16, hour time.Time, c rollup.Cell) {
	for _, span := range []rollup.Span{rollup.Hour, rollup.Day, rollup.Week} {
		if span != rollup.Hour {
			c.Quarter = 0
		}
		to := place{part, span, span.Begin(hour)}
		f.piles[to] = append(f.piles[to], c)
		f.cells++
	}
}

// merge adds the piles to their roll-ups.
func (f *folding) merge(ctx context.Context) error {
	if len(f.piles) == 0 {
		return nil
	}
	k := db.GetRollupsByKeysParams{TenantID: f.tenant}
	var places []place
	for p := range f.piles {
		places = append(places, p)
		k.Parts, k.Spans, k.Ats = append(k.Parts, p.part), append(k.Spans, int16(p.span)), append(k.Ats, p.at)
	}
	stored, err := f.GetRollupsByKeys(ctx, k)
	if err != nil {
		return fmt.Errorf("read roll-ups: %w", err)
	}
	old := make(map[place][]byte, len(stored))
	for _, r := range stored {
		old[place{r.Part, rollup.Span(r.Span), r.At.UTC()}] = r.Cells
	}
	u := db.UpsertRollupsParams{TenantID: f.tenant, Parts: k.Parts, Spans: k.Spans, Ats: k.Ats}
	for _, p := range places {
		packed, err := rollup.Merge(old[p], f.piles[p])
		if err != nil {
			return fmt.Errorf("the roll-up of part %d at %v: %w", p.part, p.at, err)
		}
		u.Cells = append(u.Cells, packed)
		f.written += int64(len(packed))
	}
	clear(f.piles)
	f.cells = 0
	if err := f.UpsertRollups(ctx, u); err != nil {
		return fmt.Errorf("write roll-ups: %w", err)
	}
	return nil
}
