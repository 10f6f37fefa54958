package schedules

import (
	"context"
	"fmt"
	"iter"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Load reads the calendars that jobs name, in one statement and only where one
// of them names any. It reads them for all tenants, as postgres.Engine.
func Load(ctx context.Context, tx *postgres.Tx, policies iter.Seq[*job.Policy]) (Calendars, error) {
	var ids []uuid.UUID
	for policy := range policies {
		for _, c := range policy.Calendars {
			ids = append(ids, c.ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := tx.ListCalendarsOfJobs(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read calendars: %w", err)
	}
	found := make(Calendars, len(rows))
	for _, r := range rows {
		set, err := calendar.Decode(r.Timezone, r.Days)
		found[r.ID] = content{set: set, version: r.Version, unreadable: err}
	}
	return found, nil
}
