package schedule_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/adhocore/gronx"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/schedule"
	"github.com/scheduler-service/scheduler/internal/schedule/cron"
)

// The oracle knows an expression as predicates, made together with its text and
// not by reading it, and walks real time minute by minute (or second by
// second), asking the standard library what the clock on the wall says. It
// shares no line with the engine.

type expression struct {
	text                 string
	second, minute, hour func(int) bool
	month, year          func(int) bool
	date, weekday        func(year int, month time.Month, day int) bool
	anyDate, anyWeekday  bool
	everyHour            bool
}

func (e *expression) onDay(year int, month time.Month, day int) bool {
	if !e.month(int(month)) || !e.year(year) {
		return false
	}
	switch {
	case e.anyDate && e.anyWeekday:
		return true
	case e.anyDate:
		return e.weekday(year, month, day)
	case e.anyWeekday:
		return e.date(year, month, day)
	}
	return e.date(year, month, day) || e.weekday(year, month, day)
}

// matches asks about a wall time, as one of UTC.
func (e *expression) matches(wall time.Time) bool {
	return e.second(wall.Second()) && e.minute(wall.Minute()) && e.hour(wall.Hour()) && e.onDay(wall.Date())
}

// values draws a list of items and the set that they stand for.
func values(t *rapid.T, low, high int, names []string) (string, map[int]bool) {
	set := map[int]bool{}
	var items []string
	write := func(v int) string {
		if names != nil && rapid.IntRange(0, 3).Draw(t, "name") == 0 {
			name := names[(v-low)%len(names)]
			return rapid.SampledFrom([]string{name, strings.ToLower(name), name[:1] + strings.ToLower(name[1:])}).Draw(t, "case")
		}
		return fmt.Sprint(v)
	}
	for range rapid.IntRange(1, 3).Draw(t, "items") {
		from := rapid.IntRange(low, high).Draw(t, "from")
		to := rapid.IntRange(from, high).Draw(t, "to")
		step := rapid.IntRange(1, min(high, 129)).Draw(t, "step")
		add := func(from, to, step int) {
			for v := from; v <= to; v += step {
				set[v] = true
			}
		}
		switch rapid.IntRange(0, 5).Draw(t, "form") {
		case 0:
			items = append(items, fmt.Sprintf("*/%d", step))
			add(low, high, step)
		case 1:
			items = append(items, fmt.Sprintf("%s-%s", write(from), write(to)))
			add(from, to, 1)
		case 2:
			items = append(items, fmt.Sprintf("%s-%s/%d", write(from), write(to), step))
			add(from, to, step)
		case 3:
			items = append(items, fmt.Sprintf("%s/%d", write(from), step))
			add(from, high, step)
		default:
			items = append(items, write(from))
			add(from, from, 1)
		}
	}
	return strings.Join(items, ","), set
}

// plain draws a field: often *, else a list.
func plain(t *rapid.T, low, high int, names []string) (string, func(int) bool, bool) {
	if rapid.IntRange(0, 2).Draw(t, "star") == 0 {
		return "*", func(int) bool { return true }, true
	}
	text, set := values(t, low, high, names)
	return text, func(v int) bool { return set[v] }, len(set) == high-low+1
}

func dateField(t *rapid.T) (string, func(int, time.Month, int) bool, bool) {
	n := rapid.IntRange(1, 31).Draw(t, "n")
	switch rapid.IntRange(0, 9).Draw(t, "date") {
	case 0:
		return "L", func(y int, m time.Month, d int) bool { return d == monthLength(y, m) }, false
	case 1:
		return fmt.Sprintf("%dW", n), func(y int, m time.Month, d int) bool { return d == workdayNear(y, m, n) }, false
	case 2:
		return fmt.Sprintf("L,%dW,%d", n, n), func(y int, m time.Month, d int) bool {
			return d == monthLength(y, m) || d == workdayNear(y, m, n) || d == n
		}, false
	case 3:
		return "?", nil, true
	}
	text, in, every := plain(t, 1, 31, nil)
	return text, func(_ int, _ time.Month, d int) bool { return in(d) }, every
}

var (
	weekdayNames = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}
	monthNames   = []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
)

