package queue

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/scheduler-service/scheduler/internal/queue/redistest"
)

// An ear hears its own call alone, says when it would, and hears again after Redis was
// away.
func TestEarHearsCalls(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	caller, listener := newPublisher(t, s.ClientURL, discard()), newPublisher(t, s.ClientURL, discard())
	ear := listener.Ear(CallPool)
	if ear.Hears() {
		t.Error("it hears before it listens")
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	var heard atomic.Int64
	go func() { done <- ear.Listen(ctx, func() { heard.Add(1) }) }()
	eventually(t, "it listens", func() bool { return ear.Hears() && heard.Load() == 1 })
	for _, call := range []Call{CallDue, CallPool} {
		if err := caller.Call(t.Context(), call); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the call is heard", func() bool { return heard.Load() == 2 })
	stop()
	if err := <-done; err != nil || ear.Hears() || heard.Load() != 2 {
		t.Errorf("after its end: %v, hears %v, %d calls heard, want the one for it", err, ear.Hears(), heard.Load()-1)
	}
}

// Without a Redis nobody hears, and listening lasts until it is stopped.
func TestWithoutRedisNobodyHears(t *testing.T) {
	t.Parallel()
	silent, err := NewPublisher(Config{}, discard())
	if err != nil {
		t.Fatal(err)
	}
	ear := silent.Ear(CallDue)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := ear.Listen(ctx, func() { t.Error("something was heard") }); err != nil || ear.Hears() {
		t.Errorf("%v, hears %v", err, ear.Hears())
	}
	if err := silent.Call(t.Context(), CallDue); err == nil {
		t.Error("a call without a Redis succeeds")
	}
}
