package schedule_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// wrongPaths is what a refusal blames, "path: start of the message" each.
func wrongPaths(t *testing.T, err error) (code string, fields []fault.Field) {
	t.Helper()
	if err == nil {
		return "", nil
	}
	var wrong *fault.Error
	if !errors.As(err, &wrong) || wrong.Kind != fault.Invalid {
		t.Fatalf("%v is not an invalid request", err)
	}
	return string(wrong.Code), wrong.Fields
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	const badCron, badField = "INVALID_CRON_EXPRESSION", "VALIDATION_FAILED"
	day := at(t, "2026-12-24 00:00Z")
	for _, test := range []struct {
		name string
		def  schedule.Definition
		code string
		want []string // path and a part of the message
	}{
		{"nothing at all is run by hand", schedule.Definition{}, "", nil},
		{"cron", schedule.Definition{Cron: "0 60 * * * *"}, badCron, []string{"cronExpression minute: 60 is out of range"}},
		{"two cron fields", schedule.Definition{Cron: "0 60 24 * * *"}, badCron, []string{"cronExpression minute: 60", "cronExpression hour: 24"}},
		{"impossible date", schedule.Definition{Cron: "0 0 0 30 2 *"}, badCron, []string{"cronExpression day-of-month: 30 in month 2 never comes"}},
		{"a year that has passed compiles", schedule.Definition{Cron: "0 0 0 1 1 * 2020"}, "", nil},
		{"a one-off that has passed compiles", schedule.Definition{RunAt: at(t, "2020-01-01 00:00Z")}, "", nil},
		{"an empty window compiles", schedule.Definition{Cron: "@daily", Start: day, End: day}, "", nil},
		{"zone", schedule.Definition{Cron: "@daily", Zone: "Mars/Olympus"}, badField, []string{`timezone "Mars/Olympus" is not a known zone`}},
		{"Local", schedule.Definition{Zone: "Local"}, badField, []string{`timezone "Local" differs`}},
		{"cron and zone", schedule.Definition{Cron: "x", Zone: "x"}, badCron, []string{`timezone "x" is`, "cronExpression has 1 field"}},
		{
			"three rules",
			schedule.Definition{Cron: "@daily", Interval: time.Minute, RunAt: day},
			badField,
			[]string{"interval give only one", "runAt give only one"},
		},
		{"interval too short", schedule.Definition{Interval: time.Second - 1}, badField, []string{"interval is shorter"}},
		{"interval negative", schedule.Definition{Interval: -time.Hour}, badField, []string{"interval is shorter"}},
		{"interval too long", schedule.Definition{Interval: 367 * 24 * time.Hour}, badField, []string{"interval is longer"}},
		{"interval too fine", schedule.Definition{Interval: time.Second + time.Microsecond}, badField, []string{"interval must be whole milliseconds"}},
		{"one-off too far", schedule.Definition{RunAt: time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC)}, badField, []string{"runAt must lie between 1970 and 2499"}},
		{
			"start and end too far",
			schedule.Definition{Cron: "@daily", Start: time.Unix(-1, 0), End: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
			badField,
			[]string{"startDate must lie", "endDate must lie"},
		},
		{"jitter negative", schedule.Definition{Cron: "@daily", Jitter: -time.Second}, badField, []string{"jitterSeconds must lie between 0 and 86400"}},
		{"jitter too long", schedule.Definition{Cron: "@daily", Jitter: 25 * time.Hour}, badField, []string{"jitterSeconds must lie"}},
		{"jitter too fine", schedule.Definition{Cron: "@daily", Jitter: time.Microsecond}, badField, []string{"jitterSeconds must lie"}},
		{
			"policies",
			schedule.Definition{Cron: "@daily", DSTGap: "shit", DSTOverlap: schedule.Overlap(strings.Repeat("x", 100))},
			badField,
			[]string{`dstGap must be one of shift, skip, not "shit"`, `…"`},
		},
		{"eleven calendars", schedule.Definition{Cron: "@daily", Calendars: make([]schedule.Calendar, 11)}, badField, []string{"calendars has 11 items; at most 10"}},
		{"calendar", schedule.Definition{Cron: "@daily", Calendars: []schedule.Calendar{{}, {
			Mode: "allow", Zone: "Nowhere",
			Days: []schedule.DateRange{
				{Start: day},
				{},
				{Start: day, End: day},
				{Start: day, End: day.AddDate(0, 0, 184), Yearly: true},
				{Start: day, End: time.Date(2600, 1, 1, 0, 0, 0, 0, time.UTC)},
			},
		}}}, badField, []string{
			`calendars[1].mode must be one of exclude, include, not "allow"`, `calendars[1].zone "Nowhere" is not`,
			"calendars[1].days[1] must lie between", "calendars[1].days[2] ends before", "calendars[1].days[3] repeats yearly", "calendars[1].days[4] must lie",
		}},
		{
			"too many days",
			schedule.Definition{Cron: "@daily", Calendars: []schedule.Calendar{{Days: make([]schedule.DateRange, 1001)}}},
			badField,
			[]string{"calendars[0].days has 1001 items; at most 1000"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, err := schedule.Compile(test.def)
			if (s == nil) != (err != nil) {
				t.Errorf("Compile = %v, %v", s, err)
			}
			code, fields := wrongPaths(t, err)
			checkFields(t, code, fields, test.code, test.want)
		})
	}
}