func weekdayField(t *rapid.T) (string, func(int, time.Month, int) bool, bool) {
	n, k := rapid.IntRange(0, 7).Draw(t, "n"), rapid.IntRange(1, 5).Draw(t, "k")
	of := func(y int, m time.Month, d int) int { return int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Weekday()) }
	switch rapid.IntRange(0, 9).Draw(t, "weekday") {
	case 0:
		return fmt.Sprintf("%dL", n), func(y int, m time.Month, d int) bool {
			return of(y, m, d) == n%7 && d+7 > monthLength(y, m)
		}, false
	case 1:
		return fmt.Sprintf("%s#%d,%dL", weekdayNames[n%7], k, n), func(y int, m time.Month, d int) bool {
			return of(y, m, d) == n%7 && (d > 7*(k-1) && d <= 7*k || d+7 > monthLength(y, m))
		}, false
	case 2:
		return fmt.Sprintf("%d-7", n), func(y int, m time.Month, d int) bool {
			return of(y, m, d) >= n || of(y, m, d) == 0
		}, n <= 1
	case 3:
		return "?", nil, true
	}
	text, in, every := plain(t, 0, 6, weekdayNames)
	return text, func(y int, m time.Month, d int) bool { return in(of(y, m, d)) }, every
}

func monthLength(y int, m time.Month) int { return time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day() }

func workdayNear(y int, m time.Month, n int) int {
	best, distance := 0, 99
	for d := 1; d <= monthLength(y, m) && n <= monthLength(y, m); d++ {
		weekday := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Weekday()
		if away := max(d-n, n-d); weekday != time.Saturday && weekday != time.Sunday && away < distance {
			best, distance = d, away
		}
	}
	return best
}

// drawExpression draws six or five fields.
func drawExpression(t *rapid.T) *expression {
	e := &expression{year: func(int) bool { return true }}
	var text [6]string
	text[0], e.second, _ = plain(t, 0, 59, nil)
	text[1], e.minute, _ = plain(t, 0, 59, nil)
	text[2], e.hour, e.everyHour = plain(t, 0, 23, nil)
	text[3], e.date, e.anyDate = dateField(t)
	text[4], e.month, _ = plain(t, 1, 12, monthNames)
	text[5], e.weekday, e.anyWeekday = weekdayField(t)
	e.text = strings.Join(text[:], " ")
	if rapid.IntRange(0, 4).Draw(t, "five") == 0 {
		e.text = strings.Join(text[1:], " ")
		e.second = func(s int) bool { return s == 0 }
	}
	return e
}

// clock asks the standard library for the offset of a zone.
type clock struct{ zone *time.Location }

func (c clock) offset(t int64) int64 {
	_, offset := time.Unix(t, 0).In(c.zone).Zone()
	return int64(offset)
}

// offsets are those in force in a window and within 26 hours of it.
func (c clock) offsets(after, until int64) []int64 {
	seen := map[int64]bool{}
	var list []int64
	for u := after - 26*3600; u <= until+26*3600; u += 900 {
		if o := c.offset(u); !seen[o] {
			seen[o] = true
			list = append(list, o)
		}
	}
	return list
}

// due is the rule of docs/reference/cron.md, word for word, about one second.
func (c clock) due(e *expression, def schedule.Definition, t int64, near []int64) bool {
	offset := c.offset(t)
	wall := t + offset
	regular := e.matches(time.Unix(wall, 0).UTC())
	if e.everyHour {
		return regular
	}
	for _, o := range near {
		u := wall - o // would show the same wall time, if o were in force then
		if u == t || c.offset(u) != o {
			continue
		}
		if u < t && (def.DSTOverlap == "" || def.DSTOverlap == "first") || u > t && def.DSTOverlap == "last" {
			regular = false
		}
	}
	return regular || def.DSTGap != "skip" && c.moved(e, t, near)
}

// moved says whether a skipped wall time is due at t: one that the clock would
// show now had it not been put forward.
func (c clock) moved(e *expression, t int64, near []int64) bool {
	for _, before := range near {
		wall := t + before
		if before >= c.offset(t) || !e.matches(time.Unix(wall, 0).UTC()) {
			continue
		}
		exists := false
		for _, o := range near {
			exists = exists || c.offset(wall-o) == o
		}
		// The change lies less than its own length back, and before it that
		// offset was in force.
		if length := c.offset(t) - before; !exists && c.offset(t-length) == before {
			return true
		}
	}
	return false
}

