// Package period cuts time into the hours and days of a zone's clock.
//
// It owns where an hour and a day begin and end, also where clocks are changed. It reads
// no clock itself.
package period

import "time"

// Hour is the beginning of the hour of a zone's clock, and where the next one
// begins: after an hour, or where the clock is changed.
func Hour(t time.Time, zone *time.Location) (at, end time.Time) {
	local := t.In(zone)
	_, offset := local.Zone()
	at = t.Add(time.Duration(offset) * time.Second).Truncate(time.Hour).Add(-time.Duration(offset) * time.Second)
	end = at.Add(time.Hour)
	if _, change := local.ZoneBounds(); !change.IsZero() && change.Before(end) {
		end = change
	}
	return at.UTC(), end.UTC()
}

// Day is the first time of the day of a zone's calendar, and that of the next
// one. There are days that a zone has left out.
func Day(t time.Time, zone *time.Location) (at, end time.Time) {
	year, month, day := t.In(zone).Date()
	for end = t; !end.After(t); {
		day++
		end = startOfDay(year, month, day, zone)
	}
	return startOfDay(year, month, t.In(zone).Day(), zone), end
}

// startOfDay is when a date begins, whose midnight may come twice or never.
func startOfDay(year int, month time.Month, day int, zone *time.Location) time.Time {
	wanted := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	first := time.Date(year, month, day, 0, 0, 0, 0, zone)
	before := func(t time.Time) bool {
		y, m, d := t.In(zone).Date()
		return time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Before(wanted)
	}
	if before(first) { // there is no midnight, and this is the one that the clock before would show
		_, first = first.ZoneBounds()
	}
	if change, _ := first.ZoneBounds(); !change.IsZero() {
		_, offset := change.Add(-time.Second).In(zone).Zone()
		earlier := wanted.Add(-time.Duration(offset) * time.Second) // midnight by the clock before
		if earlier.Before(change) && earlier.Before(first) && !before(earlier) {
			first = earlier
		}
	}
	return first.UTC()
}
