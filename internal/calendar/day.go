package calendar

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// Day is a range as a person writes it: dates ("2026-12-24") or local times
// ("2026-12-24T18:00", with seconds where needed), without a zone, which the
// calendar has. A date as End is included, a local time as End is not; without
// End the range lasts until the end of the day of Start.
//
//	{Start: "2026-12-25"}                                      the whole day
//	{Start: "2026-12-24", End: "2026-12-26"}                   three days
//	{Start: "2026-12-24T18:00"}                                from 18:00 to midnight
//	{Start: "2026-11-27T18:00", End: "2026-11-30T06:00"}       06:00 itself is free
//	{Start: "2026-01-01", Yearly: true}                        each New Year's Day
type Day struct {
	Start, End string
	Yearly     bool
	Name       string // for people: a holiday's
}

// The forms of a moment: in the first a day, in the others a time of it. The
// last is how the database has it.
var layouts = []string{time.DateOnly, "2006-01-02T15:04", wallLayout}

// wallLayout is how a wall-clock moment is stored: without a zone, which the
// calendar has.
const wallLayout = "2006-01-02T15:04:05"

// ReadDays makes ranges of days, and lists each that cannot be read, under the
// contract's names.
func ReadDays(days []Day) ([]schedule.DateRange, []fault.Field) {
	ranges := make([]schedule.DateRange, len(days))
	var fields []fault.Field
	read := func(path, text string) (time.Time, bool) {
		for i, layout := range layouts {
			if at, err := time.Parse(layout, text); err == nil && len(text) == len(layout) {
				return at, i == 0
			}
		}
		fields = append(fields, fault.Field{
			Path: path, Rule: "pattern",
			Message: "must be a date such as 2026-12-24 or a local time such as 2026-12-24T18:00, without an offset, and exist",
		})
		return time.Time{}, false
	}
	for i, d := range days {
		r := schedule.DateRange{Yearly: d.Yearly, Name: d.Name}
		r.Start, _ = read(fmt.Sprintf("days[%d].start", i), d.Start)
		if d.End != "" {
			end, whole := read(fmt.Sprintf("days[%d].end", i), d.End)
			if whole {
				end = end.AddDate(0, 0, 1)
			}
			if r.End = end; len(fields) == 0 && !end.After(r.Start) {
				fields = append(fields, fault.Field{Path: fmt.Sprintf("days[%d].end", i), Rule: "order", Message: "comes before start"})
			}
		}
		ranges[i] = closed(r)
	}
	return ranges, fields
}

// WriteDay is the shortest form of a range: dates where it is whole days. Its
// End is always there.
func WriteDay(r schedule.DateRange) Day {
	r = closed(r)
	if midnight(r.Start) && midnight(r.End) {
		return Day{Start: r.Start.Format(time.DateOnly), End: r.End.AddDate(0, 0, -1).Format(time.DateOnly), Yearly: r.Yearly, Name: r.Name}
	}
	return Day{Start: r.Start.Format(wallLayout), End: r.End.Format(wallLayout), Yearly: r.Yearly, Name: r.Name}
}

// closed is a range with its end written out.
func closed(r schedule.DateRange) schedule.DateRange {
	if r.End.IsZero() {
		r.End = time.Date(r.Start.Year(), r.Start.Month(), r.Start.Day()+1, 0, 0, 0, 0, time.UTC)
	}
	return r
}

func midnight(t time.Time) bool { return t.Hour() == 0 && t.Minute() == 0 && t.Second() == 0 }

// storedRange is a range as the database has it: half-open, wall clock.
type storedRange struct {
	Start  string `json:"start"`
	End    string `json:"end"`
	Yearly bool   `json:"yearly,omitempty"`
	Name   string `json:"name,omitempty"`
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
		set.Days[i] = schedule.DateRange{Start: start, End: end, Yearly: r.Yearly, Name: r.Name}
	}
	return set, nil
}

// encode is the opposite of Decode.
func encode(ranges []schedule.DateRange) (json.RawMessage, error) {
	stored := make([]storedRange, len(ranges))
	for i, r := range ranges {
		r = closed(r)
		stored[i] = storedRange{Start: r.Start.Format(wallLayout), End: r.End.Format(wallLayout), Yearly: r.Yearly, Name: r.Name}
	}
	days, err := json.Marshal(stored)
	if err != nil {
		return nil, fmt.Errorf("write the calendar's days: %w", err)
	}
	return days, nil
}
