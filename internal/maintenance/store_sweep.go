package maintenance

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/hint"
	"github.com/scheduler-service/scheduler/internal/parking"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
)

// lost is an execution that was taken from a worker.
type lost struct {
	hint.Execution

	jobType    string
	verdict    string // pending, failed or cancelled
	workerLost bool   // otherwise its deadline passed
	tenant     uuid.UUID
	key        string // the concurrency key that it held; empty: none
}

// found is an execution that a step of a sweep concerns.
type found struct{ id, tenant, job uuid.UUID }

// String names it for the log.
func (f found) String() string {
	return fmt.Sprintf("execution %s (job %s, tenant %s)", f.id, f.job, f.tenant)
}

// idsOf are the ids of what was found; nil where that is nil.
func idsOf(some []found) []uuid.UUID {
	var ids []uuid.UUID
	for _, one := range some {
		ids = append(ids, one.id)
	}
	return ids
}

// listLost lists what reclaim would take, in any order.
func (s *store) listLost(ctx context.Context, now time.Time) ([]found, error) {
	rows, err := s.queries().ListLostExecutions(ctx, db.ListLostExecutionsParams{Now: postgres.At(now), BatchSize: sweepBatch})
	if err != nil {
		return nil, fmt.Errorf("list lost executions: %w", postgres.Fault(err))
	}
	out := make([]found, len(rows))
	for i, r := range rows {
		out[i] = found{r.ID, r.TenantID, r.JobID}
	}
	return out, nil
}

// reclaim reassigns or ends lost executions: some, or where that is nil a batch.
func (s *store) reclaim(ctx context.Context, now time.Time, some []found) ([]lost, error) {
	rows, err := db.New(s.db.Pool()).ReclaimExecutions(ctx, db.ReclaimExecutionsParams{
		Now: postgres.At(now), MaxLost: parking.MaxLost, BatchSize: sweepBatch, Ids: idsOf(some),
	})
	if err != nil {
		return nil, fmt.Errorf("reclaim executions: %w", postgres.Fault(err))
	}
	out := make([]lost, len(rows))
	for i, r := range rows {
		out[i] = lost{Execution: hint.Execution{ID: r.ID, Priority: int(r.Priority)}, jobType: r.JobType, verdict: r.Verdict, workerLost: r.WorkerLost, tenant: r.TenantID, key: columns.OrZero(r.ConcurrencyKey)}
	}
	return out, nil
}

// nextMost bounds how many of one tenant are named as the next in line, and
// nextWindow how many of one line are looked at that wait for a place or a key too.
const (
	nextMost   = 64
	nextWindow = 32
)

// next lists whose turn it is after executions ended: of their tenants, as far
// as these have room, and of the keys that they held.
func (s *store) next(ctx context.Context, now time.Time, ended []lost, maxRunning int) ([]hint.Execution, error) {
	if len(ended) == 0 {
		return nil, nil
	}
	p := db.ListNextExecutionsParams{
		Now: postgres.At(now), MaxRunning: int32(maxRunning), WindowSize: nextWindow, Most: nextMost, KeyTenantIds: []uuid.UUID{}, Keys: []string{},
	}
	seen := map[uuid.UUID]bool{}
	for _, e := range ended {
		if !seen[e.tenant] {
			seen[e.tenant] = true
			p.TenantIds = append(p.TenantIds, e.tenant)
		}
		if e.key != "" {
			p.KeyTenantIds, p.Keys = append(p.KeyTenantIds, e.tenant), append(p.Keys, e.key)
		}
	}
	rows, err := db.New(s.db.Pool()).ListNextExecutions(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("list the next in line: %w", postgres.Fault(err))
	}
	out := make([]hint.Execution, len(rows))
	for i, r := range rows {
		out[i] = hint.Execution{ID: r.ID, Priority: int(r.Priority)}
	}
	return out, nil
}

// poolLate puts into the pool what waits although its hint should have come
// until so long after now, some or where that is nil a batch, and says how many
// were moved.
func (s *store) poolLate(ctx context.Context, now time.Time, ahead time.Duration, some []found) (int, error) {
	n, err := s.queries().PoolLateExecutions(ctx, db.PoolLateExecutionsParams{
		Now: postgres.At(now), AheadMs: int32(ahead.Milliseconds()), BatchSize: sweepBatch, Ids: idsOf(some),
	})
	if err != nil {
		return 0, fmt.Errorf("pool late executions: %w", postgres.Fault(err))
	}
	return int(n), nil
}

// listLate lists what poolLate would move, in any order.
func (s *store) listLate(ctx context.Context, now time.Time, ahead time.Duration) ([]found, error) {
	rows, err := s.queries().ListLateExecutions(ctx, db.ListLateExecutionsParams{
		Now: postgres.At(now), AheadMs: int32(ahead.Milliseconds()), BatchSize: sweepBatch,
	})
	if err != nil {
		return nil, fmt.Errorf("list late executions: %w", postgres.Fault(err))
	}
	out := make([]found, len(rows))
	for i, r := range rows {
		out[i] = found{r.ID, r.TenantID, r.JobID}
	}
	return out, nil
}
