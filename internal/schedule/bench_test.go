package schedule_test

import (
	"strings"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/schedule"
)

// adversarial are accepted definitions made to be slow.
var adversarial = map[string]schedule.Definition{
	"fifth Monday of February":  {Cron: "0 0 0 ? 2 1#5"},
	"leap day, wrong weekday":   {Cron: "59 59 23 29 2 * 2096", Zone: "America/Santiago"},
	"last year":                 {Cron: "59 59 23 31 12 * 2099", Zone: "Africa/Casablanca"},
	"256 bytes of specials":     {Cron: "0 0 0 " + strings.TrimSuffix(strings.Repeat("31W,30W,L,", 12), ",") + " 2 " + strings.TrimSuffix(strings.Repeat("1#5,0#5,", 15), ","), Zone: "Pacific/Apia"},
	"only in years of no gap":   {Cron: "0 30 2 8 3 0#2 2026-2099/11", Zone: "America/New_York", DSTGap: "skip"},
	"mostly skipped":            {Cron: "0 30 2 ? 3 0#2", Zone: "America/New_York", DSTGap: "skip", Start: time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)},
	"every second, long jitter": {Cron: "*/2 * 9 * * *", Jitter: 24 * time.Hour, Key: "job"},
}

func BenchmarkNext(b *testing.B) {
	holidays := []schedule.Calendar{{Zone: "Europe/Berlin"}}
	for month := time.January; month <= time.December; month++ {
		holidays[0].Days = append(holidays[0].Days, schedule.DateRange{Start: time.Date(2026, month, 10, 0, 0, 0, 0, time.UTC), Yearly: true})
	}
	ordinary := []struct {
		name string
		def  schedule.Definition
	}{
		{"every 5 minutes", schedule.Definition{Cron: "0 */5 * * * *"}},
		{"every 30 seconds", schedule.Definition{Cron: "*/30 * * * * *"}},
		{"weekdays at nine", schedule.Definition{Cron: "0 0 9 * * 1-5", Zone: "Asia/Shanghai"}},
		{"nightly in New York", schedule.Definition{Cron: "0 30 2 * * *", Zone: "America/New_York"}},
		{"office hours in London", schedule.Definition{Cron: "0 0/30 9-17 * * *", Zone: "Europe/London"}},
		{"monthly", schedule.Definition{Cron: "0 0 0 1 * *", Zone: "America/Santiago"}},
		{"last Friday", schedule.Definition{Cron: "0 0 9 ? * 5L"}},
		{"leap day", schedule.Definition{Cron: "0 0 0 29 2 *"}},
		{"interval", schedule.Definition{Interval: 30 * time.Second}},
		{"with jitter", schedule.Definition{Cron: "0 0 9 * * *", Zone: "Europe/Berlin", Jitter: time.Hour, Key: "job"}},
		{"with calendar", schedule.Definition{Cron: "0 0 9 * * *", Zone: "Europe/Berlin", Calendars: holidays}},
	}
	for _, test := range ordinary {
		b.Run(test.name, func(b *testing.B) { benchmarkNext(b, test.def) })
	}
	b.Run("adversarial/9000 dropped one by one", func(b *testing.B) {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		s := compile(b, schedule.Definition{Cron: "0 */2 * * * *", Calendars: everyOther(start, 20_000)[:9]})
		b.ReportAllocs()
		for b.Loop() {
			s.Next(start.Add(-1))
		}
	})
	for name, def := range adversarial {
		b.Run("adversarial/"+name, func(b *testing.B) { benchmarkNext(b, def) })
	}
}

func benchmarkNext(b *testing.B, def schedule.Definition) {
	s := compile(b, def)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	next := start
	s.Next(start)
	b.ReportAllocs()
	for b.Loop() {
		var ok bool
		if next, ok = s.Next(next); !ok || next.Year() > 2040 {
			next = start
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	for name, def := range map[string]schedule.Definition{
		"ordinary": {Cron: "0 0 9 * * 1-5", Zone: "Asia/Shanghai"},
		"longest":  adversarial["256 bytes of specials"],
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				compile(b, def)
			}
		})
	}
}

// tenCalendars are calendars of ten zones, so that none is looked up with
// another. Together they drop some hours of each day in 2026.
func tenCalendars() []schedule.Calendar {
	var calendars []schedule.Calendar
	for i, zone := range []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo", "Asia/Kolkata", "Australia/Sydney", "Africa/Cairo", "America/Santiago", "Pacific/Apia", "Europe/London"} {
		c := schedule.Calendar{Zone: zone}
		for day := range 365 {
			start := time.Date(2026, 1, 1+day, 2*i, 0, 0, 0, time.UTC)
			c.Days = append(c.Days, schedule.DateRange{Start: start, End: start.Add(30 * time.Minute), Yearly: i%2 == 0})
		}
		calendars = append(calendars, c)
	}
	return calendars
}

func BenchmarkBetween(b *testing.B) {
	until := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		def   schedule.Definition
		after time.Time
		limit int
	}{
		"nothing due":             {schedule.Definition{Cron: "@daily"}, until, 10},
		"one due":                 {schedule.Definition{Cron: "@daily"}, until.Add(-time.Minute), 10},
		"an hour of minutes":      {schedule.Definition{Cron: "0 * * * * *"}, until.Add(-time.Hour), 10},
		"a month of every second": {schedule.Definition{Cron: "* * * * * *"}, until.AddDate(0, -1, 0), 100},
		"two days of every second, ten calendars": {schedule.Definition{Cron: "* * * * * *", Zone: "Europe/Berlin", Calendars: tenCalendars()}, until.AddDate(0, 0, -2), 101},
		"a month of an interval of a second":      {schedule.Definition{Interval: time.Second}, until.AddDate(0, 0, -30), 101},
		"an hour of every second, only counted":   {schedule.Definition{Cron: "* * * * * *", Calendars: tenCalendars()}, until.Add(-time.Hour), 0},
		"a decade of every minute":                {schedule.Definition{Cron: "0 * * * * *", Zone: "Europe/London"}, until.AddDate(-10, 0, 0), 10_000},
	} {
		b.Run(name, func(b *testing.B) {
			s := compile(b, test.def)
			b.ReportAllocs()
			for b.Loop() {
				s.Between(test.after, until, test.limit)
			}
		})
	}
}
