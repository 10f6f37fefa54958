package schedule_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/schedule"
)

// at reads the short form of a scheduled time that the tables below use, in UTC.
func at(t testing.TB, text string) time.Time {
	t.Helper()
	when, err := time.Parse("2006-01-02 15:04:05Z07:00", text)
	if err != nil {
		if when, err = time.Parse("2006-01-02 15:04Z07:00", text); err != nil {
			t.Fatal(err)
		}
	}
	return when.UTC()
}

func TestClockChanges(t *testing.T) {
	t.Parallel()
	const (
		ny, london, howe = "America/New_York", "Europe/London", "Australia/Lord_Howe"
	)
	for _, test := range []struct {
		name, cron, zone string
		gap              schedule.Gap
		overlap          schedule.Overlap
		after            string
		want             []string
	}{
		// A time that does not exist.
		{
			"gap shifts by its length", "0 30 2 * * *", ny, "", "", "2026-03-07 12:00-05:00",
			[]string{"2026-03-08 03:30-04:00", "2026-03-09 02:30-04:00"},
		},
		{
			"gap skipped", "0 30 2 * * *", ny, "skip", "", "2026-03-07 12:00-05:00",
			[]string{"2026-03-09 02:30-04:00", "2026-03-10 02:30-04:00"},
		},
		{
			"first moment of the gap", "0 0 2 * * *", ny, "", "", "2026-03-07 12:00-05:00",
			[]string{"2026-03-08 03:00-04:00", "2026-03-09 02:00-04:00"},
		},
		{
			"last minute before the gap", "0 59 1 * * *", ny, "", "", "2026-03-07 12:00-05:00",
			[]string{"2026-03-08 01:59-05:00", "2026-03-09 01:59-04:00"},
		},
		{
			"first moment after the gap", "0 0 3 * * *", ny, "", "", "2026-03-07 12:00-05:00",
			[]string{"2026-03-08 03:00-04:00", "2026-03-09 03:00-04:00"},
		},
		{
			"moved and real run meet and run once", "0 30 2,3 * * *", ny, "", "", "2026-03-07 12:00-05:00",
			[]string{"2026-03-08 03:30-04:00", "2026-03-09 02:30-04:00"},
		},
		{
			"a list of minutes moves as a whole", "0 */20 2 * * *", ny, "", "", "2026-03-08 00:00-05:00",
			[]string{"2026-03-08 03:00-04:00", "2026-03-08 03:20-04:00", "2026-03-08 03:40-04:00", "2026-03-09 02:00-04:00"},
		},
		{
			"every hour has nothing extra", "0 30 * * * *", ny, "", "", "2026-03-08 00:45-05:00",
			[]string{"2026-03-08 01:30-05:00", "2026-03-08 03:30-04:00", "2026-03-08 04:30-04:00"},
		},
		{
			"all 24 hours written out are every hour", "0 30 0-23 * * *", ny, "skip", "last", "2026-03-08 00:45-05:00",
			[]string{"2026-03-08 01:30-05:00", "2026-03-08 03:30-04:00"},
		},
		{
			"every two hours keeps its second run", "0 0 */2 * * *", ny, "", "", "2026-03-08 00:30-05:00",
			[]string{"2026-03-08 03:00-04:00", "2026-03-08 04:00-04:00"},
		},
		{
			"only on the day of the change", "0 30 2 8 3 *", ny, "", "", "2026-01-01 00:00-05:00",
			[]string{"2026-03-08 03:30-04:00", "2027-03-08 02:30-05:00"},
		},
		{
			"only on the day of the change, skipped", "0 30 2 8 3 *", ny, "skip", "", "2026-01-01 00:00-05:00",
			[]string{"2027-03-08 02:30-05:00", "2028-03-08 02:30-05:00"},
		},
		{
			"asked inside the moved hour", "0 30,45 2 * * *", ny, "", "", "2026-03-08 03:30-04:00",
			[]string{"2026-03-08 03:45-04:00", "2026-03-09 02:30-04:00"},
		},

		// A time that comes twice.
		{
			"overlap, first", "0 30 1 * * *", ny, "", "", "2026-10-31 12:00-04:00",
			[]string{"2026-11-01 01:30-04:00", "2026-11-02 01:30-05:00"},
		},
		{
			"overlap, last", "0 30 1 * * *", ny, "", "last", "2026-10-31 12:00-04:00",
			[]string{"2026-11-01 01:30-05:00", "2026-11-02 01:30-05:00"},
		},
		{
			"overlap, both", "0 30 1 * * *", ny, "", "both", "2026-10-31 12:00-04:00",
			[]string{"2026-11-01 01:30-04:00", "2026-11-01 01:30-05:00", "2026-11-02 01:30-05:00"},
		},
		{
			"overlap, asked between the passes", "0 30 1 * * *", ny, "", "", "2026-11-01 01:45-04:00",
			[]string{"2026-11-02 01:30-05:00"},
		},
		{
			"overlap, last, asked in the second pass", "0 0,45 1 * * *", ny, "", "last", "2026-11-01 01:10-05:00",
			[]string{"2026-11-01 01:45-05:00", "2026-11-02 01:00-05:00"},
		},
		{
			"every hour runs both passes", "0 0 * * * *", ny, "", "", "2026-11-01 00:30-04:00",
			[]string{"2026-11-01 01:00-04:00", "2026-11-01 01:00-05:00", "2026-11-01 02:00-05:00"},
		},
		{
			"every half hour leaves no hole in London", "0 */30 * * * *", london, "", "", "2026-10-25 00:40+01:00",
			[]string{"2026-10-25 01:00+01:00", "2026-10-25 01:30+01:00", "2026-10-25 01:00+00:00", "2026-10-25 01:30+00:00"},
		},

		// Half an hour.
		{
			"half-hour gap", "0 15 2 * * *", howe, "", "", "2026-10-03 12:00+10:30",
			[]string{"2026-10-04 02:45+11:00", "2026-10-05 02:15+11:00"},
		},
		{
			"half-hour gap leaves the other half", "0 45 2 * * *", howe, "skip", "", "2026-10-03 12:00+10:30",
			[]string{"2026-10-04 02:45+11:00", "2026-10-05 02:45+11:00"},
		},
		{
			"half-hour overlap, first", "0 45 1 * * *", howe, "", "", "2026-04-04 12:00+11:00",
			[]string{"2026-04-05 01:45+11:00", "2026-04-06 01:45+10:30"},
		},
		{
			"half-hour overlap, last", "0 45 1 * * *", howe, "", "last", "2026-04-04 12:00+11:00",
			[]string{"2026-04-05 01:45+10:30", "2026-04-06 01:45+10:30"},
		},
		{
			"half-hour overlap, hourly", "0 45 * * * *", howe, "", "", "2026-04-05 00:50+11:00",
			[]string{"2026-04-05 01:45+11:00", "2026-04-05 01:45+10:30", "2026-04-05 02:45+10:30"},
		},

		// Midnight.
		{
			"midnight does not exist in Santiago", "@daily", "America/Santiago", "", "", "2026-09-05 12:00-04:00",
			[]string{"2026-09-06 01:00-03:00", "2026-09-07 00:00-03:00"},
		},
		{
			"monthly search across Santiago's gap", "0 0 3 1 * *", "America/Santiago", "", "", "2026-09-01 03:00-04:00",
			[]string{"2026-10-01 03:00-03:00", "2026-11-01 03:00-03:00"},
		},
		{
			"midnight does not exist in Havana", "0 15 0 * * *", "America/Havana", "", "", "2026-03-07 12:00-05:00",
			[]string{"2026-03-08 01:15-04:00", "2026-03-09 00:15-04:00"},
		},
		{
			"midnight does not exist in Cairo", "@daily", "Africa/Cairo", "", "", "2026-04-23 12:00+02:00",
			[]string{"2026-04-24 01:00+03:00", "2026-04-25 00:00+03:00"},
		},
		{
			"midnight does not exist in Beirut", "@daily", "Asia/Beirut", "", "", "2026-03-28 12:00+02:00",
			[]string{"2026-03-29 01:00+03:00", "2026-03-30 00:00+03:00"},
		},
		{
			"midnight comes twice in Havana", "0 0 0 * * *", "America/Havana", "", "", "2026-10-31 12:00-04:00",
			[]string{"2026-11-01 00:00-04:00", "2026-11-02 00:00-05:00"},
		},
		{
			"a day's last hour comes twice in Santiago", "0 30 23 * * 6", "America/Santiago", "", "both", "2026-04-04 12:00-03:00",
			[]string{"2026-04-04 23:30-03:00", "2026-04-04 23:30-04:00", "2026-04-11 23:30-04:00"},
		},

		// A day that never was: Samoa went from 29 to 31 December.
		{
			"skipped day, daily run meets the next day's", "0 0 9 * * *", "Pacific/Apia", "", "", "2011-12-29 12:00-10:00",
			[]string{"2011-12-31 09:00+14:00", "2012-01-01 09:00+14:00"},
		},
		{
			"skipped day, its own run comes a day later", "0 0 12 30 * *", "Pacific/Apia", "", "", "2011-12-01 12:00-10:00",
			[]string{"2011-12-31 12:00+14:00", "2012-01-30 12:00+14:00"},
		},
		{
			"skipped day, skipped", "0 0 12 30 * *", "Pacific/Apia", "skip", "", "2011-12-01 12:00-10:00",
			[]string{"2012-01-30 12:00+14:00"},
		},
		{
			"skipped Friday, hourly", "0 0 * * * 5", "Pacific/Apia", "", "", "2011-12-24 12:00-10:00",
			[]string{"2012-01-06 00:00+14:00", "2012-01-06 01:00+14:00"},
		},

		// Changes on the last day of a leap year, where rule texts go wrong.
		{
			"last day of a leap year", "0 0 12 31 12 *", ny, "", "", "2028-12-31 00:00-05:00",
			[]string{"2028-12-31 12:00-05:00", "2029-12-31 12:00-05:00"},
		},
		{
			"far future", "0 30 2 * * 0#2", ny, "", "", "2400-03-01 00:00-05:00",
			[]string{"2400-03-12 03:30-04:00", "2400-04-09 02:30-04:00"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := compile(t, schedule.Definition{Cron: test.cron, Zone: test.zone, DSTGap: test.gap, DSTOverlap: test.overlap})
			var want []time.Time
			for _, text := range test.want {
				want = append(want, at(t, text))
			}
			got := timesAfter(s, at(t, test.after), len(want))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%q in %s (-want +got):\n%s", test.cron, test.zone, diff)
			}
		})
	}
}
