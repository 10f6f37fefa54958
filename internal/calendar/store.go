package calendar

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// Load reads a tenant's calendars by id, inside the transaction of the job
// that names them: until it commits, none of them changes. An id that is not
// there is missing from the answer.
func Load(ctx context.Context, tx *postgres.Tx, tenant uuid.UUID, ids []uuid.UUID) (map[uuid.UUID]schedule.Calendar, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := tx.ListCalendarsByIDs(ctx, db.ListCalendarsByIDsParams{TenantID: tenant, Ids: ids})
	if err != nil {
		return nil, fmt.Errorf("read calendars: %w", err)
	}
	found := make(map[uuid.UUID]schedule.Calendar, len(rows))
	for _, r := range rows {
		if found[r.ID], err = Decode(r.Timezone, r.Days); err != nil {
			return nil, err
		}
	}
	return found, nil
}
