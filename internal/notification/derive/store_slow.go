package derive

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// readSlow finds executions that completed and took much longer than usual, and keeps what is usual.
// How long an execution waited does not count, so an outage of ours makes none slow.
func readSlow(ctx context.Context, tx *postgres.Tx, from, to time.Time) (all []happening, err error) {
	rows, err := tx.ListCompletedDurations(ctx, db.ListCompletedDurationsParams{FromAt: from, ToAt: to})
	if err != nil {
		return nil, fmt.Errorf("list what executions took: %w", err)
	}
	if len(rows) == 0 {
		return nil, nil
	}
	paces := make(map[uuid.UUID]pace, len(rows))
	for _, r := range rows {
		paces[r.JobID] = pace{tenant: r.TenantID}
	}
	kept, err := tx.ListJobDurations(ctx, slices.Collect(maps.Keys(paces)))
	if err != nil {
		return nil, fmt.Errorf("list how long jobs take: %w", err)
	}
	for _, k := range kept {
		paces[k.JobID] = pace{tenant: k.TenantID, usual: time.Duration(k.UsualUs) * time.Microsecond, runs: int(k.Runs), slow: k.Slow}
	}
	for _, r := range rows {
		took, usual := time.Duration(r.DurationUs)*time.Microsecond, paces[r.JobID].usual
		after, first := paces[r.JobID].add(took)
		if paces[r.JobID] = after; !first {
			continue
		}
		o := outcome{tenant: r.TenantID, job: r.JobID, id: r.ID, name: r.JobName, tags: r.Tags, scheduledAt: r.ScheduledAt.UTC(), at: r.CompletedAt.UTC()}
		e := o.event("execution.slow")
		e.Attempt, e.DurationMS, e.UsualMS = int(r.Attempt), took.Milliseconds(), usual.Milliseconds()
		all = append(all, e)
	}
	return all, keepPaces(ctx, tx, paces)
}

func keepPaces(ctx context.Context, tx *postgres.Tx, paces map[uuid.UUID]pace) error {
	var p db.UpsertJobDurationsParams
	for job, pace := range paces {
		p.JobIds, p.Owners, p.UsualsUs = append(p.JobIds, job), append(p.Owners, pace.tenant), append(p.UsualsUs, pace.usual.Microseconds())
		p.Runs, p.Slow = append(p.Runs, int32(pace.runs)), append(p.Slow, pace.slow)
	}
	if err := tx.UpsertJobDurations(ctx, p); err != nil {
		return fmt.Errorf("keep how long jobs take: %w", err)
	}
	return nil
}
