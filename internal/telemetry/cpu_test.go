package telemetry

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// The share is that of the time since it was asked last; two who ask within a second
// get the same.
func TestShareOfACore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c cpu
		if got := c.percent(); got != 0 {
			t.Errorf("at first %v", got)
		}
		for begin := processorTime(); processorTime()-begin < 50*time.Millisecond; {
		}
		clock.Sleep(t.Context(), 2*time.Second)
		got := c.percent()
		if used := 100 * processorTime().Seconds() / 2; got < 2.5 || got > used {
			t.Errorf("%v %% of 2 s in which it took 50 ms and more", got)
		}
		clock.Sleep(t.Context(), time.Second/2)
		if again := c.percent(); again != got {
			t.Errorf("%v and then %v", got, again)
		}
	})
}
