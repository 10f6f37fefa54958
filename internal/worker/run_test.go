package worker

import (
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/dispatch"
)

// A run is finished, grace included, before the deadline in its row, which the
// claim set to the timeout and the margin from when it was carried out.
func TestRunEndsBeforeItsDeadline(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                 string
		timeout, asked, want time.Duration
	}{
		{"answered at once", 10 * time.Second, 0, 10 * time.Second},
		{"answered within the margin", 10 * time.Second, 3 * time.Second, 10 * time.Second},
		{"answered late", 10 * time.Second, 5 * time.Second, 8 * time.Second},
		{"answered too late", time.Second, 4 * time.Second, 0},
		{"answered long after the deadline", time.Second, time.Minute, -56 * time.Second},
	} {
		got := remainingTime(c.timeout, c.asked)
		if got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
		if deadline := c.timeout + dispatch.DeadlineMargin; c.asked+got+grace > deadline {
			t.Errorf("%s: the run may go on %v after its deadline", c.name, c.asked+got+grace-deadline)
		}
	}
}
