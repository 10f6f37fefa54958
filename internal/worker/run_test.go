package worker

import (
	"context"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/telemetry"
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

// A run that goes on after a stop told it to end is not given up after grace: its slot would
// be free, and its execution would go back.
func TestStopGivesRunsUpByItself(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancelCause(t.Context())
	stop(errDraining)
	a := &attempt{worker: &Worker{c: Config{Slots: 1, Metrics: telemetry.NewMetrics(telemetry.NewRegistry())}}, ctx: ctx}
	if a.giveUp(); a.over.Load() {
		t.Error("it is given up after grace")
	}
	if !a.abandon(1) || !a.over.Load() || a.abandon(1) {
		t.Error("the stop cannot give it up, or can do so twice")
	}
}
