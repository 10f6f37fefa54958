package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/scheduler-service/scheduler/internal/fault/suggest"
	"github.com/scheduler-service/scheduler/internal/schedule/cron"
)

const (
	maxCalendars = 10
	maxDays      = 1000
	maxYearly    = 183 * day
)

// calendar is a compiled Calendar. Its ranges are wall seconds of its zone,
// merged and ascending, so that one look-up is a binary search.
type calendar struct {
	include bool
	zone    *zone
	dated   []span
	yearly  [2][]span // within a common year and within a leap year
}

// span is [from, to).
type span struct{ from, to int64 }

// free is the slot itself where the calendar admits it, else the first moment
// at which it might admit one again, but no later than the zone's next clock
// change, where the question has to be asked anew.
func (c *calendar) free(slot int64) int64 {
	at := floorDiv(slot, second)
	p := c.zone.at(at)
	wall := at + p.offset
	end, inside := c.covers(wall)
	if inside == c.include {
		return slot
	}
	if c.include {
		end = c.following(wall)
	}
	return min(end-p.offset, p.to) * second
}

// verdict says whether the calendar admits a slot, and until when its answer is
// surely the same: to the end of the range or the beginning of the next one, but
// no later than the zone's next clock change.
func (c *calendar) verdict(slot int64) (admits bool, until int64) {
	at := floorDiv(slot, second)
	p := c.zone.at(at)
	wall := at + p.offset
	end, inside := c.covers(wall)
	if !inside {
		end = c.following(wall)
	}
	return inside == c.include, min(end-p.offset, p.to) * second
}

// covers says whether a wall second lies in a range, and where that one ends.
func (c *calendar) covers(wall int64) (end int64, inside bool) {
	if s := find(c.dated, wall); s.from <= wall {
		return s.to, true
	}
	start, leap := yearStart(wall)
	if s := find(c.yearly[leap], wall-start); s.from <= wall-start {
		return start + s.to, true
	}
	return 0, false
}

// following is where the next range begins that covers does not know yet.
func (c *calendar) following(wall int64) int64 {
	next := find(c.dated, wall).from
	if len(c.yearly[0]) == 0 && len(c.yearly[1]) == 0 {
		return next
	}
	for range 9 { // two leap years are eight years apart at most
		start, leap := yearStart(wall)
		if s := find(c.yearly[leap], wall-start); s.from < day*366 {
			return min(next, start+s.from)
		}
		wall = start + int64(365+leap)*day
	}
	return next
}

// find is the first span that ends after a point; one in the far future where
// there is none.
func find(spans []span, point int64) span {
	i, _ := slices.BinarySearchFunc(spans, point, func(s span, point int64) int {
		if s.to <= point {
			return -1
		}
		return 1
	})
	if i == len(spans) {
		return span{farFuture, farFuture}
	}
	return spans[i]
}

// yearStart is the wall second at which a wall second's year began, and 1 when
// it is a leap year.
func yearStart(wall int64) (start int64, leap int) {
	first := time.Date(yearOf(wall), 1, 1, 0, 0, 0, 0, time.UTC)
	return first.Unix(), first.AddDate(1, 0, -1).YearDay() - 365
}

func (c *complaints) compileCalendars(given []Calendar) []calendar {
	if len(given) > maxCalendars {
		c.add("calendars", "maximum", "has %d items; at most %d", len(given), maxCalendars)
		return nil
	}
	var compiled []calendar
	for i, g := range given {
		next := c.calendar(fmt.Sprintf("calendars[%d].", i), g)
		// The excluded days of several calendars in one zone are looked up as one.
		same := slices.IndexFunc(compiled, func(k calendar) bool { return !k.include && !next.include && k.zone == next.zone })
		if same < 0 {
			compiled = append(compiled, next)
			continue
		}
		k := &compiled[same]
		k.dated = append(k.dated, next.dated...)
		for leap := range k.yearly {
			k.yearly[leap] = append(k.yearly[leap], next.yearly[leap]...)
		}
	}
	for i := range compiled {
		k := &compiled[i]
		k.dated, k.yearly[0], k.yearly[1] = merge(k.dated), merge(k.yearly[0]), merge(k.yearly[1])
	}
	return compiled
}

// calendar reads one calendar; its ranges are not merged yet.
func (c *complaints) calendar(path string, given Calendar) calendar {
	var out calendar
	switch given.Mode {
	case "", "exclude":
	case "include":
		out.include = true
	default:
		c.add(path+"mode", "enum", "%s", suggest.OneOf(given.Mode, []string{"exclude", "include"}))
	}
	var err error
	if out.zone, err = loadZone(given.Zone); err != nil {
		c.add(path+"zone", "zone", "%q %v", shorten(given.Zone), err)
	}
	if len(given.Days) > maxDays {
		c.add(path+"days", "maximum", "has %d items; at most %d", len(given.Days), maxDays)
		return out
	}
	for i, r := range given.Days {
		if message := out.add(r); message != "" {
			c.add(fmt.Sprintf("%sdays[%d]", path, i), "range", "%s", message)
		}
	}
	return out
}

// add takes a range in; it answers what is wrong with it.
func (c *calendar) add(r DateRange) string {
	from, to := wallOf(r.Start), wallOf(r.End)
	if r.End.IsZero() {
		to = from - from%day + day
	}
	switch {
	case r.Start.IsZero() || r.Start.Year() < firstYear || r.Start.Year() > cron.LastYear || to > wallOf(time.Unix(lastSecond+1, 0)):
		return fmt.Sprintf("must lie between %d and %d", firstYear, cron.LastYear)
	case to <= from:
		return "ends before it begins"
	case !r.Yearly:
		c.dated = append(c.dated, span{from, to})
		return ""
	case to-from > maxYearly:
		return "repeats yearly and may last at most 183 days"
	}
	for leap := range c.yearly {
		begin, ok := sinceNewYear(from, leap)
		end, exists := sinceNewYear(to, leap)
		if !exists { // to 29 February: to the end of the 28th
			end = (31 + 28) * day
		}
		switch {
		case yearOf(to) > yearOf(from):
			c.yearly[leap] = append(c.yearly[leap], span{begin, int64(365+leap) * day}, span{0, end})
		case ok:
			c.yearly[leap] = append(c.yearly[leap], span{begin, end})
		}
	}
	return ""
}

// sinceNewYear is how far into a common year (0) or a leap year (1) the date
// and time of a wall second lie; false for 29 February of a common year.
func sinceNewYear(wall int64, leap int) (int64, bool) {
	year := [2]int{2001, 2000}[leap]
	t := time.Unix(wall, 0).UTC()
	date := time.Date(year, t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
	return int64(date.YearDay()-1)*day + wall%day, date.Month() == t.Month()
}

func yearOf(wall int64) int { return time.Unix(wall, 0).UTC().Year() }

// wallOf reads a time's date and time of day, not its location.
func wallOf(t time.Time) int64 {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC).Unix()
}

// merge sorts spans and joins those that touch.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var out []span
	for _, s := range spans {
		if s.from == s.to {
			continue
		}
		if n := len(out); n > 0 && s.from <= out[n-1].to {
			out[n-1].to = max(out[n-1].to, s.to)
		} else {
			out = append(out, s)
		}
	}
	return out
}
