package derive

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// untold lists events of monitors that wait to be told, the oldest first.
func (s store) untold(ctx context.Context, most int) ([]uuid.UUID, error) {
	ids, err := db.New(s.db.Pool()).ListMonitorEvents(ctx, int32(most))
	if err != nil {
		return nil, fmt.Errorf("list what monitors found: %w", postgres.Fault(err))
	}
	return ids, nil
}

// tellMonitors makes deliveries of some events and removes them, in one transaction. It takes
// turns with the pass that derives events, so that both add to one message that collects.
func (s store) tellMonitors(ctx context.Context, ids []uuid.UUID) (r Report, err error) {
	err = s.db.InTx(ctx, func(tx *postgres.Tx) error {
		if _, err := tx.LockNotificationCursor(ctx); err != nil {
			return fmt.Errorf("wait for the other pass that tells: %w", err)
		}
		rows, err := tx.ReadMonitorEvents(ctx, ids)
		if err != nil {
			return fmt.Errorf("read what monitors found: %w", err)
		}
		happened := make([]happening, len(rows))
		for i, row := range rows {
			happened[i] = happening{tenant: row.TenantID, tags: row.Tags}
			if err := json.Unmarshal(row.Event, &happened[i].Event); err != nil {
				return fmt.Errorf("event %s: %w: %w", row.ID, errUnreadable, err)
			}
		}
		if len(happened) > 0 {
			if r, err = tell(ctx, tx, happened); err != nil {
				return err
			}
		}
		if err := tx.DeleteMonitorEvents(ctx, ids); err != nil {
			return fmt.Errorf("remove what was told: %w", err)
		}
		return nil
	})
	return r, err
}

func (s store) dropMonitorEvent(ctx context.Context, id uuid.UUID) error {
	if err := db.New(s.db.Pool()).DeleteMonitorEvents(ctx, []uuid.UUID{id}); err != nil {
		return fmt.Errorf("remove what cannot be told: %w", postgres.Fault(err))
	}
	return nil
}
