package calendar

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// Load reads a tenant's calendars by id as they are now. An id that is not
// there is missing from the answer.
func Load(ctx context.Context, tx *postgres.Tx, tenant uuid.UUID, ids []uuid.UUID) (map[uuid.UUID]schedule.Calendar, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := tx.ListCalendarsByKeys(ctx, db.ListCalendarsByKeysParams{TenantID: tenant, Ids: ids})
	if err != nil {
		return nil, fmt.Errorf("read calendars: %w", err)
	}
	return sets(rows)
}

// Hold is Load for a job that is about to name them: until its transaction
// commits, none of them changes or goes.
func Hold(ctx context.Context, tx *postgres.Tx, tenant uuid.UUID, ids []uuid.UUID) (map[uuid.UUID]schedule.Calendar, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := tx.HoldCalendars(ctx, db.HoldCalendarsParams{TenantID: tenant, Ids: ids})
	if err != nil {
		return nil, fmt.Errorf("hold calendars: %w", err)
	}
	return sets(rows)
}

func sets(rows []db.Calendar) (map[uuid.UUID]schedule.Calendar, error) {
	found := make(map[uuid.UUID]schedule.Calendar, len(rows))
	for _, r := range rows {
		set, err := Decode(r.Timezone, r.Days)
		if err != nil {
			return nil, err
		}
		found[r.ID] = set
	}
	return found, nil
}
