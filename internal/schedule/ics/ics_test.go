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

// now is when the files are imported.
var now = time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC)

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
			[]schedule.DateRange{{Start: wall(t, "2026-12-25 00:00:00"), Name: "Christmas: eat; rest"}},
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
			got, err := ics.Parse(strings.NewReader(test.text), test.zone, now)
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
		{"not a calendar", "hello", "", "line 1: is not a property"},
		{"quoted colon", `X;A="b:c"`, "", "line 1: is not a property"},
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
		{"unknown zone of a time", file("BEGIN:VEVENT", "DTSTART;TZID=Our Time:20260701T090000", "END:VEVENT"), "", `line 5: zone "Our Time" is not`},
		{"by the second", file("BEGIN:VEVENT", "DTSTART:20260303T000000", "DURATION:PT1S", "RRULE:FREQ=SECONDLY", "END:VEVENT"), "", "line 4: RRULE in line 7: FREQ=SECONDLY is not supported"},
		{"by the hour of a day", file("BEGIN:VEVENT", "DTSTART:20260303", "RRULE:FREQ=DAILY;BYHOUR=1,2", "END:VEVENT"), "", "line 4: RRULE in line 6: BYHOUR"},
		{"daily without an end", file("BEGIN:VEVENT", "DTSTART:20260303", "RRULE:FREQ=DAILY", "END:VEVENT"), "", "line 4: RRULE in line 6: gives more than 1000 days until 2036-06-15"},
		{"no frequency", file("BEGIN:VEVENT", "DTSTART:20260303", "RRULE:INTERVAL=1", "END:VEVENT"), "", "line 4: RRULE in line 6: is not a rule"},
		{"two rules", file("BEGIN:VEVENT", "DTSTART:20260303", "RRULE:FREQ=WEEKLY", "RRULE:FREQ=DAILY", "END:VEVENT"), "", "line 7: a second RRULE"},
		{"a bad end of a rule", file("BEGIN:VEVENT", "DTSTART:20260303", "RRULE:FREQ=WEEKLY;UNTIL=soon", "END:VEVENT"), "", "line 4: RRULE in line 6: is not a rule"},
		{"a rule of long ago", file("BEGIN:VEVENT", "DTSTART:16010101", "RRULE:FREQ=WEEKLY", "END:VEVENT"), "", "line 4: RRULE in line 6: begins in 1601"},
		{"a period", file("BEGIN:VEVENT", "DTSTART:20260303T000000", "DURATION:PT1H", "RDATE;VALUE=PERIOD:20260304T000000/PT1H", "END:VEVENT"), "", "line 7: "},
		{"an exclusion rule", file("BEGIN:VEVENT", "DTSTART:20260303", "EXRULE:FREQ=WEEKLY", "END:VEVENT"), "", "line 6: EXRULE"},
		{"a negative duration", file("BEGIN:VEVENT", "DTSTART:20260303T000000", "DURATION:-PT1H", "END:VEVENT"), "", `line 6: "-PT1H" is not a duration`},
		{"no duration", file("BEGIN:VEVENT", "DTSTART:20260303", "DURATION:P", "END:VEVENT"), "", `line 6: "P" is not a duration`},
		{"an end and a duration", file("BEGIN:VEVENT", "DTSTART:20260303", "DTEND:20260304", "DURATION:P1D", "END:VEVENT"), "", "line 4: the event has DTEND and DURATION"},
		{"hours of a day", file("BEGIN:VEVENT", "DTSTART:20260303", "DURATION:PT1H", "END:VEVENT"), "", "line 4: the DURATION of an event of whole days"},
		{"too many that repeat", file(strings.Repeat("BEGIN:VEVENT\r\nDTSTART:20260303\r\nRRULE:FREQ=WEEKLY;COUNT=1\r\nEND:VEVENT\r\n", 101)), "", "line 404: has more than 100 events that repeat"},
		{"too many days", file(strings.Repeat("BEGIN:VEVENT\r\nDTSTART:20260303\r\nRRULE:FREQ=WEEKLY\r\nEND:VEVENT\r\n", 3)), "", "line 8: the events up to here give more than 1000 days"},
		{"1001 events", file(strings.Repeat("BEGIN:VEVENT\r\nDTSTART:20260303\r\nEND:VEVENT\r\n", 1001)), "", "line 3006: has more than 1000 events"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := ics.Parse(strings.NewReader(test.text), test.zone, now)
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
	if _, err := ics.Parse(iotest.ErrReader(io.ErrUnexpectedEOF), "", now); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Parse = %v", err)
	}
}

