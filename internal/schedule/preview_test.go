package schedule_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/schedule"
)

// line is an Occurrence in short: slot, wall, change, dropped.
func line(o schedule.Occurrence) string {
	return strings.TrimSpace(strings.Join([]string{o.Slot.Format("2006-01-02 15:04Z07:00"), o.Wall, o.Change, o.Dropped}, " "))
}

func TestPreview(t *testing.T) {
	t.Parallel()
	const ny = "America/New_York"
	mayDay := []schedule.Calendar{{Days: []schedule.DateRange{{Start: at(t, "2026-05-01 00:00Z"), End: at(t, "2026-05-04 00:00Z")}}}}
	for _, test := range []struct {
		name  string
		def   schedule.Definition
		after string
		count int
		want  []string
	}{
		{
			"plain",
			schedule.Definition{Cron: "@daily", Zone: "Asia/Kolkata"},
			"2026-03-01 00:00+05:30", 2,
			[]string{"2026-03-02 00:00+05:30 2026-03-02T00:00:00", "2026-03-03 00:00+05:30 2026-03-03T00:00:00"},
		},
		{
			"moved",
			schedule.Definition{Cron: "0 30 2 * * *", Zone: ny},
			"2026-03-07 12:00-05:00", 2,
			[]string{"2026-03-08 03:30-04:00 2026-03-08T02:30:00 moved", "2026-03-09 02:30-04:00 2026-03-09T02:30:00"},
		},
		{
			"gap",
			schedule.Definition{Cron: "0 30 2 * * *", Zone: ny, DSTGap: "skip"},
			"2026-03-07 12:00-05:00", 1,
			[]string{"2026-03-08 03:30-04:00 2026-03-08T02:30:00  gap", "2026-03-09 02:30-04:00 2026-03-09T02:30:00"},
		},
		{
			"overlap, first",
			schedule.Definition{Cron: "0 30 1 * * *", Zone: ny},
			"2026-10-31 12:00-04:00", 2,
			[]string{"2026-11-01 01:30-04:00 2026-11-01T01:30:00", "2026-11-01 01:30-05:00 2026-11-01T01:30:00 repeated overlap", "2026-11-02 01:30-05:00 2026-11-02T01:30:00"},
		},
		{
			"overlap, last",
			schedule.Definition{Cron: "0 30 1 * * *", Zone: ny, DSTOverlap: "last"},
			"2026-10-31 12:00-04:00", 1,
			[]string{"2026-11-01 01:30-04:00 2026-11-01T01:30:00  overlap", "2026-11-01 01:30-05:00 2026-11-01T01:30:00 repeated"},
		},
		{
			"overlap, both",
			schedule.Definition{Cron: "0 30 1 * * *", Zone: ny, DSTOverlap: "both"},
			"2026-10-31 12:00-04:00", 2,
			[]string{"2026-11-01 01:30-04:00 2026-11-01T01:30:00", "2026-11-01 01:30-05:00 2026-11-01T01:30:00 repeated"},
		},
		{
			"overlap, hourly",
			schedule.Definition{Cron: "@hourly", Zone: ny, DSTOverlap: "last"},
			"2026-11-01 00:30-04:00", 2,
			[]string{"2026-11-01 01:00-04:00 2026-11-01T01:00:00", "2026-11-01 01:00-05:00 2026-11-01T01:00:00 repeated"},
		},
		{
			"calendar",
			schedule.Definition{Cron: "@daily", Calendars: mayDay},
			"2026-04-30 12:00Z", 5,
			[]string{
				"2026-05-01 00:00Z 2026-05-01T00:00:00  calendar", "2026-05-02 00:00Z 2026-05-02T00:00:00  calendar", "2026-05-03 00:00Z 2026-05-03T00:00:00  calendar",
				"2026-05-04 00:00Z 2026-05-04T00:00:00", "2026-05-05 00:00Z 2026-05-05T00:00:00", "2026-05-06 00:00Z 2026-05-06T00:00:00",
				"2026-05-07 00:00Z 2026-05-07T00:00:00", "2026-05-08 00:00Z 2026-05-08T00:00:00",
			},
		},
		{
			"only so many dropped ones",
			schedule.Definition{Cron: "@daily", Calendars: mayDay},
			"2026-04-30 12:00Z", 1,
			[]string{"2026-05-01 00:00Z 2026-05-01T00:00:00  calendar", "2026-05-04 00:00Z 2026-05-04T00:00:00"},
		},
		{
			"interval",
			schedule.Definition{Interval: time.Hour, Anchor: at(t, "2026-03-08 06:30Z"), Zone: ny},
			"2026-03-08 06:00Z", 1,
			[]string{"2026-03-08 03:30-04:00 2026-03-08T03:30:00"},
		},
		{"one-off", schedule.Definition{RunAt: at(t, "2026-03-08 06:30Z")}, "2026-03-08 06:00Z", 10, []string{"2026-03-08 06:30Z 2026-03-08T06:30:00"}},
		{"one-off has passed", schedule.Definition{RunAt: at(t, "2026-03-08 06:30Z")}, "2026-03-08 07:00Z", 10, nil},
		{
			"window",
			schedule.Definition{Cron: "@daily", Start: at(t, "2026-03-02 00:00Z"), End: at(t, "2026-03-03 00:00Z")},
			"2026-01-01 00:00Z", 10,
			[]string{"2026-03-02 00:00Z 2026-03-02T00:00:00"},
		},
		{"none wanted", schedule.Definition{Cron: "@daily"}, "2026-01-01 00:00Z", -1, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, o := range compile(t, test.def).Preview(at(t, test.after), test.count) {
				got = append(got, line(o))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPreviewEqualsNext holds the occurrences that run to what Next answers.
func TestPreviewEqualsNext(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := mustCompile(t, drawDefinition(t))
		after := time.Unix(drawDay(t), 0)
		count := rapid.IntRange(0, 30).Draw(t, "count")
		var got []time.Time
		for _, o := range s.Preview(after, count) {
			if o.Dropped == "" {
				got = append(got, o.At.UTC())
			}
		}
		if diff := cmp.Diff(timesAfter(s, after, count), got); diff != "" {
			t.Fatalf("(-Next +Preview):\n%s", diff)
		}
	})
}

func TestPreviewIsBounded(t *testing.T) {
	t.Parallel()
	s := compile(t, schedule.Definition{Cron: "* * * * * *"})
	if list := s.Preview(at(t, "2026-01-01 00:00Z"), 1_000_000); len(list) != 1000 {
		t.Errorf("%d occurrences, want 1000", len(list))
	}
}

func TestLint(t *testing.T) {
	t.Parallel()
	const ny = "America/New_York"
	year := func(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC) }
	longHoliday := []schedule.Calendar{{Days: []schedule.DateRange{{Start: year(2026), End: year(2028)}}}}
	for _, test := range []struct {
		name string
		def  schedule.Definition
		want []string // code and a part of the message
	}{
		{"nothing to say", schedule.Definition{Cron: "0 */5 * * * *"}, nil},
		{"every second", schedule.Definition{Cron: "* * * * * *"}, nil},
		{"interval", schedule.Definition{Interval: time.Hour}, nil},
		{"one-off", schedule.Definition{RunAt: year(2030)}, nil},
		{"hourly does not mind clock changes", schedule.Definition{Cron: "@hourly", Zone: ny}, nil},
		{"over", schedule.Definition{Cron: "0 0 0 1 1 * 2020"}, []string{"NEVER_FIRES never fires after 2026-01-15"}},
		{"ends", schedule.Definition{Cron: "@daily", End: year(2027)}, []string{"ENDS never fires after 2026-12-31T00:00:00Z"}},
		{"ends with its years", schedule.Definition{Cron: "0 0 0 1 1 * 2026-2030"}, []string{"ENDS never fires after 2030-01-01T00:00:00Z"}},
		{"interval ends", schedule.Definition{Interval: time.Hour, End: year(2027)}, []string{"ENDS never fires after 2026-12-31T23:00:00Z"}},
		{"31st", schedule.Definition{Cron: "0 0 0 31 * *"}, []string{"SKIPS_MONTHS fires 0 times in February, April, June, September, November"}},
		{"30th", schedule.Definition{Cron: "0 0 0 30 * *"}, []string{"SKIPS_MONTHS fires 0 times in February"}},
		{"29th", schedule.Definition{Cron: "0 0 0 29 * *"}, []string{"SKIPS_YEARS fires 0 times in some years in February"}},
		{"leap day", schedule.Definition{Cron: "0 0 0 29 2 *"}, []string{"SKIPS_YEARS fires 0 times in some years in February"}},
		{"fifth Friday", schedule.Definition{Cron: "0 0 0 ? 1,2 5#5"}, []string{"SKIPS_YEARS fires 0 times in some years in January, February"}},
		{"month that is not asked for", schedule.Definition{Cron: "0 0 0 31 1 *"}, nil},
		{"either day", schedule.Definition{Cron: "0 0 0 13 * 5"}, []string{"EITHER_DAY day-of-month and day-of-week"}},
		{"uneven", schedule.Definition{Cron: "0 */7 */5 * * *"}, []string{"UNEVEN_STEP minute */7 does not divide", "UNEVEN_STEP hour */5"}},
		{"sixty times", schedule.Definition{Cron: "* 0 2 * * *"}, []string{"EVERY_SECOND the first field"}},
		{"moved", schedule.Definition{Cron: "0 30 2 * * *", Zone: ny}, []string{"CLOCK_CHANGE 2026-03-08T02:30:00 does not exist in America/New_York: the run moves to 2026-03-08T03:30:00"}},
		{"skipped", schedule.Definition{Cron: "0 30 2 * * *", Zone: ny, DSTGap: "skip"}, []string{"CLOCK_CHANGE 2026-03-08T02:30:00 does not exist in America/New_York: nothing runs"}},
		{"once", schedule.Definition{Cron: "0 30 1 * * *", Zone: ny}, []string{"CLOCK_CHANGE 2026-11-01T01:30:00 comes twice in America/New_York: only one of the two runs"}},
		{"last", schedule.Definition{Cron: "0 30 1 * * *", Zone: ny, DSTOverlap: "last"}, []string{"CLOCK_CHANGE 2026-11-01T01:30:00 comes twice in America/New_York: only one"}},
		{"both passes", schedule.Definition{Cron: "0 30 1 * * *", Zone: ny, DSTOverlap: "both"}, []string{"CLOCK_CHANGE 2026-11-01T01:30:00 comes twice in America/New_York: it runs both times"}},
		{"both changes", schedule.Definition{Cron: "0 */10 1,2 * * *", Zone: ny}, []string{"CLOCK_CHANGE 2026-03-08T02:00:00 does not", "CLOCK_CHANGE 2026-11-01T01:00:00 comes"}},
		{"ends before the change", schedule.Definition{Cron: "0 30 2 * * *", Zone: ny, End: at(t, "2026-03-01 00:00Z")}, []string{"ENDS "}},
		{"jitter", schedule.Definition{Cron: "0 * * * * *", Jitter: time.Hour}, []string{"JITTER_CAPPED jitterSeconds is longer than the 60 s"}},
		{"calendar", schedule.Definition{Cron: "@daily", Calendars: longHoliday}, []string{"CALENDAR_DROPS the calendars drop everything before 2028-01-01"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := compile(t, test.def).Lint(at(t, "2026-01-15 00:00Z"))
			if len(got) != len(test.want) {
				t.Fatalf("got %v, want %v", got, test.want)
			}
			for i, w := range got {
				if text := w.Code + " " + w.Message; !strings.HasPrefix(text, test.want[i]) {
					t.Errorf("warning %d = %q, want %q", i, text, test.want[i])
				}
			}
		})
	}
}

// TestWarningsAreDocumented keeps the page and the codes together.
func TestWarningsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/cron.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("preview.go")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`[{(]"([A-Z_]{4,})"`).FindAllStringSubmatch(string(source), -1)
	if len(codes) < 10 {
		t.Errorf("only %d codes found", len(codes))
	}
	for _, code := range codes {
		if !strings.Contains(string(page), "`"+code[1]+"`") {
			t.Errorf("docs/reference/cron.md does not list %s", code[1])
		}
	}
}
