package statistics

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
	"github.com/scheduler-service/scheduler/internal/statistics/rollup"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// fewRuns is how many executions of one job are rather counted one by one than
// looked for among its part's.
const fewRuns = 2000

// maxPacked bounds the roll-ups that one answer by job holds at once, in bytes.
// One of 90,000 jobs over a month takes as much.
const maxPacked = 24 << 20

// Statistics counts what a tenant's executions came to, exactly, as of one
// time: from the roll-ups for whole quarters of an hour, and one by one for
// what lies before and after those and what the roll-ups do not hold. That is
// what ended within the last half minute and, after an upgrade from a version
// without roll-ups, for a while what was finished before it; where the latter takes
// longer than a statement may, the error is Invalid with the code
// STATS_RANGE_TOO_LARGE.
func (s *Store) Statistics(ctx context.Context, who tenant.Actor, q Query) (answer Statistics, err error) {
	err = s.db.InSnapshot(ctx, who.TenantID, func(tx *postgres.Tx) error {
		c := counter{Tx: tx, tenant: who.TenantID, tally: newTally(q)}
		if err := c.count(ctx); postgres.TimedOut(err) {
			return fault.Wrap(fault.Invalid, fault.CodeStatsRangeTooLarge,
				"the query took longer than 5 s because this range is not rolled up yet: narrow from and to, pass jobId, or retry later", err)
		} else if err != nil {
			return fmt.Errorf("count what executions came to: %w", err)
		}
		answer = c.answer()
		return c.nameJobs(ctx, q, answer.Groups)
	})
	return answer, err
}

// counter counts for one query, in one snapshot.
type counter struct {
	*postgres.Tx
	*tally

	tenant uuid.UUID
	// Of a query by job, what is to be ranked.
	rollups []packed
	single  []rollup.Cell

	unfolded []db.ListOutcomeDeltasRow // what is counted and not folded into the roll-ups yet
}

func (c *counter) count(ctx context.Context) error {
	r := c.read(c.periods)
	if err := c.gather(ctx, r); err != nil {
		return err
	}
	if c.Group == ByJob {
		return c.rank(r, c.rollups, c.single)
	}
	return nil
}

