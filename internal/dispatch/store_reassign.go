package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Reassign makes executions pending again whose worker is dead or whose deadline
// passed, or ends those that must not be tried again: some, or where that is nil up to
// SweepBatch. A zero now means the database's clock.
func (s *Store) Reassign(ctx context.Context, now time.Time, some []Found) ([]Lost, error) {
	rows, err := s.queries().ReassignExecutions(ctx, db.ReassignExecutionsParams{
		Now: postgres.At(now), MaxLost: maxLost, BatchSize: SweepBatch, Ids: idsOf(some),
	})
	if err != nil {
		return nil, fmt.Errorf("reassign executions: %w", postgres.Fault(err))
	}
	out := make([]Lost, len(rows))
	for i, r := range rows {
		out[i] = Lost{
			Waiting: Waiting{ID: r.ID, Priority: int(r.Priority)}, Tenant: r.TenantID, JobType: r.JobType, Verdict: r.Verdict, WorkerLost: r.WorkerLost,
			Freed: freed(true, r.TenantID, r.ConcurrencyKey),
		}
	}
	return out, nil
}

// ListLost lists what Reassign would take, in any order.
func (s *Store) ListLost(ctx context.Context, now time.Time) ([]Found, error) {
	rows, err := s.queries().ListLostExecutions(ctx, db.ListLostExecutionsParams{Now: postgres.At(now), BatchSize: SweepBatch})
	if err != nil {
		return nil, fmt.Errorf("list lost executions: %w", postgres.Fault(err))
	}
	out := make([]Found, len(rows))
	for i, r := range rows {
		out[i] = Found{ID: r.ID, Tenant: r.TenantID, Job: r.JobID}
	}
	return out, nil
}

// ParkLost parks an execution that Reassign would take and that the database refuses
// to change so; why is what it said. It returns what was freed, and nothing where
// another process was quicker.
func (s *Store) ParkLost(ctx context.Context, now time.Time, id uuid.UUID, why string) ([]Lost, error) {
	rows, err := s.queries().ParkLostExecutions(ctx, db.ParkLostExecutionsParams{
		Now: postgres.At(now), Ids: []uuid.UUID{id}, Reasons: []string{reason(why)}, MaxLost: maxLost,
	})
	if err != nil {
		return nil, fmt.Errorf("park a lost execution: %w", postgres.Fault(err))
	}
	out := make([]Lost, len(rows))
	for i, r := range rows {
		out[i] = Lost{Waiting: Waiting{ID: r.ID}, Tenant: r.TenantID, Verdict: "parked", Freed: freed(true, r.TenantID, r.ConcurrencyKey)}
	}
	return out, nil
}