// Calendars send what Outlook, Google and the holiday sites write.
func TestRepetitions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, zone string
		lines      []string
		want       []string // start, end, name
	}{
		{
			"Outlook: a Windows zone, weekly by days, until, an exception and a moved occurrence", "Europe/Berlin",
			[]string{
				"BEGIN:VEVENT", "UID:freeze", "SUMMARY:Change freeze", "DTSTART;TZID=W. Europe Standard Time:20260701T180000", "DTEND;TZID=W. Europe Standard Time:20260701T200000",
				"RRULE:FREQ=WEEKLY;UNTIL=20260710T160000Z;BYDAY=WE,FR", "EXDATE;TZID=W. Europe Standard Time:20260703T180000", "END:VEVENT",
				"BEGIN:VEVENT", "UID:freeze", "SUMMARY:Moved", "RECURRENCE-ID;TZID=W. Europe Standard Time:20260708T180000", "DTSTART:20260709T060000Z", "DURATION:PT1H30M", "END:VEVENT",
			},
			[]string{"2026-07-01 18:00 2026-07-01 20:00 Change freeze", "2026-07-10 18:00 2026-07-10 20:00 Change freeze", "2026-07-09 08:00 2026-07-09 09:30 Moved"},
		},
		{
			"a holiday by its weekday, until a date, and one more date", "",
			[]string{
				"BEGIN:VEVENT", "UID:1", "SUMMARY:Thanksgiving\\, US", "DTSTART;VALUE=DATE:20251127", "RRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH;UNTIL=20271125", "RDATE;VALUE=DATE:20280101,20280102", "EXDATE;VALUE=DATE:20280102", "END:VEVENT",
			},
			[]string{"2025-11-27 00:00 - Thanksgiving, US", "2026-11-26 00:00 - Thanksgiving, US", "2027-11-25 00:00 - Thanksgiving, US", "2028-01-01 00:00 - Thanksgiving, US"},
		},
		{
			"in another zone, over a change of clocks", "Europe/London",
			[]string{
				"BEGIN:VEVENT", "DTSTART;TZID=America/New_York:20261020T090000", "DURATION:PT1H", "RRULE:FREQ=WEEKLY;COUNT=3", "END:VEVENT",
			},
			[]string{"2026-10-20 14:00 2026-10-20 15:00 ", "2026-10-27 13:00 2026-10-27 14:00 ", "2026-11-03 14:00 2026-11-03 15:00 "},
		},
		{"the last working day", "", []string{"BEGIN:VEVENT", "DTSTART:20260630", "DURATION:P2D", "RRULE:FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;COUNT=2", "END:VEVENT"}, []string{"2026-06-30 00:00 2026-07-02 00:00 ", "2026-07-31 00:00 2026-08-02 00:00 "}},
		{"what is long over is left out", "", []string{"BEGIN:VEVENT", "DTSTART:20100101", "RRULE:FREQ=YEARLY;BYDAY=1MO;BYMONTH=1;UNTIL=20260201", "END:VEVENT"}, []string{"2025-01-06 00:00 - ", "2026-01-05 00:00 - "}},
		{"a leap day in a rule", "", []string{"BEGIN:VEVENT", "DTSTART:20240229", "RRULE:FREQ=YEARLY;COUNT=3", "END:VEVENT"}, []string{"2028-02-29 00:00 - ", "2032-02-29 00:00 - "}},
		{"a rule that fits no day", "", []string{"BEGIN:VEVENT", "DTSTART:20260101", "RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "END:VEVENT"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ranges, err := ics.Parse(strings.NewReader(file(test.lines...)), test.zone, now)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range ranges {
				end := "-"
				if !r.End.IsZero() {
					end = r.End.Format("2006-01-02 15:04")
				}
				got = append(got, r.Start.Format("2006-01-02 15:04")+" "+end+" "+r.Name)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// BenchmarkExpand is a rule that fits no day, as costly as we know one.
func BenchmarkExpand(b *testing.B) {
	for _, rule := range []string{"FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "FREQ=MONTHLY;BYDAY=MO;BYMONTH=2;BYMONTHDAY=30;BYSETPOS=300", "FREQ=WEEKLY;BYMONTH=2;BYMONTHDAY=30"} {
		b.Run(rule, func(b *testing.B) {
			for b.Loop() {
				if _, err := ics.Parse(strings.NewReader(file("BEGIN:VEVENT", "DTSTART:19000101", "RRULE:"+rule, "END:VEVENT")), "", now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(file("BEGIN:VEVENT", "DTSTART;VALUE=DATE:20261225", "DTEND:20261227", "RRULE:FREQ=YEARLY", "END:VEVENT"), "Europe/London")
	f.Add(file("BEGIN:VEVENT", `DTSTART;TZID="Asia/Tokyo":20260701T090000`, "DTEND:20260701T100000Z", "END:VEVENT"), "")
	f.Fuzz(func(t *testing.T, text, zone string) {
		ranges, err := ics.Parse(strings.NewReader(text), zone, now)
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