// gather reads what there is to count, and counts it but for what is to be ranked.
func (c *counter) gather(ctx context.Context, r reading) error {
	if r.from.Before(r.to) {
		var err error
		c.unfolded, err = c.ListOutcomeDeltas(ctx, db.ListOutcomeDeltasParams{TenantID: c.tenant, FromAt: r.hours.from, ToAt: r.hours.to})
		if err != nil {
			return fmt.Errorf("read what is not folded yet: %w", err)
		}
	}
	if r.from.Before(r.to) && c.JobID != nil {
		busy, err := c.busy(ctx, r)
		if err != nil {
			return err
		}
		if !busy {
			r.from, r.to = c.To, c.To
		}
	}
	if !r.from.Before(r.to) {
		return c.each(ctx, db.SummarizeOutcomesParams{FromAt: c.From, ToAt: c.To})
	}
	span, err := c.GetRolledSpan(ctx)
	if err != nil {
		return fmt.Errorf("find what is rolled up: %w", err)
	}
	if err := c.rolled(ctx, r); err != nil {
		return err
	}
	rest := []db.SummarizeOutcomesParams{
		{FromAt: c.From, ToAt: r.from}, {FromAt: r.to, ToAt: c.To}, // the edges
		{FromAt: r.from, ToAt: r.to, CompletedAfter: &span.RolledTo},
	}
	if span.RolledFrom != nil {
		rest = append(rest, db.SummarizeOutcomesParams{FromAt: r.from, ToAt: r.to, CompletedUntil: span.RolledFrom})
	}
	for _, p := range rest {
		if err := c.each(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// parts are those of the tenant's roll-ups that the query is answered from.
func (c *counter) parts() []int16 {
	switch {
	case c.JobID != nil:
		return []int16{rollup.PartOf(*c.JobID)}
	case c.Group != ByJob:
		return []int16{rollup.Whole}
	}
	parts := make([]int16, 1+rollup.Parts) // the whole is not the sum of the groups that fit
	for i := range parts {
		parts[i] = int16(i)
	}
	return parts
}

// busy says whether the days of the range hold more than a few runs of the job.
func (c *counter) busy(ctx context.Context, r reading) (bool, error) {
	from, to := rollup.Day.Begin(r.from), ceil(r.to, 24*time.Hour)
	rows, err := c.ListRollups(ctx, db.ListRollupsParams{
		TenantID: c.tenant, Parts: c.parts(), FirstHour: from, FirstDay: from, FirstWeek: to, LastWeek: to, LastDay: to, LastHour: to,
	})
	if err != nil {
		return false, fmt.Errorf("read the roll-ups of days: %w", err)
	}
	var runs int64
	packed := make([][]byte, 0, len(rows)+len(c.unfolded))
	for _, row := range rows {
		packed = append(packed, row.Cells)
	}
	for _, row := range c.unfolded {
		packed = append(packed, row.Cells)
	}
	for _, cells := range packed {
		err := rollup.Walk(cells, c.wanted(), func(cell *rollup.Cell, _ bool) { runs += cell.Rows })
		if err != nil {
			return false, err
		}
	}
	return runs > fewRuns, nil
}

// rolled adds what the roll-ups hold.
func (c *counter) rolled(ctx context.Context, r reading) error {
	p := db.ListRollupsParams{
		TenantID: c.tenant, Parts: c.parts(), FirstHour: r.hours.from, FirstDay: r.days.from, FirstWeek: r.weeks.from,
		LastWeek: r.weeks.to, LastDay: r.days.to, LastHour: r.hours.to,
	}
	if c.Group == ByJob && c.JobID == nil {
		bytes, err := c.MeasureRollups(ctx, db.MeasureRollupsParams(p))
		if err != nil {
			return fmt.Errorf("measure roll-ups: %w", err)
		}
		if bytes > maxPacked {
			return fault.New(fault.Invalid, fault.CodeStatsRangeTooLarge, "so many jobs ran in this range that telling them apart takes too much memory: narrow from and to, or pass jobId")
		}
	}
	rows, err := c.ListRollups(ctx, p)
	if err != nil {
		return fmt.Errorf("read roll-ups: %w", err)
	}
	for _, row := range rows {
		p := packed{part: row.Part, span: rollup.Span(row.Span), at: row.At, cells: row.Cells}
		if c.Group == ByJob && row.Part != rollup.Whole {
			c.rollups = append(c.rollups, p)
		}
		if c.Group == ByJob && row.Part != rollup.Whole && c.JobID == nil {
			continue
		}
		if err := c.unpack(r, &p); err != nil {
			return fmt.Errorf("part %d at %v: %w", row.Part, row.At, err)
		}
	}
	return c.deltas(r)
}

// deltas adds what is counted and not folded into the roll-ups yet.
func (c *counter) deltas(r reading) error {
	for _, row := range c.unfolded {
		at := row.At.UTC()
		if err := c.unpack(r, &packed{span: rollup.Hour, at: at, cells: row.Cells}); err != nil {
			return fmt.Errorf("outcomes of %v: %w", at, err)
		}
		if c.Group != ByJob {
			continue
		}
		parts, err := rollup.Split(row.Cells)
		if err != nil {
			return fmt.Errorf("outcomes of %v: %w", at, err)
		}
		for part, cells := range parts {
			c.rollups = append(c.rollups, packed{part: part, span: rollup.Hour, at: at, cells: cells})
		}
	}
	return nil
}

// each adds what is counted execution by execution.
func (c *counter) each(ctx context.Context, p db.SummarizeOutcomesParams) error {
	if !p.FromAt.Before(p.ToAt) {
		return nil
	}
	p.TenantID, p.JobID, p.JobType, p.TriggerType = c.tenant, c.JobID, columns.OrNull(c.JobType), columns.OrNull(c.Trigger)
	p.ByJob, p.ByType, p.ByTrigger = c.Group == ByJob, c.Group == ByType, c.Group == ByTrigger
	p.Starts = make([]time.Time, len(c.periods))
	for i, one := range c.periods {
		p.Starts[i] = one.start
	}
	rows, err := c.SummarizeOutcomes(ctx, p)
	if err != nil {
		return err
	}
	for _, row := range rows {
		cell := rollup.Cell{
			Job: row.JobID, Kind: rollup.Kind{JobType: row.JobType, Trigger: row.TriggerType, Status: row.Status},
			Bucket: int(row.Bucket), Rows: row.Rows, Retried: row.Retried, DurationMS: row.DurationMs,
		}
		if c.add(&cell, int(row.Period)-1); c.Group == ByJob {
			c.single = append(c.single, cell)
		}
	}
	return nil
}

// nameJobs says which jobs the groups are.
func (c *counter) nameJobs(ctx context.Context, q Query, groups []Summary) error {
	if q.Group != ByJob || len(groups) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, len(groups))
	for i, group := range groups {
		ids[i] = uuid.MustParse(group.Key)
	}
	rows, err := c.ListJobNames(ctx, db.ListJobNamesParams{TenantID: c.tenant, Ids: ids})
	if err != nil {
		return fmt.Errorf("read the names of jobs: %w", err)
	}
	names := make(map[uuid.UUID]string, len(rows))
	for _, r := range rows {
		names[r.ID] = r.Name
	}
	for i, id := range ids {
		groups[i].Name = names[id]
	}
	return nil
}
