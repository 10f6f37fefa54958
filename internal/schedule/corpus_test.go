package schedule_test

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/schedule"
	"github.com/scheduler-service/scheduler/internal/schedule/cron"
)

// cronCase is a list of ticks on which at least three independent families of
// cron implementations agree (two for gaps, overlaps and years).
type cronCase struct {
	Expr  string      `json:"expr"`
	Zone  string      `json:"tz"`
	After time.Time   `json:"after"`
	Next  []time.Time `json:"next"`
	ID    string      `json:"id"`
}

type invalidCase struct {
	Expr string `json:"expr"`
	Why  string `json:"why"`
	Kind string `json:"kind"`
}

// corpus reads a file of testdata and, where the variable names one, another
// of the same form, so that cases from elsewhere run without a change here.
func corpus[T any](t *testing.T, file, variable string) []T {
	t.Helper()
	all := readCorpus[T](t, file)
	if more, ok := os.LookupEnv(variable); ok {
		all = append(all, readCorpus[T](t, more)...)
	}
	return all
}

func readCorpus[T any](t testing.TB, file string) []T {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var content struct {
		Cases []T `json:"cases"`
	}
	if err := json.Unmarshal(text, &content); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if len(content.Cases) == 0 {
		t.Fatalf("%s: no cases", file)
	}
	return content.Cases
}

func TestCorpus(t *testing.T) {
	t.Parallel()
	for _, test := range corpus[cronCase](t, "testdata/cron_cases.json", "CRON_CASES") {
		t.Run(test.ID, func(t *testing.T) {
			t.Parallel()
			s := compile(t, schedule.Definition{Cron: test.Expr, Zone: test.Zone})
			got := timesAfter(s, test.After, len(test.Next))
			if diff := cmp.Diff(test.Next, got); diff != "" {
				t.Errorf("%q in %s after %v (-want +got):\n%s", test.Expr, test.Zone, test.After, diff)
			}
		})
	}
}

var cronFields = []string{"second", "minute", "hour", "day-of-month", "month", "day-of-week", "year", "expression"}

func TestCorpusInvalid(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 9, 15, 12, 0, 0, 0, time.UTC)
	for _, test := range corpus[invalidCase](t, "testdata/cron_invalid.json", "CRON_INVALID") {
		t.Run(test.Why, func(t *testing.T) {
			t.Parallel()
			if test.Expr == "" { // in a Definition that is a job without a schedule
				if _, err := cron.Parse("", ""); err == nil {
					t.Error("the empty expression parses")
				}
				return
			}
			err := schedule.Validate(schedule.Definition{Cron: test.Expr}, now)
			var wrong *fault.Error
			if !errors.As(err, &wrong) {
				t.Fatalf("Validate(%q) = %v, want a refusal: %s", test.Expr, err, test.Why)
			}
			if wrong.Kind != fault.Invalid || wrong.Code != "INVALID_CRON_EXPRESSION" || len(wrong.Fields) == 0 {
				t.Errorf("Validate(%q) = %#v", test.Expr, wrong)
			}
			for _, f := range wrong.Fields {
				name, _, _ := strings.Cut(f.Message, ":")
				if f.Path != "cronExpression" || f.Rule != "expression" && !slices.Contains(cronFields, name) || f.Rule == "expression" && name == f.Rule {
					t.Errorf("Validate(%q) blames %q and says %q, want cronExpression and, for one field, its name first", test.Expr, f.Path, f.Message)
				}
			}
		})
	}
}

// compile is Compile for definitions that have to be right.
func compile(t testing.TB, def schedule.Definition) *schedule.Schedule {
	t.Helper()
	s, err := schedule.Compile(def)
	if err != nil {
		t.Fatalf("Compile(%+v): %v", def, err)
	}
	return s
}

// timesAfter asks Next until it has n, and holds it to its promise to go on.
func timesAfter(s *schedule.Schedule, after time.Time, n int) []time.Time {
	var list []time.Time
	for len(list) < n {
		next, ok := s.Next(after)
		if !ok || !next.After(after) {
			break
		}
		list = append(list, next)
		after = next
	}
	return list
}
