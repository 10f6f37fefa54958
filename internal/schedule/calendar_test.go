package schedule_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/schedule"
)

func TestCalendars(t *testing.T) {
	t.Parallel()
	wall := func(text string) time.Time {
		when, err := time.Parse("2006-01-02 15:04", text)
		if err != nil {
			t.Fatal(err)
		}
		return when
	}
	christmas := schedule.DateRange{Start: wall("2020-12-25 00:00"), End: wall("2020-12-27 00:00"), Yearly: true}
	newYear := schedule.DateRange{Start: wall("2020-12-31 12:00"), End: wall("2021-01-02 00:00"), Yearly: true}
	leapDay := schedule.DateRange{Start: wall("2024-02-29 00:00"), Yearly: true}
	aroundLeapDay := schedule.DateRange{Start: wall("2023-02-20 00:00"), End: wall("2023-03-05 00:00"), Yearly: true}
	toLeapDay := schedule.DateRange{Start: wall("2024-02-01 00:00"), End: wall("2024-02-29 00:00"), Yearly: true}
	for _, test := range []struct {
		name      string
		cron      string
		zone      string
		calendars []schedule.Calendar
		after     string
		want      []string
	}{
		{
			"a day", "0 0 9 * * *", "",
			[]schedule.Calendar{{Days: []schedule.DateRange{{Start: wall("2026-05-01 00:00")}}}},
			"2026-04-30 00:00Z",
			[]string{"2026-04-30 09:00Z", "2026-05-02 09:00Z"},
		},
		{
			"a day given by some moment in it", "0 0 9 * * *", "",
			[]schedule.Calendar{{Days: []schedule.DateRange{{Start: wall("2026-05-01 08:00")}}}},
			"2026-04-30 00:00Z",
			[]string{"2026-04-30 09:00Z", "2026-05-02 09:00Z"},
		},
		{
			"the end is not in the range", "0 0 * * * *", "",
			[]schedule.Calendar{{Days: []schedule.DateRange{{Start: wall("2026-05-01 22:00"), End: wall("2026-05-02 06:00")}}}},
			"2026-05-01 20:30Z",
			[]string{"2026-05-01 21:00Z", "2026-05-02 06:00Z"},
		},
		{
			"overlapping ranges", "0 0 9 * * *", "",
			[]schedule.Calendar{{Days: []schedule.DateRange{
				{Start: wall("2026-05-03 00:00"), End: wall("2026-05-06 00:00")}, {Start: wall("2026-05-01 00:00"), End: wall("2026-05-04 00:00")},
			}}},
			"2026-04-30 12:00Z",
			[]string{"2026-05-06 09:00Z"},
		},
		{
			"the calendar's zone decides the day", "0 0 * * * *", "",
			[]schedule.Calendar{{Zone: "Asia/Tokyo", Days: []schedule.DateRange{{Start: wall("2026-05-01 00:00")}}}},
			"2026-04-30 13:30Z",
			[]string{"2026-04-30 14:00Z", "2026-05-01 15:00Z"},
		},
		{
			"include", "0 0 9 * * *", "",
			[]schedule.Calendar{{Mode: "include", Days: []schedule.DateRange{{Start: wall("2026-05-01 00:00")}, {Start: wall("2026-06-10 00:00")}}}},
			"2026-04-01 00:00Z",
			[]string{"2026-05-01 09:00Z", "2026-06-10 09:00Z"},
		},
		{
			"every calendar has to admit", "0 0 9 * * *", "",
			[]schedule.Calendar{
				{Mode: "include", Days: []schedule.DateRange{{Start: wall("2026-05-01 00:00"), End: wall("2026-05-05 00:00")}}},
				{Mode: "exclude", Days: []schedule.DateRange{{Start: wall("2026-05-02 00:00"), End: wall("2026-05-04 00:00")}}},
			},
			"2026-04-01 00:00Z",
			[]string{"2026-05-01 09:00Z", "2026-05-04 09:00Z"},
		},
		{
			"yearly", "0 0 9 * 12 *", "",
			[]schedule.Calendar{{Days: []schedule.DateRange{christmas}}},
			"2027-12-24 00:00Z",
			[]string{"2027-12-24 09:00Z", "2027-12-27 09:00Z"},
		},
		{
			"yearly, before its own year", "0 0 9 * 12 *", "",
			[]schedule.Calendar{{Days: []schedule.DateRange{christmas}}},
			"2011-12-24 12:00Z",
			[]string{"2011-12-27 09:00Z"},
		},
		{
			"yearly, over the new year", "0 0 9,15 * * *", "",
			[]schedule.Calendar{{Days: []schedule.DateRange{newYear}}},
			"2027-12-31 00:00Z",
			[]string{"2027-12-31 09:00Z", "2028-01-02 09:00Z"},
		},
		{
			"yearly, include over the new year", "0 0 9,15 * * *", "",
			[]schedule.Calendar{{Mode: "include", Days: []schedule.DateRange{newYear}}},
			"2028-06-01 00:00Z",
			[]string{"2028-12-31 15:00Z", "2029-01-01 09:00Z", "2029-01-01 15:00Z", "2029-12-31 15:00Z"},
		},
		{
			"leap day", "0 0 9 28,29 2 *", "",
			[]schedule.Calendar{{Days: []schedule.DateRange{leapDay}}},
			"2028-02-01 00:00Z",
			[]string{"2028-02-28 09:00Z", "2029-02-28 09:00Z"},
		},
		{
			"leap day, include", "0 0 9 * * *", "",
			[]schedule.Calendar{{Mode: "include", Days: []schedule.DateRange{leapDay}}},
			"2096-03-01 00:00Z",
			[]string{"2104-02-29 09:00Z", "2108-02-29 09:00Z"},
		},
		{
			"yearly ranges go from date to date", "0 0 9 4,5 3 *", "",
			[]schedule.Calendar{{Days: []schedule.DateRange{aroundLeapDay}}},
			"2028-02-01 00:00Z",
			[]string{"2028-03-05 09:00Z", "2029-03-05 09:00Z"},
		},
		{
			"yearly range that ends on the leap day", "0 0 9 28,1 2,3 *", "",
			[]schedule.Calendar{{Days: []schedule.DateRange{toLeapDay}}},
			"2027-02-01 00:00Z",
			[]string{"2027-03-01 09:00Z", "2027-03-28 09:00Z", "2028-03-01 09:00Z"},
		},
		{
			"a range across a clock change", "0 0 * * * *", "America/New_York",
			[]schedule.Calendar{{Zone: "America/New_York", Days: []schedule.DateRange{{Start: wall("2026-10-31 00:00"), End: wall("2026-11-01 01:30")}}}},
			"2026-10-31 00:30-04:00",
			[]string{"2026-11-01 02:00-05:00", "2026-11-01 03:00-05:00"},
		},
		{
			"both passes of an hour", "0 0 * * * *", "America/New_York",
			[]schedule.Calendar{{Zone: "America/New_York", Days: []schedule.DateRange{{Start: wall("2026-11-01 01:00"), End: wall("2026-11-01 02:00")}}}},
			"2026-10-31 23:30-04:00",
			[]string{"2026-11-01 00:00-04:00", "2026-11-01 02:00-05:00"},
		},
		{"nothing ever", "0 0 9 * * *", "", []schedule.Calendar{{Mode: "include"}}, "2026-01-01 00:00Z", nil},
		{
			"nothing after the last day", "0 0 9 * * *", "Europe/London",
			[]schedule.Calendar{{Mode: "include", Zone: "Europe/London", Days: []schedule.DateRange{{Start: wall("2026-05-01 00:00")}}}},
			"2026-05-01 12:00Z", nil,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := compile(t, schedule.Definition{Cron: test.cron, Zone: test.zone, Calendars: test.calendars})
			var want []time.Time
			for _, text := range test.want {
				want = append(want, at(t, text))
			}
			got := timesAfter(s, at(t, test.after), max(1, len(want)))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// everyOther drops the even minutes of some days, one range each.
func everyOther(start time.Time, minutes int) []schedule.Calendar {
	var calendars []schedule.Calendar
	for minute := 0; minute < minutes; minute += 2 {
		if minute%2000 == 0 {
			calendars = append(calendars, schedule.Calendar{})
		}
		from := start.Add(time.Duration(minute) * time.Minute)
		last := &calendars[len(calendars)-1]
		last.Days = append(last.Days, schedule.DateRange{Start: from, End: from.Add(time.Minute)})
	}
	return calendars
}

func TestBetweenAtItsBounds(t *testing.T) {
	t.Parallel()
	start := at(t, "2026-03-01 00:00Z")
	everySecond := schedule.Definition{Cron: "* * * * * *"}
	for _, test := range []struct {
		name  string
		def   schedule.Definition
		until time.Time
		limit int
		want  schedule.Range
	}{
		{"a day and more", everySecond, start.Add(100_000 * time.Second), 1, schedule.Range{
			Times: []time.Time{start.Add(100_000 * time.Second)}, Count: 100_000,
			First: start.Add(time.Second), Last: start.Add(99_999 * time.Second), Next: start.Add(100_001 * time.Second),
		}},
		{"one more", everySecond, start.Add(100_001 * time.Second), 2, schedule.Range{
			Times: []time.Time{start.Add(100_000 * time.Second), start.Add(100_001 * time.Second)}, Count: 100_001,
			First: start.Add(time.Second), Last: start.Add(99_999 * time.Second), Next: start.Add(100_002 * time.Second),
		}},
		{"ten years, nothing wanted", everySecond, start.AddDate(10, 0, 0), 0, schedule.Range{
			Count: (10*365 + 3) * 86_400,
			First: start.Add(time.Second), Last: start.AddDate(10, 0, 0), Next: start.AddDate(10, 0, 0).Add(time.Second),
		}},
		{"a negative limit is none", everySecond, start.Add(time.Second), -5, schedule.Range{
			Count: 1, First: start.Add(time.Second), Last: start.Add(time.Second), Next: start.Add(2 * time.Second),
		}},
		{"until before after", everySecond, start.Add(-time.Hour), 5, schedule.Range{Next: start.Add(time.Second)}},
		{"interval", schedule.Definition{Interval: time.Minute, Anchor: start}, start.AddDate(1, 0, 0), 1, schedule.Range{
			Times: []time.Time{start.AddDate(1, 0, 0)}, Count: 365 * 1440,
			First: start.Add(time.Minute), Last: start.AddDate(1, 0, 0).Add(-time.Minute), Next: start.AddDate(1, 0, 0).Add(time.Minute),
		}},
		{"more than are counted", everySecond, start.AddDate(40, 0, 0), 1, schedule.Range{
			Times: []time.Time{start.AddDate(40, 0, 0)}, Count: 1_000_000_000, Capped: true,
			First: start.Add(time.Second), Last: start.AddDate(40, 0, 0).Add(-time.Second), Next: start.AddDate(40, 0, 0).Add(time.Second),
		}},
		{"last of all", schedule.Definition{RunAt: start.Add(time.Hour)}, start.AddDate(1, 0, 0), 5, schedule.Range{
			Times: []time.Time{start.Add(time.Hour)}, Count: 1,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := compile(t, test.def).Between(start, test.until, test.limit)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("a limit beyond 10000 is 10000", func(t *testing.T) {
		t.Parallel()
		got := compile(t, everySecond).Between(start, start.AddDate(0, 1, 0), 1_000_000)
		if len(got.Times) != 10_000 || !got.Times[9_999].Equal(start.AddDate(0, 1, 0)) || !got.Last.Equal(got.Times[0].Add(-time.Second)) {
			t.Errorf("%d scheduled times to %v, left out to %v", len(got.Times), got.Times[len(got.Times)-1], got.Last)
		}
	})
}

// TestSearchesAreBounded holds questions with endless droppings to an answer.
func TestSearchesAreBounded(t *testing.T) {
	t.Parallel()
	start := at(t, "2026-03-01 00:00Z")
	dense := everyOther(start, 20_000) // 10,000 minutes are dropped one by one
	t.Run("next finds what is left", func(t *testing.T) {
		t.Parallel()
		s := compile(t, schedule.Definition{Cron: "0 */2 * * * *", Calendars: dense[:9]})
		if next, ok := s.Next(start.Add(-1)); !ok || !next.Equal(start.Add(18_000*time.Minute)) {
			t.Errorf("Next = %v, %v", next, ok)
		}
	})
	t.Run("next gives up", func(t *testing.T) {
		t.Parallel()
		s := compile(t, schedule.Definition{Cron: "0 */2 * * * *", Calendars: dense})
		if next, ok := s.Next(start.Add(-1)); ok {
			t.Errorf("Next = %v", next)
		}
	})
	t.Run("counting gives up, the list is right", func(t *testing.T) {
		t.Parallel()
		// Yearly ranges drop the even minutes of one day a year for ever.
		var day []schedule.DateRange
		for minute := 0; minute < 1440; minute += 2 {
			from := start.Add(time.Duration(minute) * time.Minute)
			day = append(day, schedule.DateRange{Start: from, End: from.Add(time.Minute), Yearly: true})
		}
		s := compile(t, schedule.Definition{Cron: "0 * * 1 3 *", Calendars: []schedule.Calendar{{Days: day}}})
		until := start.AddDate(250, 0, 0)
		got := s.Between(start, until, 2)
		want := []time.Time{start.AddDate(249, 0, 0).Add(1437 * time.Minute), start.AddDate(249, 0, 0).Add(1439 * time.Minute)}
		if diff := cmp.Diff(want, got.Times); diff != "" || !got.Capped || got.Count < 2_000 || !got.First.Equal(start.Add(time.Minute)) || !got.Last.Equal(want[0].Add(-2*time.Minute)) {
			t.Errorf("count %d, capped %v (-want +got):\n%s", got.Count, got.Capped, diff)
		}
	})
	t.Run("a list that takes too long is cut", func(t *testing.T) {
		t.Parallel()
		// One run a year is left, and 719 are dropped one by one.
		var day []schedule.DateRange
		for minute := 2; minute < 1440; minute += 2 {
			from := start.Add(time.Duration(minute) * time.Minute)
			day = append(day, schedule.DateRange{Start: from, End: from.Add(time.Minute), Yearly: true})
		}
		s := compile(t, schedule.Definition{Cron: "0 */2 * 1 3 *", Calendars: []schedule.Calendar{{Days: day}}})
		got := s.Between(start, start.AddDate(250, 0, 0), 100)
		n := len(got.Times)
		if n == 0 || n >= 100 || !got.Capped || got.Count <= n || !got.Times[n-1].Equal(start.AddDate(250, 0, 0)) ||
			!got.First.Equal(start.AddDate(1, 0, 0)) || !got.Last.Equal(got.Times[0].AddDate(-1, 0, 0)) {
			t.Errorf("%d of %d scheduled times, capped %v: %v", n, got.Count, got.Capped, got.Times)
		}
	})
}
