package schedule_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/schedule"
)

// drawDefinition draws any kind of rule with any mixture of the rest, dense
// enough that a few hours hold some scheduled times.
func drawDefinition(t *rapid.T) schedule.Definition {
	def := schedule.Definition{
		Zone:   rapid.SampledFrom(changes).Draw(t, "zone").zone,
		Key:    rapid.StringMatching(`[a-f0-9]{8}`).Draw(t, "key"),
		Jitter: time.Duration(rapid.SampledFrom([]int{0, 0, 1, 7, 600, 3600, 86400}).Draw(t, "jitter")) * time.Second,
	}
	switch rapid.IntRange(0, 5).Draw(t, "rule") {
	case 0:
		def.Interval = time.Duration(rapid.Int64Range(1000, 200_000_000).Draw(t, "interval")) * time.Millisecond
		def.Anchor = time.Unix(drawDay(t), 0)
	case 1:
		def.RunAt = time.Unix(drawDay(t), 0)
	default:
		def.Cron = rapid.SampledFrom([]string{
			"0 */15 * * * *", "0 30 1,2 * * *", "0 H H(0-3) * * *", "*/20 * 2 * * *", "0 0 0 * * 1-5", "30 */7 */3 */2 * 1",
			"0 0 12 L,15W * 5#2", "0 59 23 * * *", "*/2 * * * * *", "0 0 */2 * * 6,0",
		}).Draw(t, "cron")
		def.DSTGap = rapid.SampledFrom([]schedule.Gap{"", "skip"}).Draw(t, "gap")
		def.DSTOverlap = rapid.SampledFrom([]schedule.Overlap{"first", "last", "both"}).Draw(t, "overlap")
	}
	if rapid.IntRange(0, 3).Draw(t, "start") == 0 {
		def.Start = time.Unix(drawDay(t), 0)
	}
	if rapid.IntRange(0, 3).Draw(t, "end") == 0 {
		def.End = time.Unix(drawDay(t), 0)
	}
	for range rapid.IntRange(0, 2).Draw(t, "calendars") {
		def.Calendars = append(def.Calendars, drawCalendar(t))
	}
	return def
}

// drawDay draws a moment of the four weeks around New York's change of 2026.
func drawDay(t *rapid.T) int64 {
	return rapid.Int64Range(1_772_928_000-14*86400, 1_772_928_000+14*86400).Draw(t, "day")
}

func drawCalendar(t *rapid.T) schedule.Calendar {
	c := schedule.Calendar{
		Mode: rapid.SampledFrom([]string{"", "exclude", "include"}).Draw(t, "mode"),
		Zone: rapid.SampledFrom([]string{"", "America/New_York", "Asia/Kolkata", "Pacific/Apia"}).Draw(t, "calendar zone"),
	}
	for range rapid.IntRange(0, 4).Draw(t, "days") {
		start := time.Unix(drawDay(t), 0).UTC()
		r := schedule.DateRange{Start: start, Yearly: rapid.Bool().Draw(t, "yearly")}
		if rapid.Bool().Draw(t, "range") {
			r.End = start.Add(time.Duration(rapid.Int64Range(1, 10*86400).Draw(t, "length")) * time.Second)
		}
		c.Days = append(c.Days, r)
	}
	return c
}

// drawWindow draws two moments at most a day apart.
func drawWindow(t *rapid.T) (after, until time.Time) {
	start := drawDay(t)
	length := rapid.SampledFrom([]int64{0, 3600, 6 * 3600, 86400}).Draw(t, "length")
	return time.Unix(start, 0), time.Unix(start+length, 0)
}

func TestNextIsStrictlyIncreasing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := mustCompile(t, drawDefinition(t))
		after, until := drawWindow(t)
		for last := after; ; {
			next, ok := s.Next(last)
			if !ok || next.After(until) {
				return
			}
			if !next.After(last) || next.Location() != time.UTC {
				t.Fatalf("Next(%v) = %v", last, next)
			}
			last = next
		}
	})
}

