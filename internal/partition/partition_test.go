package partition_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/partition"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	day := func(text string) time.Time {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for _, test := range []struct {
		name        string
		oldest, now time.Time
		want        []string
	}{
		{"three months ahead", day("2026-11-20T10:00:00Z"), day("2026-11-20T10:00:00Z"), []string{"2026-11", "2026-12", "2027-01", "2027-02"}},
		{"back to the oldest time", day("2026-09-30T23:59:59Z"), day("2026-11-01T00:00:00Z"), []string{"2026-09", "2026-10", "2026-11", "2026-12", "2027-01", "2027-02"}},
		{"an oldest in the future changes nothing", day("2027-05-01T00:00:00Z"), day("2026-11-01T00:00:00Z"), []string{"2026-11", "2026-12", "2027-01", "2027-02"}},
		{"months are UTC's", day("2026-11-30T23:30:00-02:00"), day("2026-11-30T23:30:00-02:00"), []string{"2026-12", "2027-01", "2027-02", "2027-03"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, m := range partition.Plan(test.oldest, test.now, partition.Ahead) {
				got = append(got, m.Format("2006-01"))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
	if got := len(partition.Plan(time.Time{}, day("2026-11-20T10:00:00Z"), partition.Ahead)); got != 120 {
		t.Errorf("a plan from year one has %d months, want the bound of 120", got)
	}
}
