package statistics

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// maxMembers bounds the list of workers.
const maxMembers = 1000

// Store reads the numbers. Each method acts for one tenant.
type Store struct{ db *postgres.DB }

// NewStore makes a store.
func NewStore(db *postgres.DB) *Store { return &Store{db: db} }

// Overview reads a tenant's jobs and its backlog.
func (s *Store) Overview(ctx context.Context, who tenant.Actor) (o Overview, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		jobs, err := tx.CountJobsByStatus(ctx, db.CountJobsByStatusParams{TenantID: who.TenantID, Now: tx.At})
		if err != nil {
			return fmt.Errorf("count jobs: %w", err)
		}
		o = Overview{Active: jobs.Active, Paused: jobs.Paused, Inactive: jobs.Inactive, Lag: tx.At.Sub(jobs.OldestDueAt)}
		o.Backlogs, err = backlogs(ctx, tx, who)
		return err
	})
	return o, err
}

// Backlogs reads a tenant's backlog in each lane.
func (s *Store) Backlogs(ctx context.Context, who tenant.Actor) (lanes []Backlog, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		lanes, err = backlogs(ctx, tx, who)
		return err
	})
	return lanes, err
}

func backlogs(ctx context.Context, tx *postgres.Tx, who tenant.Actor) ([]Backlog, error) {
	rows, err := tx.CountActiveByPriority(ctx, db.CountActiveByPriorityParams{TenantID: who.TenantID, Now: tx.At})
	if err != nil {
		return nil, fmt.Errorf("count active executions: %w", err)
	}
	lanes := []Backlog{{Lane: queue.High}, {Lane: queue.Normal}, {Lane: queue.Low}}
	for _, r := range rows {
		for i := range lanes {
			if l := &lanes[i]; l.Lane == queue.LaneFor(int(r.Priority)) {
				l.Running, l.Waiting, l.Delayed = l.Running+r.Running, l.Waiting+r.Waiting, l.Delayed+r.Delayed
				l.Oldest = max(l.Oldest, tx.At.Sub(r.OldestAt))
			}
		}
	}
	return lanes, nil
}

// Members lists the workers that live, the oldest first, at most 1,000.
func (s *Store) Members(ctx context.Context, who tenant.Actor) (members []Member, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err := tx.ListLiveWorkers(ctx, maxMembers)
		if err != nil {
			return fmt.Errorf("list workers: %w", err)
		}
		runs, err := tx.CountRunsByWorker(ctx, who.TenantID)
		if err != nil {
			return fmt.Errorf("count the runs on each worker: %w", err)
		}
		own := map[uuid.UUID]int64{}
		for _, r := range runs {
			own[r.WorkerID] = r.Running
		}
		members = make([]Member, len(rows))
		for i, r := range rows {
			members[i] = Member{
				ID: r.ID, Host: r.Host, Slots: int(r.Slots), Running: int(r.Running), Own: own[r.ID], Types: r.JobTypes,
				StartedAt: r.StartedAt.UTC(), HeartbeatAge: max(0, r.At.Sub(r.HeartbeatAt)),
			}
		}
		return nil
	})
	return members, err
}