// walk lists all scheduled times in (after, until].
func (c clock) walk(e *expression, def schedule.Definition, after, until int64) []time.Time {
	var list []time.Time
	near := c.offsets(after, until)
	wholeMinutes := true
	for _, o := range near {
		wholeMinutes = wholeMinutes && o%60 == 0
	}
	for minute := after - after%60; minute <= until; minute += 60 {
		if wholeMinutes && !c.minutePossible(e, minute, near) {
			continue
		}
		for t := minute; t < minute+60; t++ {
			if t > after && t <= until && (!wholeMinutes || e.second(int(t%60))) && c.due(e, def, t, near) {
				list = append(list, time.Unix(t, 0).UTC())
			}
		}
	}
	return list
}

// minutePossible saves asking 60 times where no offset shows a matching time.
func (c clock) minutePossible(e *expression, minute int64, near []int64) bool {
	for _, o := range near {
		w := time.Unix(minute+o, 0).UTC()
		if e.minute(w.Minute()) && e.hour(w.Hour()) && e.onDay(w.Date()) {
			return true
		}
	}
	return false
}

// changes are zones and days on which their clocks did or will do something
// unusual, each by UTC midnight of the day before.
var changes = []struct {
	zone string
	day  string
}{
	{"UTC", "2026-02-27"},
	{"America/New_York", "2026-03-08"},
	{"America/New_York", "2026-11-01"},
	{"Europe/London", "2026-03-29"},
	{"Europe/London", "2026-10-25"},
	{"Europe/Dublin", "2026-10-25"},
	{"Europe/Berlin", "2031-03-30"},
	{"Australia/Lord_Howe", "2026-04-04"},
	{"Australia/Lord_Howe", "2026-10-03"}, // half an hour
	{"Pacific/Apia", "2011-12-30"},        // a day that never was
	{"Pacific/Kwajalein", "1993-08-21"},   // another, with its midnight
	{"Pacific/Chatham", "2026-04-04"},
	{"Pacific/Chatham", "2026-09-26"}, // quarter-hour offset
	{"America/Santiago", "2026-04-05"},
	{"America/Santiago", "2026-09-06"}, // at midnight
	{"America/Havana", "2026-03-08"},
	{"America/Havana", "2026-11-01"}, // at midnight
	{"Africa/Cairo", "2026-04-24"},
	{"Africa/Cairo", "2026-10-29"}, // at midnight
	{"Asia/Beirut", "2026-03-29"},
	{"Asia/Beirut", "2026-10-24"}, // at midnight
	{"Atlantic/Azores", "2026-03-29"},
	{"Atlantic/Azores", "2026-10-25"}, // at midnight
	{"America/Sao_Paulo", "2018-11-04"},
	{"America/Asuncion", "2023-10-01"}, // at midnight
	{"Africa/Casablanca", "2025-02-23"},
	{"Africa/Casablanca", "2025-04-06"}, // Ramadan
	{"America/St_Johns", "2026-11-01"},
	{"Asia/Kathmandu", "1985-12-31"}, // by 15 minutes
	{"Antarctica/Troll", "2026-03-29"},
	{"Antarctica/Troll", "2026-10-25"}, // two hours
	{"Antarctica/Casey", "2010-03-04"},
	{"Antarctica/Casey", "2009-10-17"}, // three hours
	{"America/Caracas", "2007-12-09"},
	{"Asia/Pyongyang", "2018-05-04"}, // half an hour, once
	{"America/New_York", "2028-12-31"},
	{"Europe/London", "2040-12-31"},   // ends of leap years
	{"Africa/Monrovia", "1972-01-07"}, // by 44 minutes 30 seconds
}

// drawChange draws one of the unusual changes above, or the first one after any
// day in any zone.
func drawChange(t *rapid.T, names []string) (zone *time.Location, day int64) {
	if rapid.Bool().Draw(t, "unusual") {
		change := rapid.SampledFrom(changes).Draw(t, "change")
		zone, _ := time.LoadLocation(change.zone)
		midnight, _ := time.Parse(time.DateOnly, change.day)
		return zone, midnight.Unix()
	}
	zone, err := time.LoadLocation(rapid.SampledFrom(names).Draw(t, "zone"))
	if err != nil {
		t.Skip("not a zone")
	}
	day = rapid.Int64Range(1, 75*365).Draw(t, "day") * 86400
	for limit := day + 400*86400; day < limit && (clock{zone}).offset(day) == (clock{zone}).offset(day+86400); day += 86400 {
	}
	return zone, day
}

