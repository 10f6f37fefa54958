package calendar_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

func TestReadAndWriteDays(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		day        calendar.Day
		start, end string // on the wall, half-open
		written    calendar.Day
	}{
		{calendar.Day{Start: "2026-12-25"}, "2026-12-25 00:00:00", "2026-12-26 00:00:00", calendar.Day{Start: "2026-12-25", End: "2026-12-25"}},
		{calendar.Day{Start: "2026-12-24", End: "2026-12-26"}, "2026-12-24 00:00:00", "2026-12-27 00:00:00", calendar.Day{Start: "2026-12-24", End: "2026-12-26"}},
		{calendar.Day{Start: "2026-12-31", End: "2026-12-31", Yearly: true}, "2026-12-31 00:00:00", "2027-01-01 00:00:00", calendar.Day{Start: "2026-12-31", End: "2026-12-31", Yearly: true}},
		{calendar.Day{Start: "2026-12-24T18:00"}, "2026-12-24 18:00:00", "2026-12-25 00:00:00", calendar.Day{Start: "2026-12-24T18:00:00", End: "2026-12-25T00:00:00"}},
		{calendar.Day{Start: "2026-11-27T18:00", End: "2026-11-30T06:00"}, "2026-11-27 18:00:00", "2026-11-30 06:00:00", calendar.Day{Start: "2026-11-27T18:00:00", End: "2026-11-30T06:00:00"}},
		{calendar.Day{Start: "2026-11-27T18:00:59", End: "2026-11-27"}, "2026-11-27 18:00:59", "2026-11-28 00:00:00", calendar.Day{Start: "2026-11-27T18:00:59", End: "2026-11-28T00:00:00"}},
		{calendar.Day{Start: "2026-11-27", End: "2026-11-27T12:00"}, "2026-11-27 00:00:00", "2026-11-27 12:00:00", calendar.Day{Start: "2026-11-27T00:00:00", End: "2026-11-27T12:00:00"}},
		{calendar.Day{Start: "2026-11-27T00:00", End: "2026-11-29T00:00"}, "2026-11-27 00:00:00", "2026-11-29 00:00:00", calendar.Day{Start: "2026-11-27", End: "2026-11-28"}},
		{calendar.Day{Start: "2028-02-29"}, "2028-02-29 00:00:00", "2028-03-01 00:00:00", calendar.Day{Start: "2028-02-29", End: "2028-02-29"}},
		{calendar.Day{Start: "2499-12-31"}, "2499-12-31 00:00:00", "2500-01-01 00:00:00", calendar.Day{Start: "2499-12-31", End: "2499-12-31"}},
	} {
		ranges, fields := calendar.ReadDays([]calendar.Day{test.day})
		if len(fields) > 0 {
			t.Errorf("%+v: %v", test.day, fields)
			continue
		}
		got := ranges[0].Start.Format(time.DateTime) + " to " + ranges[0].End.Format(time.DateTime)
		if want := test.start + " to " + test.end; got != want {
			t.Errorf("%+v is read as %s, want %s", test.day, got, want)
		}
		if diff := cmp.Diff(test.written, calendar.WriteDay(ranges[0])); diff != "" {
			t.Errorf("%+v is written differently (-want +got):\n%s", test.day, diff)
		}
		if fields := calendar.Validate(calendar.Spec{Name: "a", Timezone: "UTC", Days: ranges}); len(fields) > 0 {
			t.Errorf("%+v is not valid: %v", test.day, fields)
		}
	}
}

// A day reads back as it was written.
func TestWrittenDaysAreReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := time.Unix(rapid.Int64Range(0, 16_000_000_000).Draw(t, "start"), 0).UTC()
		if rapid.Bool().Draw(t, "from midnight") {
			start = start.Truncate(24 * time.Hour)
		}
		length := time.Duration(rapid.Int64Range(1, 400*86_400).Draw(t, "length")) * time.Second
		if rapid.Bool().Draw(t, "whole days") {
			length = length.Truncate(24*time.Hour) + 24*time.Hour
		}
		want := schedule.DateRange{Start: start, End: start.Add(length), Yearly: rapid.Bool().Draw(t, "yearly")}
		got, fields := calendar.ReadDays([]calendar.Day{calendar.WriteDay(want)})
		if len(fields) > 0 || got[0] != want {
			t.Fatalf("%v is read back as %v, %v", want, got, fields)
		}
	})
}

func TestDaysThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "2026", "2026-13-01", "2026-02-30", "2025-02-29", "2026-1-1", "26-01-01", "2026-01-01T", "2026-01-01T24:00", "2026-01-01T09", "2026-01-01T09:00Z",
		"2026-01-01T09:00:00+08:00", "2026-01-01T09:00:00.5", "2026-01-01 09:00", "20260101", " 2026-01-01", "2026-01-01\x00", "２０２６-01-01", "12026-01-01",
	} {
		_, fields := calendar.ReadDays([]calendar.Day{{Start: "2026-01-01"}, {Start: text}})
		if len(fields) != 1 || fields[0].Path != "days[1].start" {
			t.Errorf("start %q: %v", text, fields)
		}
		if text == "" {
			continue // as an end, the end of the day
		}
		_, fields = calendar.ReadDays([]calendar.Day{{Start: "2026-01-01", End: text}})
		if len(fields) != 1 || fields[0].Path != "days[0].end" {
			t.Errorf("end %q: %v", text, fields)
		}
	}
	for _, end := range []string{"2025-12-31", "2026-01-01T00:00", "0001-01-01T00:00", "0001-01-01", "0000-12-31"} {
		_, fields := calendar.ReadDays([]calendar.Day{{Start: "2026-01-01", End: end}})
		if len(fields) != 1 || fields[0].Path != "days[0].end" || fields[0].Rule != "order" {
			t.Errorf("end %q: %v", end, fields)
		}
	}
}

func TestValidateNamesEverything(t *testing.T) {
	t.Parallel()
	day := func(start, end time.Time, yearly bool) schedule.DateRange {
		return schedule.DateRange{Start: start, End: end, Yearly: yearly}
	}
	at := func(year int) time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
	for _, test := range []struct {
		name string
		spec calendar.Spec
		want []string
	}{
		{"nothing wrong", calendar.Spec{Name: "a", Timezone: "Asia/Kolkata", Days: []schedule.DateRange{day(at(2026), at(2027), false)}}, nil},
		{"no days", calendar.Spec{Name: "a"}, nil},
		{"texts", calendar.Spec{Name: " ", Description: strings.Repeat("x", 2001), Timezone: "Local"}, []string{"name bounds", "description bounds", "timezone zone"}},
		{"a NUL", calendar.Spec{Name: "a\x00"}, []string{"name pattern"}},
		{"a name too long", calendar.Spec{Name: strings.Repeat("é", 201), Timezone: "../etc"}, []string{"name bounds", "timezone zone"}},
		{"days", calendar.Spec{Name: "a", Days: []schedule.DateRange{
			day(at(2026), at(2027), false), day(at(1969), at(1971), false), day(at(2499), at(2501), false), day(at(2026), at(2027), true), day(at(2027), at(2026), false), {},
		}}, []string{"days[1] range", "days[2] range", "days[3] range", "days[4] range", "days[5] range"}},
		{"too many days", calendar.Spec{Name: "a", Days: make([]schedule.DateRange, 1001)}, []string{"days maximum"}},
	} {
		var got []string
		for _, f := range calendar.Validate(test.spec) {
			got = append(got, f.Path+" "+f.Rule)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: faults differ (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestDecodeRefusesWhatItDidNotWrite(t *testing.T) {
	t.Parallel()
	set, err := calendar.Decode("Asia/Tokyo", json.RawMessage(`[{"start":"2026-12-24T00:00:00","end":"2026-12-25T18:30:00"},{"start":"2026-01-01T00:00:00","end":"2026-01-02T00:00:00","yearly":true}]`))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%s %q %d %s %v", set.Zone, set.Mode, len(set.Days), set.Days[0].End.Format(time.DateTime), set.Days[1].Yearly); got != `Asia/Tokyo "" 2 2026-12-25 18:30:00 true` {
		t.Errorf("the set is %s", got)
	}
	for _, days := range []string{`{}`, `[1]`, `[{}]`, `[{"start":"2026-12-24","end":"2026-12-25"}]`, `[{"start":"2026-12-24T00:00:00"}]`, ``} {
		if _, err := calendar.Decode("UTC", json.RawMessage(days)); err == nil {
			t.Errorf("%s is read", days)
		}
	}
}
