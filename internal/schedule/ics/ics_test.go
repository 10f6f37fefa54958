package ics_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/schedule"
	"github.com/scheduler-service/scheduler/internal/schedule/ics"
)

// file wraps the lines of events into a calendar; the first of them is line 4.
func file(lines ...string) string {
	all := append([]string{"BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//test"}, lines...)
	return strings.Join(append(all, "END:VCALENDAR", ""), "\r\n")
}

func wall(t *testing.T, text string) time.Time {
	t.Helper()
	when, err := time.Parse("2006-01-02 15:04:05", text)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, text, zone string
		want             []schedule.DateRange
	}{
		{"no events", file(), "", nil},
		{
			"a day", file("BEGIN:VEVENT", "UID:1", "DTSTART;VALUE=DATE:20261225", "SUMMARY:Christmas: eat; rest", "END:VEVENT"), "",
			[]schedule.DateRange{{Start: wall(t, "2026-12-25 00:00:00")}},
		},
		{
			"days, yearly", file("BEGIN:VEVENT", "DTSTART:20261225", "DTEND:20261227", "RRULE:FREQ=YEARLY", "END:VEVENT"), "",
			[]schedule.DateRange{{Start: wall(t, "2026-12-25 00:00:00"), End: wall(t, "2026-12-27 00:00:00"), Yearly: true}},
		},
		{
			"yearly, written out", file("BEGIN:VEVENT", "DTSTART:20261225", "RRULE:FREQ=YEARLY;INTERVAL=1;BYMONTH=12;BYMONTHDAY=25;WKST=MO", "END:VEVENT"), "",
			[]schedule.DateRange{{Start: wall(t, "2026-12-25 00:00:00"), Yearly: true}},
		},
		{
			"local time", file("BEGIN:VEVENT", "DTSTART:20260301T220000", "DTEND:20260302T060000", "END:VEVENT"), "Europe/London",
			[]schedule.DateRange{{Start: wall(t, "2026-03-01 22:00:00"), End: wall(t, "2026-03-02 06:00:00")}},
		},
		{
			"UTC in a zone", file("BEGIN:VEVENT", "DTSTART:20260701T220000Z", "DTEND:20260701T230000Z", "END:VEVENT"), "Europe/London",
			[]schedule.DateRange{{Start: wall(t, "2026-07-01 23:00:00"), End: wall(t, "2026-07-02 00:00:00")}},
		},
		{
			"the zone itself, yearly", file("BEGIN:VEVENT", `DTSTART;TZID="Europe/London":20260701T220000`, "DTEND;TZID=Europe/London:20260701T230000", "RRULE:FREQ=YEARLY", "END:VEVENT"), "Europe/London",
			[]schedule.DateRange{{Start: wall(t, "2026-07-01 22:00:00"), End: wall(t, "2026-07-01 23:00:00"), Yearly: true}},
		},
		{
			"another zone", file("BEGIN:VEVENT", "DTSTART;TZID=Asia/Tokyo:20260701T090000", "DTEND;TZID=Asia/Tokyo:20260701T100000", "END:VEVENT"), "",
			[]schedule.DateRange{{Start: wall(t, "2026-07-01 00:00:00"), End: wall(t, "2026-07-01 01:00:00")}},
		},
		{
			"zones and alarms are passed over", file("BEGIN:VTIMEZONE", "TZID:Europe/London", "BEGIN:DAYLIGHT", "DTSTART:19700329T010000", "RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=3", "END:DAYLIGHT", "BEGIN:STANDARD", "END:STANDARD", "END:VTIMEZONE",
				"BEGIN:VEVENT", "DTSTART:20261225", "BEGIN:VALARM", "DURATION:PT5M", "END:VALARM", "END:VEVENT"), "",
			[]schedule.DateRange{{Start: wall(t, "2026-12-25 00:00:00")}},
		},
		{"cancelled", file("BEGIN:VEVENT", "DTSTART:20261225", "STATUS:CANCELLED", "END:VEVENT"), "", nil},
		{"folded", file("BEGIN:VEVENT", "DTSTART;VALUE", " =DATE:2026", "\t1225", "END:VEVENT"), "", []schedule.DateRange{{Start: wall(t, "2026-12-25 00:00:00")}}},
		{
			"bare line feeds, any case, blank lines", "begin:vcalendar\n\nbegin:vevent\ndtstart;value=date:20261225\nend:vevent\nend:vcalendar", "",
			[]schedule.DateRange{{Start: wall(t, "2026-12-25 00:00:00")}},
		},
		{
			"two calendars", file("BEGIN:VEVENT", "DTSTART:20261225", "END:VEVENT") + file("BEGIN:VEVENT", "DTSTART:20261226", "END:VEVENT"), "",
			[]schedule.DateRange{{Start: wall(t, "2026-12-25 00:00:00")}, {Start: wall(t, "2026-12-26 00:00:00")}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := ics.Parse(strings.NewReader(test.text), test.zone)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			_, err = schedule.Compile(schedule.Definition{Calendars: []schedule.Calendar{{Zone: test.zone, Days: got}}})
			if err != nil {
				t.Errorf("the ranges make no calendar: %v", err)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, zone, want string }{
		{"unknown zone", file(), "Mars/Olympus", `zone "Mars/Olympus" is not a known zone`},
		{"this machine's zone", file(), "Local", `zone "Local" is not a known zone`},
		{"empty", "", "", "the file ends too early"},
		{"not a calendar", "hello", "", "line 1: has no colon"},
		{"quoted colon", `X;A="b:c"`, "", "line 1: has no colon"},
		{"outside", "X:y", "", "line 1: stands outside"},
		{"cut off", "BEGIN:VCALENDAR", "", "line 1: the file ends too early"},
		{"too long", strings.Repeat("X", 1<<20+1), "", "is longer than 1048576 bytes"},
		{"long line", file("X:" + strings.Repeat("y", 9000)), "", "line 4: is longer than 8192"},
		{"long folded line", file(strings.Repeat("X:yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n ", 600)), "", "line 4: is longer than 8192"},
		{"task", file("BEGIN:VTODO"), "", `line 4: "BEGIN:VTODO" is not supported`},
		{"event outside", "BEGIN:VEVENT", "", `line 1: "BEGIN:VEVENT" is not supported here`},
		{"wrong end", file("BEGIN:VEVENT", "END:VALARM"), "", `line 5: "END:VALARM" does not end`},
		{"nothing to end", "END:VCALENDAR", "", `line 1: "END:VCALENDAR" does not end`},
		{"no start", file("BEGIN:VEVENT", "END:VEVENT"), "", "line 4: the event has no DTSTART"},
		{"no end", file("BEGIN:VEVENT", "DTSTART:20260301T220000", "END:VEVENT"), "", "line 4: the event has no DTEND"},
		{"mixed", file("BEGIN:VEVENT", "DTSTART:20260301T220000", "DTEND:20260303", "END:VEVENT"), "", "line 4: DTSTART and DTEND have to be"},
		{"backwards", file("BEGIN:VEVENT", "DTSTART:20260303", "DTEND:20260303", "END:VEVENT"), "", "line 4: the event ends before"},
		{"two starts", file("BEGIN:VEVENT", "DTSTART:20260303", "DTSTART:20260303", "END:VEVENT"), "", "line 6: a second DTSTART"},
		{"no date", file("BEGIN:VEVENT", "DTSTART;VALUE=DATE:20260230", "END:VEVENT"), "", `line 5: "20260230" is not a date`},
		{"no time", file("BEGIN:VEVENT", "DTSTART:2026-03-03", "END:VEVENT"), "", `line 5: "2026-03-03" is not a date or a time`},
		{"Windows zone", file("BEGIN:VEVENT", "DTSTART;TZID=W. Europe Standard Time:20260701T090000", "END:VEVENT"), "", `line 5: zone "W. Europe Standard Time" is not`},
		{"weekly", file("BEGIN:VEVENT", "DTSTART:20260303", "RRULE:FREQ=WEEKLY", "END:VEVENT"), "", `line 6: "FREQ=WEEKLY" is not supported`},
		{"yearly with an end", file("BEGIN:VEVENT", "DTSTART:20260303", "RRULE:FREQ=YEARLY;COUNT=3", "END:VEVENT"), "", `line 6: "COUNT=3" is not supported`},
		{"yearly on another day", file("BEGIN:VEVENT", "DTSTART:20260303", "RRULE:FREQ=YEARLY;BYMONTH=4", "END:VEVENT"), "", `line 6: "BYMONTH=4" is not supported`},
		{"no frequency", file("BEGIN:VEVENT", "DTSTART:20260303", "RRULE:INTERVAL=1", "END:VEVENT"), "", "line 6: RRULE has no FREQ"},
		{"rule before the start", file("BEGIN:VEVENT", "RRULE:FREQ=YEARLY", "DTSTART:20260303", "END:VEVENT"), "", "line 5: RRULE stands before DTSTART"},
		{"yearly in another zone", file("BEGIN:VEVENT", "DTSTART:20260303T100000Z", "DTEND:20260303T110000Z", "RRULE:FREQ=YEARLY", "END:VEVENT"), "Europe/London", "line 4: a yearly event has to be in the calendar's zone"},
		{"exception", file("BEGIN:VEVENT", "DTSTART:20260303", "EXDATE:20260303", "END:VEVENT"), "", "line 6: EXDATE is not supported"},
		{"duration", file("BEGIN:VEVENT", "DTSTART:20260303", "DURATION:P1D", "END:VEVENT"), "", "line 6: DURATION is not supported"},
		{"1001 events", file(strings.Repeat("BEGIN:VEVENT\r\nDTSTART:20260303\r\nEND:VEVENT\r\n", 1001)), "", "line 3006: has more than 1000 events"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := ics.Parse(strings.NewReader(test.text), test.zone)
			var refused *fault.Error
			if !errors.As(err, &refused) || refused.Kind != fault.Invalid || len(refused.Fields) != 1 || refused.Fields[0].Path != "ics" {
				t.Fatalf("Parse = %v", err)
			}
			if got := refused.Fields[0].Message; !strings.HasPrefix(got, test.want) {
				t.Errorf("message %q, want %q", got, test.want)
			}
		})
	}
}

func TestParseReadError(t *testing.T) {
	t.Parallel()
	if _, err := ics.Parse(iotest.ErrReader(io.ErrUnexpectedEOF), ""); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Parse = %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(file("BEGIN:VEVENT", "DTSTART;VALUE=DATE:20261225", "DTEND:20261227", "RRULE:FREQ=YEARLY", "END:VEVENT"), "Europe/London")
	f.Add(file("BEGIN:VEVENT", `DTSTART;TZID="Asia/Tokyo":20260701T090000`, "DTEND:20260701T100000Z", "END:VEVENT"), "")
	f.Fuzz(func(t *testing.T, text, zone string) {
		ranges, err := ics.Parse(strings.NewReader(text), zone)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		for _, r := range ranges {
			if !r.End.IsZero() && !r.End.After(r.Start) {
				t.Fatalf("range %+v of %q", r, text)
			}
		}
	})
}
