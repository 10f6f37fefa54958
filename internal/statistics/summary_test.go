package statistics

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/period"
)

// Every duration is read back from its bucket within 3 %, and
// exactly where it is small.
func TestDurationsOfBuckets(t *testing.T) {
	t.Parallel()
	for ms := 1; ms < 100_000_000; ms += 1 + ms/37 {
		bucket := int(math.Floor(math.Log(float64(ms))*steps)) + 1
		got := durationOf(bucket)
		if ms < 20 && got != float64(ms) || math.Abs(got-float64(ms)) > 0.03*float64(ms) {
			t.Fatalf("%d ms are read as %v", ms, got)
		}
	}
	if durationOf(-1) != 0 || durationOf(0) != 0 {
		t.Error("no duration, or less than 1 ms, is one")
	}
}

// A day is all times of its date, also where midnight comes twice or never, or a
// date is left out; an hour has the same offset from its beginning to its end.
func TestDaysAndHoursOfZones(t *testing.T) {
	t.Parallel()
	zones := map[string]*time.Location{}
	for _, name := range []string{"America/Havana", "America/Santiago", "Pacific/Apia", "Australia/Lord_Howe", "Europe/Berlin", "Africa/Cairo", "Asia/Beirut", "America/Sao_Paulo"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		zones[name] = zone
	}
	date := func(t time.Time, zone *time.Location) string { return t.In(zone).Format(time.DateOnly) }
	check := func(t *rapid.T, at time.Time, zone *time.Location) {
		begin, end := period.Day(at, zone)
		if begin.After(at) || !end.After(at) || date(begin, zone) != date(at, zone) || date(begin.Add(-time.Nanosecond), zone) >= date(at, zone) ||
			date(end, zone) <= date(at, zone) || date(end.Add(-time.Nanosecond), zone) != date(at, zone) {
			t.Fatalf("%v in %v: the day is from %v to %v", at, zone, begin, end)
		}
		hour, next := period.Hour(at, zone)
		if hour.After(at) || !next.After(at) || next.Sub(hour) > time.Hour {
			t.Fatalf("%v in %v: the hour is from %v to %v", at, zone, hour, next)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		zone := zones[rapid.SampledFrom([]string{"America/Havana", "America/Santiago", "Pacific/Apia", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Beirut", "America/Sao_Paulo"}).Draw(t, "zone")]
		at := time.Date(2005, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 25*365*24).Draw(t, "hours")) * time.Hour)
		if _, change := at.In(zone).ZoneBounds(); !change.IsZero() && rapid.Bool().Draw(t, "near a change") {
			at = change
		}
		check(t, at.Add(time.Duration(rapid.IntRange(-150, 150).Draw(t, "minutes"))*time.Minute), zone)
	})
	for _, test := range []struct{ zone, at, begin string }{
		{"America/Havana", "2026-11-01T08:00:00Z", "2026-11-01T04:00:00Z"},   // midnight comes twice
		{"America/Santiago", "2026-09-06T12:00:00Z", "2026-09-06T04:00:00Z"}, // and here never
		{"Pacific/Apia", "2011-12-30T12:00:00Z", "2011-12-30T10:00:00Z"},     // the 31st after the 29th
	} {
		at, err := time.Parse(time.RFC3339, test.at)
		if err != nil {
			t.Fatal(err)
		}
		if begin, _ := period.Day(at, zones[test.zone]); begin.Format(time.RFC3339) != test.begin {
			t.Errorf("%s: the day of %s begins %v, want %s", test.zone, test.at, begin, test.begin)
		}
	}
}
