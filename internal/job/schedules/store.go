package schedules

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Load reads the calendars that jobs name, in one statement and only where one
// of them names any. It reads them for all tenants, as postgres.Engine.
func Load(ctx context.Context, tx *postgres.Tx, specs iter.Seq[*job.Spec]) (Calendars, error) {
	var ids []uuid.UUID
	for spec := range specs {
		for _, c := range spec.Calendars {
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

// ReadNames reads which calendars a job names, as its row has them; nearly all
// jobs name none.
func ReadNames(stored json.RawMessage, into *job.Spec) error {
	if len(stored) <= len("[]") {
		return nil
	}
	if err := json.Unmarshal(stored, &into.Calendars); err != nil {
		return fmt.Errorf("read the named calendars: %w", err)
	}
	return nil
}