// TestOracle compares the engine with the walk around clock changes, for every
// policy. More runs: go test -run Oracle -rapid.checks=10000.
func TestOracle(t *testing.T) {
	t.Parallel()
	names := schedule.ZoneNames(t)
	rapid.Check(t, func(t *rapid.T) {
		zone, day := drawChange(t, names)
		e := drawExpression(t)
		def := schedule.Definition{
			Cron: e.text, Zone: zone.String(),
			DSTGap:     rapid.SampledFrom([]schedule.Gap{"", "shift", "skip"}).Draw(t, "gap"),
			DSTOverlap: rapid.SampledFrom([]schedule.Overlap{"", "first", "last", "both"}).Draw(t, "overlap"),
		}
		s, err := schedule.Compile(def)
		if err != nil {
			t.Skip("a date that never comes")
		}
		after := day - 12*3600 + rapid.Int64Range(0, 48*3600).Draw(t, "start")
		until := after + 3600*rapid.SampledFrom([]int64{6, 6, 18, 60}).Draw(t, "hours")
		want := clock{zone}.walk(e, def, after, until)
		got := window(s, time.Unix(after, 0), time.Unix(until, 0))
		sameTimes(t, def, want, got)
	})
}

// window is what Next gives in (after, until].
func window(s *schedule.Schedule, after, until time.Time) []time.Time {
	var list []time.Time
	for {
		next, ok := s.Next(after)
		if !ok || next.After(until) {
			return list
		}
		list = append(list, next)
		after = next
	}
}

// TestOracleDays compares years of rare expressions with a walk by days.
func TestOracleDays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := drawExpression(t)
		e.second, e.minute, e.hour = is(7), is(5), is(3)
		fields := strings.Fields(e.text)
		e.text = "7 5 3 " + strings.Join(fields[len(fields)-3:], " ")
		if rapid.Bool().Draw(t, "with year") {
			text, in, every := plain(t, 1970, 2099, nil)
			e.text, e.year = e.text+" "+text, func(year int) bool { return every || in(year) }
		}
		s, err := schedule.Compile(schedule.Definition{Cron: e.text})
		start := time.Date(rapid.IntRange(1970, 2110).Draw(t, "year"), 1, rapid.IntRange(1, 365).Draw(t, "day"), 0, 0, 0, 0, time.UTC)
		var want []time.Time
		for day := start; day.Year() < start.Year()+45 && len(want) < 40; day = day.AddDate(0, 0, 1) {
			if e.onDay(day.Date()) {
				want = append(want, day.Add(3*time.Hour+5*time.Minute+7*time.Second))
			}
		}
		if err != nil {
			if len(want) > 0 {
				t.Fatalf("Compile(%q) = %v, and yet it fires at %v", e.text, err, want[0])
			}
			return
		}
		got := timesAfter(s, start, len(want)+1)
		if len(want) < 40 {
			for len(got) > 0 && got[len(got)-1].Year() >= start.Year()+45 {
				got = got[:len(got)-1]
			}
		} else {
			got = got[:40]
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%q from %v (-oracle +engine):\n%s", e.text, start, diff)
		}
	})
}

func is(want int) func(int) bool { return func(v int) bool { return v == want } }

// TestGronxAgrees holds gronx, which reads our canonical form in UTC without a
// known fault, against the engine, and its validity check against our parser.
func TestGronxAgrees(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := drawExpression(t)
		s, err := schedule.Compile(schedule.Definition{Cron: e.text})
		if err != nil {
			t.Skip("a date that never comes")
		}
		parsed, err := cron.Parse(e.text, "")
		if err != nil {
			t.Fatal(err)
		}
		canonical := parsed.String()
		if again, err := cron.Parse(canonical, ""); err != nil || again.String() != canonical {
			if len(canonical) <= cron.MaxLength {
				t.Fatalf("the canonical form %q of %q reads as %v, %v", canonical, e.text, again, err)
			}
		}
		at := time.Unix(rapid.Int64Range(1_700_000_000, 1_900_000_000).Draw(t, "start"), 0).UTC()
		for range 5 {
			want, err := gronx.NextTickAfter(canonical, at, false)
			if err != nil {
				t.Skip("gronx gives up after some years")
			}
			got, ok := s.Next(at)
			if !ok || !got.Equal(want) {
				t.Fatalf("%q (%q) after %v: engine %v, gronx %v", e.text, canonical, at, got, want)
			}
			at = got
		}
	})
}
