package execution

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The first thing in the way is the reason.
func TestWait(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	later, two := at.Add(time.Second), 2
	free := obstacles{at: at, status: Pending, trigger: Manual, scheduledAt: at, availableAt: at, served: true, max: 10}
	for _, test := range []struct {
		name string
		edit func(*obstacles)
		want Wait
	}{
		{"nothing", func(*obstacles) {}, Wait{Reason: WaitDispatching}},
		{"full tenant", func(o *obstacles) { o.running = 10 }, Wait{Reason: WaitTenant, Used: 10, Limit: 10}},
		{"a limit that was lowered", func(o *obstacles) { o.running, o.max = 10, 0 }, Wait{Reason: WaitTenant, Used: 10}},
		{"a type below its limit", func(o *obstacles) { o.typeRunning, o.typeLimit = 1, &two }, Wait{Reason: WaitDispatching}},
		{"a full type before the tenant", func(o *obstacles) { o.running, o.typeRunning, o.typeLimit = 10, 2, &two }, Wait{Reason: WaitType, Used: 2, Limit: 2}},
		{"its key before these", func(o *obstacles) { o.running, o.key, o.keyTaken = 10, "k", true }, Wait{Reason: WaitKey, Used: 1, Limit: 1, Key: "k"}},
		{"its key is free", func(o *obstacles) { o.key = "k" }, Wait{Reason: WaitDispatching}},
		{"its job before these", func(o *obstacles) { o.keyTaken, o.gate, o.taken = true, 3, 3 }, Wait{Reason: WaitJob, Used: 3, Limit: 3}},
		{"a place of its job is free", func(o *obstacles) { o.gate, o.taken = 3, 2 }, Wait{Reason: WaitDispatching}},
		{"no worker before these", func(o *obstacles) { o.served, o.gate, o.taken = false, 3, 3 }, Wait{Reason: WaitWorker}},
		{"a retry", func(o *obstacles) { o.status, o.availableAt, o.served = Retrying, later, false }, Wait{Reason: WaitRetry, Until: &later}},
		{"a circuit breaker before a retry", func(o *obstacles) { o.held, o.status, o.availableAt = "a.example", Retrying, later }, Wait{Reason: WaitBreaker, Key: "a.example", Until: &later}},
		{"a circuit breaker that held it", func(o *obstacles) { o.held = "a.example" }, Wait{Reason: WaitDispatching}},
		{"a retry that may start", func(o *obstacles) { o.status = Retrying }, Wait{Reason: WaitDispatching}},
		{"later", func(o *obstacles) { o.availableAt = later }, Wait{Reason: WaitDelayed, Until: &later}},
		{"catching up", func(o *obstacles) { o.trigger, o.scheduledAt, o.availableAt = Scheduled, at.Add(-time.Minute), later }, Wait{Reason: WaitRate, Until: &later}},
	} {
		o := free
		test.edit(&o)
		if diff := cmp.Diff(&test.want, o.wait()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}
