package clock_test

import (
	"math"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// A rest grows with what it follows, between its bounds.
func TestRest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ took, want time.Duration }{
		{0, time.Second},
		{100 * time.Millisecond, time.Second},
		{300 * time.Millisecond, 1200 * time.Millisecond},
		{15 * time.Second, time.Minute},
		{16 * time.Second, time.Minute},
		{math.MaxInt64, time.Minute},
	} {
		if got := clock.Rest(test.took, 4, time.Second, time.Minute); got != test.want {
			t.Errorf("after %v: %v, want %v", test.took, got, test.want)
		}
	}
}
