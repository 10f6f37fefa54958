package job_test

import (
	"math"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/job"
)

func TestLimitOfAnExecution(t *testing.T) {
	t.Parallel()
	const never = -time.Millisecond
	for _, test := range []struct {
		name           string
		limit          job.Limit
		elapsed, delay time.Duration
		errorType      string
		want           string
	}{
		{"no limit", 0, 100 * time.Hour, time.Hour, "TIMEOUT", ""},
		{"another attempt fits", 60, 10 * time.Second, 49 * time.Second, "SYSTEM_ERROR", ""},
		{"another would start at the end", 60, 10 * time.Second, 50 * time.Second, "SYSTEM_ERROR", "the executionTimeout of 60 s leaves no time for another; the last attempt: SYSTEM_ERROR: x"},
		{"the time has passed", 60, 60 * time.Second, 0, "NETWORK_ERROR", "the executionTimeout of 60 s has passed; the last attempt: NETWORK_ERROR: x"},
		{"the last attempt ran out of it", 60, 60 * time.Second, never, "TIMEOUT", "the executionTimeout of 60 s has passed; the last attempt: TIMEOUT: x"},
		{"the last attempt failed by itself", 60, 61 * time.Second, never, "USER_ERROR", ""},
		{"the last attempt took its own timeout", 60, 30 * time.Second, never, "TIMEOUT", ""},
	} {
		why, exceeded := test.limit.Exceeded(test.elapsed, test.delay, test.errorType, "x")
		if why != test.want || exceeded != (test.want != "") {
			t.Errorf("%s: %q, %v, want %q", test.name, why, exceeded, test.want)
		}
	}
	if left := job.Limit(60).Left(50 * time.Second); left != 10*time.Second {
		t.Errorf("left %s of 60 s after 50", left)
	}
	if left := job.Limit(0).Left(time.Hour); left != math.MaxInt64 {
		t.Errorf("left %s without a limit", left)
	}
}