// TestNextDoesNotDependOnWhereItIsAsked asks from any moment between two
// scheduled times.
func TestNextDoesNotDependOnWhereItIsAsked(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := mustCompile(t, drawDefinition(t))
		after, _ := drawWindow(t)
		next, ok := s.Next(after)
		between := time.Hour
		if ok {
			between = min(next.Sub(after), 1<<40)
		}
		asked := after.Add(time.Duration(rapid.Int64Range(0, int64(between)-1).Draw(t, "asked")))
		if again, still := s.Next(asked); !again.Equal(next) || still != ok {
			t.Fatalf("Next(%v) = %v, and Next(%v) = %v", after, next, asked, again)
		}
	})
}

func TestHalvesMakeTheWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		def := drawDefinition(t)
		after, until := drawWindow(t)
		middle := after.Add(time.Duration(rapid.Int64Range(0, int64(until.Sub(after))).Draw(t, "middle")))
		s := mustCompile(t, def)
		whole := window(s, after, until)
		halves := append(window(s, after, middle), window(s, middle, until)...)
		sameTimes(t, def, whole, halves)
		// The same with the schedule's own window instead of the question's.
		if def.Start.IsZero() && def.End.IsZero() && def.Jitter == 0 {
			early, late := def, def
			early.End, late.Start = middle, middle
			halves := append(window(mustCompile(t, early), after, until), window(mustCompile(t, late), after, until)...)
			sameTimes(t, def, whole, halves)
		}
	})
}

func TestBetweenEqualsNext(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		def := drawDefinition(t)
		s := mustCompile(t, def)
		after, until := drawWindow(t)
		limit := rapid.SampledFrom([]int{0, 1, 2, 3, 10, 10_000}).Draw(t, "limit")
		sameRange(t, def, s, after, until, limit)
	})
}

// sameRange compares Between with what Next gives one by one.
func sameRange(t *rapid.T, def schedule.Definition, s *schedule.Schedule, after, until time.Time, limit int) {
	all := window(s, after, until)
	want := schedule.Range{Count: len(all), Times: all}
	if left := len(all) - limit; left > 0 {
		want.First, want.Last, want.Times = all[0], all[left-1], all[left:]
	}
	want.Next, _ = s.Next(until)
	got := s.Between(after, until, limit)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%+v (-Next +Between):\n%s", def, diff)
	}
}

// TestBetweenAroundClockChanges is TestBetweenEqualsNext around the changes of every
// zone, for any expression, and over days.
func TestBetweenAroundClockChanges(t *testing.T) {
	t.Parallel()
	names := schedule.ZoneNames(t)
	rapid.Check(t, func(t *rapid.T) {
		def := drawDefinition(t)
		zone, day := drawChange(t, names)
		def.Zone = zone.String()
		if def.Cron != "" && rapid.Bool().Draw(t, "any expression") {
			def.Cron = drawExpression(t).text
		}
		for i := range def.Calendars {
			if rapid.Bool().Draw(t, "same zone") {
				def.Calendars[i].Zone = def.Zone
			}
		}
		moveBy(&def, time.Duration(day-1_772_928_000)*time.Second)
		s, err := schedule.Compile(def)
		if err != nil {
			t.Skip("outside the years, or a date that never comes")
		}
		after := time.Unix(day-rapid.Int64Range(0, 2*86400).Draw(t, "before"), 0)
		until := after.Add(time.Duration(rapid.Int64Range(0, 4*86400).Draw(t, "length")) * time.Second)
		sameRange(t, def, s, after, until, rapid.SampledFrom([]int{0, 1, 5, 100}).Draw(t, "limit"))
	})
}

// moveBy moves a definition in time.
func moveBy(def *schedule.Definition, by time.Duration) {
	for _, at := range []*time.Time{&def.Start, &def.End, &def.RunAt} {
		if !at.IsZero() {
			*at = at.Add(by)
		}
	}
	for _, c := range def.Calendars {
		for i := range c.Days {
			d := &c.Days[i]
			if d.Start = d.Start.Add(by); !d.End.IsZero() {
				d.End = d.End.Add(by)
			}
		}
	}
}

func TestJitterStaysInItsSlot(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		def := drawDefinition(t)
		jittered, again := mustCompile(t, def), mustCompile(t, def)
		bare := def
		bare.Jitter, bare.Calendars = 0, nil
		slots := mustCompile(t, bare)
		for _, o := range jittered.Preview(time.Unix(drawDay(t), 0), 20) {
			following, more := slots.Next(o.Slot)
			if o.At.Before(o.Slot) || def.Jitter > 0 && o.At.Sub(o.Slot) >= def.Jitter || more && o.Dropped == "" && !o.At.Before(following) {
				t.Fatalf("%v moved to %v, next slot %v", o.Slot, o.At, following)
			}
			if o.Dropped != "" {
				continue
			}
			if next, ok := again.Next(o.At.Add(-1)); !ok || !next.Equal(o.At) {
				t.Fatalf("Next just before %v = %v, %v", o.At, next, ok)
			}
		}
	})
}