func checkFields(t *testing.T, code string, fields []fault.Field, wantCode string, want []string) {
	t.Helper()
	if code != wantCode || len(fields) != len(want) {
		t.Fatalf("code %q and %q, want %q and %q", code, fields, wantCode, want)
	}
	for i, f := range fields {
		if got := f.Path + " " + f.Message; !strings.Contains(got, want[i]) || f.Rule == "" {
			t.Errorf("field %d = %q (rule %q), want %q", i, got, f.Rule, want[i])
		}
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	const badCron, badField = "INVALID_CRON_EXPRESSION", "VALIDATION_FAILED"
	now := at(t, "2026-09-15 12:00Z")
	past, soon, later := now.Add(-time.Hour), now.Add(time.Hour), now.AddDate(0, 1, 0)
	allYear := schedule.Calendar{Days: []schedule.DateRange{
		{Start: at(t, "2025-01-01 00:00Z"), End: at(t, "2025-07-01 00:00Z"), Yearly: true},
		{Start: at(t, "2025-07-01 00:00Z"), End: at(t, "2025-12-31 00:00Z"), Yearly: true},
		{Start: at(t, "2025-12-31 00:00Z"), Yearly: true},
	}}
	for _, test := range []struct {
		name string
		def  schedule.Definition
		code string
		want []string
	}{
		{"by hand", schedule.Definition{}, "", nil},
		{"cron", schedule.Definition{Cron: "@daily", Start: soon, End: later}, "", nil},
		{"interval", schedule.Definition{Interval: time.Minute, Anchor: now}, "", nil},
		{"one-off", schedule.Definition{RunAt: soon}, "", nil},
		{"one-off that has passed", schedule.Definition{RunAt: past}, badField, []string{"runAt 2026-09-15T11:00:00Z has passed"}},
		{"one-off right now", schedule.Definition{RunAt: now}, badField, []string{"runAt 2026-09-15T12:00:00Z has passed"}},
		{"one-off before its start", schedule.Definition{RunAt: soon, Start: later}, badField, []string{"runAt does not lie between"}},
		{"end has passed", schedule.Definition{Cron: "@hourly", End: past}, badField, []string{"endDate 2026-09-15T11:00:00Z has passed"}},
		{"end before start", schedule.Definition{Cron: "@hourly", Start: later, End: soon}, badField, []string{"endDate is not after startDate"}},
		{"end before the first scheduled time", schedule.Definition{Cron: "@yearly", End: later}, badField, []string{"endDate comes before the first scheduled time"}},
		{"interval ends before its first scheduled time", schedule.Definition{Interval: 48 * time.Hour, Anchor: now, End: soon}, badField, []string{"endDate comes before"}},
		{"year has passed", schedule.Definition{Cron: "0 0 0 1 1 * 2026"}, badCron, []string{"cronExpression year: nothing matches after 2026-09-15T12:00:00Z"}},
		{"year has passed when it starts", schedule.Definition{Cron: "0 0 0 1 1 * 2027", Start: at(t, "2028-01-01 00:00Z")}, badCron, []string{"cronExpression year: nothing matches after 2027-12-31T23:59:59Z"}},
		{"last run of the last year", schedule.Definition{Cron: "0 0 0 1 10 * 2026"}, "", nil},
		{"only in the gap", schedule.Definition{Cron: "0 30 2 ? 3 0#2 2027", Zone: "America/New_York", DSTGap: "skip"}, badCron, []string{"cronExpression hour: each matching time falls into a clock change"}},
		{"always in the gap", schedule.Definition{Cron: "0 30 2 ? 3 0#2", Zone: "America/New_York", DSTGap: "skip"}, badCron, []string{"cronExpression hour: each"}},
		{"calendar drops everything", schedule.Definition{Cron: "@hourly", Calendars: []schedule.Calendar{allYear}}, badField, []string{"calendars drop every scheduled time"}},
		{"calendar includes nothing", schedule.Definition{Cron: "@hourly", Calendars: []schedule.Calendar{{Mode: "include"}}}, badField, []string{"calendars drop every scheduled time"}},
		{
			"all at once",
			schedule.Definition{Cron: "0 99 * * * *", RunAt: past, End: past, Jitter: -1},
			badCron,
			[]string{"runAt give only one", "cronExpression minute: 99", "jitterSeconds must", "runAt 2026", "endDate 2026"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			code, fields := wrongPaths(t, schedule.Validate(test.def, now))
			checkFields(t, code, fields, test.code, test.want)
		})
	}
}

func TestNoRule(t *testing.T) {
	t.Parallel()
	s := compile(t, schedule.Definition{Jitter: time.Minute})
	now := at(t, "2026-09-15 12:00Z")
	if next, ok := s.Next(now); ok || !next.IsZero() {
		t.Errorf("Next = %v, %v", next, ok)
	}
	if diff := cmp.Diff(schedule.Range{}, s.Between(now, now.AddDate(1, 0, 0), 10)); diff != "" {
		t.Error(diff)
	}
	if list := s.Preview(now, 10); list != nil {
		t.Errorf("Preview = %v", list)
	}
	if list := s.Lint(now); list != nil {
		t.Errorf("Lint = %v", list)
	}
}

func TestIntervalsAndOneOffs(t *testing.T) {
	t.Parallel()
	anchor := at(t, "2026-03-01 10:00Z")
	for _, test := range []struct {
		name  string
		def   schedule.Definition
		after time.Time
		want  []time.Time
	}{
		{
			"first is one step after the anchor",
			schedule.Definition{Interval: time.Hour, Anchor: anchor},
			anchor.AddDate(-1, 0, 0),
			[]time.Time{anchor.Add(time.Hour), anchor.Add(2 * time.Hour)},
		},
		{"asked at the anchor", schedule.Definition{Interval: time.Hour, Anchor: anchor}, anchor, []time.Time{anchor.Add(time.Hour)}},
		{
			"late questions do not drift",
			schedule.Definition{Interval: 1500 * time.Millisecond, Anchor: anchor},
			anchor.Add(3100 * time.Millisecond),
			[]time.Time{anchor.Add(4500 * time.Millisecond), anchor.Add(6 * time.Second)},
		},
		{"no anchor is 1970", schedule.Definition{Interval: 24 * time.Hour}, anchor, []time.Time{at(t, "2026-03-02 00:00Z")}},
		{
			"start bounds, the anchor stays",
			schedule.Definition{Interval: 7 * time.Hour, Anchor: anchor, Start: anchor.Add(8 * time.Hour)},
			anchor,
			[]time.Time{anchor.Add(14 * time.Hour)},
		},
		{
			"start is inside, end is not",
			schedule.Definition{Interval: time.Hour, Anchor: anchor, Start: anchor.Add(2 * time.Hour), End: anchor.Add(4 * time.Hour)},
			anchor,
			[]time.Time{anchor.Add(2 * time.Hour), anchor.Add(3 * time.Hour)},
		},
		{"one-off", schedule.Definition{RunAt: anchor}, anchor.Add(-time.Microsecond), []time.Time{anchor}},
		{"one-off has passed", schedule.Definition{RunAt: anchor}, anchor, nil},
		{"cron between the seconds", schedule.Definition{Cron: "* * * * * *"}, anchor.Add(500 * time.Millisecond), []time.Time{anchor.Add(time.Second)}},
		{"nanoseconds after a scheduled time", schedule.Definition{Cron: "* * * * * *"}, anchor.Add(1), []time.Time{anchor.Add(time.Second)}},
		{"a nanosecond before", schedule.Definition{Cron: "* * * * * *"}, anchor.Add(-1), []time.Time{anchor}},
		{"never before 1970", schedule.Definition{Cron: "@hourly"}, time.Time{}, []time.Time{time.Unix(0, 0).UTC(), time.Unix(3600, 0).UTC()}},
		{"never after 2499", schedule.Definition{Cron: "@yearly"}, time.Date(2498, 6, 1, 0, 0, 0, 0, time.UTC), []time.Time{time.Date(2499, 1, 1, 0, 0, 0, 0, time.UTC)}},
		{
			"never after 2499, west of Greenwich",
			schedule.Definition{Cron: "0 0 22 31 12 *", Zone: "America/New_York"},
			time.Date(2498, 6, 1, 0, 0, 0, 0, time.UTC),
			[]time.Time{time.Date(2499, 1, 1, 3, 0, 0, 0, time.UTC)},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := timesAfter(compile(t, test.def), test.after, max(len(test.want), 1))
			if len(test.want) < 2 && len(got) > len(test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseInterval(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text string
		want time.Duration
		says string
	}{
		{"PT30S", 30 * time.Second, ""},
		{"PT1.5S", 1500 * time.Millisecond, ""},
		{"PT1,25S", 1250 * time.Millisecond, ""},
		{"PT90M", 90 * time.Minute, ""},
		{"P1D", 24 * time.Hour, ""},
		{"P1W", 7 * 24 * time.Hour, ""},
		{"P1DT2H3M4S", 26*time.Hour + 3*time.Minute + 4*time.Second, ""},
		{"P366D", 366 * 24 * time.Hour, ""},
		{"30s", 30 * time.Second, ""},
		{"1h30m", 90 * time.Minute, ""},
		{"", 0, "is not a duration"},
		{"P", 0, "is not a duration"},
		{"PT", 0, "is not a duration"},
		{"P1DT", 0, "is not a duration"},
		{"P1M", 0, "is not a duration; write an ISO 8601 duration such as PT30S or P1D, without years and months"},
		{"P1Y", 0, "is not a duration; write an ISO 8601 duration such as PT30S or P1D, without years and months"},
		{"-PT1S", 0, "is not a duration"},
		{"pt30s", 0, "is not a duration"},
		{"30", 0, "is not a duration"},
		{"5 minutes", 0, "is not a duration"},
		{"P99999D", 0, "is not a duration"},
		{"P9999W", 0, "is longer than the largest"},
		{"PT0S", 0, "is shorter than the smallest"},
		{"999ms", 0, "is shorter than the smallest"},
		{"-5m", 0, "is shorter than the smallest"},
		{"1.0005s", 0, "must be whole milliseconds"},
		{"1s" + strings.Repeat("0s", 40), 0, "is not a duration"},
		{"9000h", 0, "is longer than the largest"},
		{"99999999h", 0, "is not a duration"},
	} {
		t.Run(test.text, func(t *testing.T) {
			t.Parallel()
			got, err := schedule.ParseInterval(test.text)
			if got != test.want {
				t.Errorf("= %v, want %v", got, test.want)
			}
			code, fields := wrongPaths(t, err)
			if test.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			checkFields(t, code, fields, "VALIDATION_FAILED", []string{"interval " + test.says})
		})
	}
}
