// Package calendar is a tenant's named set of dates and ranges, which jobs
// exclude (holidays, freezes) or are bound to (business days).
//
// It owns the set, its validation and its store. It refuses to decide when a
// job is due: package schedule does, with the set as a value. Called by job,
// promoter and rest.
package calendar

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/internal/schedule"
)

// wallLayout is how a wall-clock moment is stored: without a zone, which the
// calendar has.
const wallLayout = "2006-01-02T15:04:05"

// storedRange is a range as the database has it: half-open, wall clock.
type storedRange struct {
	Start  string `json:"start"`
	End    string `json:"end"`
	Yearly bool   `json:"yearly,omitempty"`
}

// Decode reads a stored set. The mode is the job's, not the calendar's, and
// stays empty.
func Decode(zone string, days json.RawMessage) (schedule.Calendar, error) {
	var stored []storedRange
	if err := json.Unmarshal(days, &stored); err != nil {
		return schedule.Calendar{}, fmt.Errorf("read the calendar's days: %w", err)
	}
	set := schedule.Calendar{Zone: zone, Days: make([]schedule.DateRange, len(stored))}
	for i, r := range stored {
		start, err := time.Parse(wallLayout, r.Start)
		if err != nil {
			return schedule.Calendar{}, fmt.Errorf("read the calendar's days: %w", err)
		}
		end, err := time.Parse(wallLayout, r.End)
		if err != nil {
			return schedule.Calendar{}, fmt.Errorf("read the calendar's days: %w", err)
		}
		set.Days[i] = schedule.DateRange{Start: start, End: end, Yearly: r.Yearly}
	}
	return set, nil
}