// TestCalendarsFilter compares calendars with asking them about each scheduled time,
// in the standard library's words.
func TestCalendarsFilter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		def := drawDefinition(t)
		def.Jitter = 0
		after, until := drawWindow(t)
		filtered := window(mustCompile(t, def), after, until)
		bare := def
		bare.Calendars = nil
		var want []time.Time
		zones := zonesOf(def.Calendars)
		for _, at := range window(mustCompile(t, bare), after, until) {
			if admitted(def.Calendars, zones, at) {
				want = append(want, at)
			}
		}
		sameTimes(t, def, want, filtered)
	})
}

// sameTimes compares long lists fast, and prints them only when they differ.
func sameTimes(t *rapid.T, def schedule.Definition, want, got []time.Time) {
	if slices.EqualFunc(want, got, time.Time.Equal) {
		return
	}
	t.Fatalf("%+v (-want +got):\n%s", def, cmp.Diff(want, got))
}

func zonesOf(calendars []schedule.Calendar) []*time.Location {
	var zones []*time.Location
	for _, c := range calendars {
		zone, _ := time.LoadLocation(c.Zone)
		zones = append(zones, zone)
	}
	return zones
}

func admitted(calendars []schedule.Calendar, zones []*time.Location, at time.Time) bool {
	for i, c := range calendars {
		local := at.In(zones[i])
		wall := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), 0, time.UTC)
		inside := false
		for _, r := range c.Days {
			inside = inside || covers(r, wall)
		}
		if inside != (c.Mode == "include") {
			return false
		}
	}
	return true
}

func covers(r schedule.DateRange, wall time.Time) bool {
	end := r.End
	if end.IsZero() {
		end = time.Date(r.Start.Year(), r.Start.Month(), r.Start.Day()+1, 0, 0, 0, 0, time.UTC)
	}
	for years := -1; years <= 1; years++ {
		start, end := r.Start, end
		if shift := wall.Year() - start.Year() + years; r.Yearly {
			start, end = start.AddDate(shift, 0, 0), end.AddDate(shift, 0, 0)
		}
		if !wall.Before(start) && wall.Before(end) {
			return true
		}
	}
	return false
}

func TestKeysSpread(t *testing.T) {
	t.Parallel()
	const jobs = 6000
	midnight := at(t, "2026-03-03 00:00Z")
	perMinute := map[int]int{}
	for i := range jobs {
		s := compile(t, schedule.Definition{Cron: "@daily", Jitter: time.Hour, Key: fmt.Sprintf("job-%d", i)})
		next, _ := s.Next(midnight.Add(-time.Microsecond))
		perMinute[int(next.Sub(midnight)/time.Minute)]++
	}
	for minute := range 60 {
		if n := perMinute[minute]; n < 60 || n > 150 {
			t.Errorf("%d of %d jobs run in minute %d, want about 100", n, jobs, minute)
		}
	}
}

// TestJitterValues pins the places: another hash would move tenants' jobs.
func TestJitterValues(t *testing.T) {
	t.Parallel()
	s := compile(t, schedule.Definition{Cron: "@daily", Jitter: time.Hour, Key: "6f1c2e0a-0000-8000-8000-000000000001"})
	want := []string{"03-02 00:40:07.650", "03-03 00:41:41.836", "03-04 00:16:03.773"}
	for i, got := range timesAfter(s, at(t, "2026-03-02 00:00Z").Add(-time.Microsecond), 3) {
		if text := got.Format("01-02 15:04:05.000"); text != want[i] {
			t.Errorf("scheduled time %d = %s, want %s", i, text, want[i])
		}
	}
}

func mustCompile(t *rapid.T, def schedule.Definition) *schedule.Schedule {
	s, err := schedule.Compile(def)
	if err != nil {
		t.Fatalf("Compile(%+v): %v", def, err)
	}
	return s
}
