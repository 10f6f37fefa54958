package partition_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/partition"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestPlan(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		span        partition.Span
		oldest, now string
		first, last string
	}{
		{"three months ahead", partition.Month, "2026-11-20T10:00:00Z", "2026-11-20T10:00:00Z", "2026-11-01", "2027-02-28"},
		{"back to the oldest time", partition.Month, "2026-09-30T23:59:59Z", "2026-11-01T00:00:00Z", "2026-09-30", "2027-02-28"},
		{"an oldest in the future changes nothing", partition.Month, "2027-05-01T00:00:00Z", "2026-11-01T00:00:00Z", "2026-11-01", "2027-02-28"},
		{"months are UTC's", partition.Month, "2026-11-30T23:30:00-02:00", "2026-11-30T23:30:00-02:00", "2026-12-01", "2027-03-31"},
		{"five weeks ahead, from Monday on", partition.Week, "2026-11-29T10:00:00Z", "2026-11-29T10:00:00Z", "2026-11-23", "2027-01-03"},
		{"a week that begins today", partition.Week, "2026-11-23T00:00:00Z", "2026-11-23T00:00:00Z", "2026-11-23", "2027-01-03"},
		{"a fortnight ahead", partition.Day, "2026-11-25T10:00:00Z", "2026-11-25T10:00:00Z", "2026-11-25", "2026-12-09"},
		{"days back to the oldest time", partition.Day, "2026-11-01T10:00:00Z", "2026-11-25T10:00:00Z", "2026-11-01", "2026-12-09"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			days := test.span.Plan(at(t, test.oldest), at(t, test.now), partition.Ahead)
			got := []string{days[0].Format(time.DateOnly), days[len(days)-1].Format(time.DateOnly)}
			if diff := cmp.Diff([]string{test.first, test.last}, got); diff != "" {
				t.Errorf("first and last (-want +got):\n%s", diff)
			}
			for i, day := range days[1:] {
				if day.Sub(days[i]) != 24*time.Hour {
					t.Errorf("%v follows %v", day, days[i])
				}
			}
		})
	}
	if got := len(partition.Month.Plan(time.Time{}, at(t, "2026-11-20T10:00:00Z"), partition.Ahead)); got != 3660 {
		t.Errorf("a plan from year one has %d days, want the bound of 3660", got)
	}
}

func TestTerms(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-11-25T10:00:00Z")
	for _, test := range []struct {
		term         partition.Term
		mayBeWritten string
		span         partition.Span
		since        string // of the span
		oldest       string
		before       string
		words        string
	}{
		{partition.Term{Months: 13}, "2026-11-25T09:00:00Z", partition.Month, "2026-10-01", "2025-10-01", "2025-10-25", "13 months"},
		{partition.Term{Months: 1}, "2026-08-12T09:00:00Z", partition.Month, "2026-10-01", "2026-08-01", "2026-10-25", "1 months"},
		{partition.Term{Months: 13, Days: 7}, "2026-11-25T09:00:00Z", partition.Day, "2026-11-24", "2026-11-18", "2026-11-18", "7 days"},
		{partition.Term{Days: 45}, "2026-08-12T09:00:00Z", partition.Day, "2026-11-24", "2026-08-12", "2026-10-11", "45 days"},
		{partition.Term{Days: 46}, "2026-11-25T09:00:00Z", partition.Week, "2026-11-16", "2026-10-10", "2026-10-10", "46 days"},
		{partition.Term{Days: 400}, "2026-11-25T09:00:00Z", partition.Week, "2026-11-16", "2025-10-21", "2025-10-21", "400 days"},
		{partition.Term{Days: 401}, "2026-11-25T09:00:00Z", partition.Month, "2026-10-01", "2025-10-20", "2025-10-20", "401 days"},
	} {
		span := test.term.Span()
		got := []string{
			string(span), span.Since(now).Format(time.DateOnly), test.term.Oldest(at(t, test.mayBeWritten), now).Format(time.DateOnly),
			test.term.Before(now).Format(time.DateOnly), test.term.String(),
		}
		if diff := cmp.Diff([]string{string(test.span), test.since, test.oldest, test.before, test.words}, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test.term, diff)
		}
	}
	if got := partition.Spans(nil).Now(); got != partition.Month {
		t.Errorf("nobody says a span: %v", got)
	}
}

func TestUntil(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-11-25T10:00:00Z") // a Wednesday
	for span, want := range map[partition.Span]string{partition.Month: "2027-01-01", partition.Week: "2026-12-07", partition.Day: "2026-11-27"} {
		if got := span.Until(now).Format(time.DateOnly); got != want {
			t.Errorf("%s: %s, want %s", span, got, want)
		}
	}
}
