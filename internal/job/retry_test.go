package job_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/job"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	rule := job.Retry{DelayMS: 1000, Exponential: true, MaxDelayMS: 5000}
	for _, test := range []struct {
		name    string
		rule    job.Retry
		attempt int
		random  float64
		want    time.Duration
	}{
		{"first", rule, 1, 0.9, time.Second},
		{"doubled", rule, 2, 0.9, 2 * time.Second},
		{"doubled again", rule, 3, 0, 4 * time.Second},
		{"capped", rule, 4, 0, 5 * time.Second},
		{"far beyond the cap", rule, 5000, 0, 5 * time.Second},
		{"constant", job.Retry{DelayMS: 700, MaxDelayMS: 5000}, 9, 0, 700 * time.Millisecond},
		{"jitter lengthens", job.Retry{DelayMS: 1000, MaxDelayMS: 5000, Jitter: 0.5}, 1, 0.5, 1250 * time.Millisecond},
		{"jitter stays under the cap", job.Retry{DelayMS: 5000, MaxDelayMS: 5000, Jitter: 1}, 1, 0.99, 5 * time.Second},
		{"at once", job.Retry{MaxDelayMS: 5000}, 3, 0.5, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := test.rule.Backoff(test.attempt, test.random); got != test.want {
				t.Errorf("Backoff(%d) = %v, want %v", test.attempt, got, test.want)
			}
		})
	}
}

func TestBackoffStaysWithinItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rule := job.Retry{
			DelayMS:     rapid.Int64Range(0, 86_400_000).Draw(t, "delay"),
			MaxDelayMS:  rapid.Int64Range(0, 86_400_000).Draw(t, "max"),
			Exponential: rapid.Bool().Draw(t, "exponential"),
			Jitter:      rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		attempt := rapid.IntRange(1, 101).Draw(t, "attempt")
		random := rapid.Float64Range(0, 0.999999).Draw(t, "random")
		plain := rule.Backoff(attempt, 0)
		got := rule.Backoff(attempt, random)
		if got < plain || got > time.Duration(rule.MaxDelayMS)*time.Millisecond {
			t.Fatalf("Backoff = %v, not within [%v, %d ms]", got, plain, rule.MaxDelayMS)
		}
	})
}
