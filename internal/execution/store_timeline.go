package execution

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

const (
	// neighbourSpan is how long before an execution others of its tenant were scheduled
	// that are looked at, and siblingSpan those of its job.
	neighbourSpan, siblingSpan = time.Hour, 31 * 24 * time.Hour
	// maxNeighbours and maxSiblings bound how many are read: some 10 ms of PostgreSQL.
	maxNeighbours, maxSiblings = 2000, 500
)

// Timeline reads what an execution's time went to, from the records of it and of those
// that ran beside it: at most maxNeighbours of its tenant and maxSiblings of its job.
func (s *Store) Timeline(ctx context.Context, who tenant.Actor, id uuid.UUID) (t Timeline, err error) {
	err = s.db.InSnapshot(ctx, who.TenantID, func(tx *postgres.Tx) error {
		e, err := get(ctx, tx, who, id)
		if err != nil {
			return err
		}
		one := []Execution{e}
		if err := s.explain(ctx, tx, who.TenantID, one); err != nil {
			return err
		}
		l, err := tx.GetLimitsOfExecution(ctx, db.GetLimitsOfExecutionParams{TenantID: who.TenantID, JobID: e.JobID, JobType: e.JobType, MaxRunning: int32(s.c.TenantMaxRunning())})
		if err != nil {
			return fmt.Errorf("read the limits of an execution: %w", err)
		}
		near, partial, err := neighbours(ctx, tx, e, l.At)
		if err != nil {
			return fmt.Errorf("read what ran beside an execution: %w", err)
		}
		t = timelineOf(one[0], near, bounds{job: int(l.OfJob), jobType: int(l.OfType), tenant: int(l.OfTenant)}, l.At.UTC())
		t.Partial = partial
		return nil
	})
	return t, err
}

// neighbours are the executions that ran while one waited. Where it did not wait nothing
// is read.
func neighbours(ctx context.Context, tx *postgres.Tx, e Execution, at time.Time) (near []neighbour, partial bool, err error) {
	ready, start := waited(e, at)
	if !start.After(ready) {
		return nil, false, nil
	}
	until := start.Add(time.Microsecond)
	all, err := tx.ListNeighbours(ctx, db.ListNeighboursParams{TenantID: e.TenantID, FromAt: ready.Add(-neighbourSpan), ToAt: until, Most: maxNeighbours})
	if err != nil {
		return nil, false, err
	}
	own, err := tx.ListSiblings(ctx, db.ListSiblingsParams{TenantID: e.TenantID, JobID: e.JobID, FromAt: ready.Add(-siblingSpan), ToAt: until, Most: maxSiblings})
	if err != nil {
		return nil, false, err
	}
	partial = len(all) == maxNeighbours || len(own) == maxSiblings
	for _, r := range own {
		all = append(all, db.ListNeighboursRow(r))
	}
	seen := map[uuid.UUID]bool{e.ID: true}
	for _, r := range all {
		end := at
		if r.CompletedAt != nil {
			end = *r.CompletedAt
		}
		if seen[r.ID] || r.StartedAt == nil || r.StartedAt.After(start) || !end.After(ready) {
			continue
		}
		seen[r.ID] = true
		near = append(near, neighbour{id: r.ID, job: r.JobID, jobType: r.JobType, createdAt: r.CreatedAt, from: *r.StartedAt, to: end})
	}
	return near, partial, nil
}
