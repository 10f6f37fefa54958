package execution

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// explain fills in what those of a page wait for that do: one statement more,
// and none where all have finished.
func (s *Store) explain(ctx context.Context, tx *postgres.Tx, tenant uuid.UUID, page []Execution) error {
	at := map[uuid.UUID]int{}
	var ids []uuid.UUID
	for i, e := range page {
		if e.Status == Pending || e.Status == Retrying || e.Status == Running {
			at[e.ID] = i
			ids = append(ids, e.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := tx.ListObstacles(ctx, db.ListObstaclesParams{TenantID: tenant, Ids: ids, MaxRunning: int32(s.c.TenantMaxRunning())})
	if err != nil {
		return fmt.Errorf("ask what executions wait for: %w", err)
	}
	for _, r := range rows {
		o := obstacles{
			at: r.At, status: Status(r.Status), trigger: Trigger(r.TriggerType), scheduledAt: r.ScheduledAt, availableAt: r.AvailableAt.UTC(),
			held: r.HeldHost, served: r.Served, cancelling: r.Cancelling, gate: int(r.ConcurrencyLimit), taken: int(r.Taken), key: textOf(r.ConcurrencyKey), keyTaken: r.KeyTaken,
			running: int(r.Running), max: int(r.MaxRunning), typeRunning: int(r.TypeRunning),
		}
		if r.TypeLimit >= 0 {
			limit := int(r.TypeLimit)
			o.typeLimit = &limit
		}
		page[at[r.ID]].WaitingOn = o.wait()
	}
	return nil
}
