package job_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

func TestDurationISO(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ given, want string }{
		{"PT1H", "PT1H"},
		{"1h", "PT1H"},
		{"90m", "PT1H30M"},
		{"PT90M", "PT1H30M"},
		{"PT30S", "PT30S"},
		{"1500ms", "PT1.5S"},
		{"PT0,001H", ""}, // not a duration that is read
		{"PT59.999S", "PT59.999S"},
		{"P1D", "P1D"},
		{"24h", "P1D"},
		{"P1W", "P7D"},
		{"PT36H", "P1DT12H"},
		{"P366D", "P366D"},
		{"P1DT0.25S", "P1DT0.25S"},
	} {
		d, err := schedule.ParseInterval(test.given)
		if (err != nil) != (test.want == "") {
			t.Errorf("%s: %v", test.given, err)
		}
		if err == nil && job.Duration(d).ISO() != test.want {
			t.Errorf("%s is shown as %s, want %s", test.given, job.Duration(d).ISO(), test.want)
		}
	}
}

// A duration that is shown may be sent back, and is shown the same.
func TestDurationRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		given := time.Duration(rapid.Int64Range(1000, 366*24*3600*1000).Draw(t, "ms")) * time.Millisecond
		shown := job.Duration(given).ISO()
		if read, err := schedule.ParseInterval(shown); err != nil || read != given {
			t.Fatalf("%v is shown as %s, which reads %v, %v", given, shown, read, err)
		}
	})
}
