package schedule

import (
	"testing"
	"time"
)

// counting counts the slots that a rule is asked for.
type counting struct {
	rule

	asked *int
}

func (c counting) slot(after int64) (int64, bool) {
	*c.asked++
	return c.rule.slot(after)
}

// The cost of Between follows from what it lists, and from how often a calendar
// changes its mind, and not from how many scheduled times have passed.
func TestBetweenCostsWhatItKeeps(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	var calendars []Calendar
	for i, zone := range []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo", "Asia/Kolkata", "Australia/Sydney", "Africa/Cairo", "America/Santiago", "Pacific/Apia", "Europe/London"} {
		lunch := time.Date(2026, 5, 30, i, 0, 0, 0, time.UTC)
		calendars = append(calendars, Calendar{Zone: zone, Days: []DateRange{{Start: lunch, End: lunch.Add(time.Hour), Yearly: true}}})
	}
	for _, test := range []struct {
		name  string
		def   Definition
		after time.Time
		limit int
		most  int
	}{
		{"nothing due", Definition{Cron: "@daily"}, until, 100, 1},
		{"the ordinary case", Definition{Cron: "@daily"}, until.AddDate(0, 0, -1), 100, 2},
		{"two days of every second, ten calendars", Definition{Cron: "* * * * * *", Calendars: calendars}, until.AddDate(0, 0, -2), 101, 200},
		{"a year of every second", Definition{Cron: "* * * * * *", Zone: "Europe/Berlin"}, until.AddDate(-1, 0, 0), 101, 150},
		{"a month of an interval", Definition{Interval: time.Second}, until.AddDate(0, 0, -30), 101, 150},
		{"the seconds of an hour a day", Definition{Cron: "* * 3 * * *"}, until.AddDate(-1, 0, 0), 5000, 5050},
		{"an hour that is only counted", Definition{Cron: "* * * * * *", Calendars: calendars}, until.Add(-time.Hour), 0, 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, err := Compile(test.def)
			if err != nil {
				t.Fatal(err)
			}
			asked := 0
			s.rule = counting{s.rule, &asked}
			if o := s.Between(test.after, until, test.limit); asked > test.most || o.Capped {
				t.Errorf("asked for %d slots, more than %d, to list %d of %d, capped %v", asked, test.most, len(o.Times), o.Count, o.Capped)
			}
		})
	}
}
