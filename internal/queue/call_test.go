package queue

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// wire stands for PostgreSQL.
type wire struct {
	called []string
	closed bool
}

func (w *wire) Call(channel string) { w.called = append(w.called, channel) }
func (w *wire) Close()              { w.closed = true }
func (w *wire) Listen(_ context.Context, channel string, stands func(bool), heard func()) error {
	stands(channel == "scheduler_due")
	heard()
	return nil
}

// Without a Redis a carrier takes calls. Workers that would get hints are called.
func TestCallsAreCarriedWithoutRedis(t *testing.T) {
	t.Parallel()
	w := &wire{}
	p, err := NewPublisher(Config{Carrier: w}, discard())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Call(t.Context(), CallDue); err != nil {
		t.Error(err)
	}
	if err := p.Publish(t.Context(), Low, someIDs(3)); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"scheduler_due", "scheduler_pool"}, w.called); diff != "" {
		t.Error(diff)
	}
	heard := 0
	for call, hears := range map[Call]bool{CallDue: true, CallPool: false} {
		ear := p.Ear(call)
		if err := ear.Listen(t.Context(), func() { heard++ }); err != nil || ear.Hears() != hears {
			t.Errorf("%s: %v, hears %v", call, err, ear.Hears())
		}
	}
	if err := p.Close(); err != nil || heard != 2 || !w.closed {
		t.Errorf("%v, heard %d, closed %v", err, heard, w.closed)
	}
}

// A carrier is of use only where there is no Redis.
func TestRedisCarriesCallsWhereThereIsOne(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	w := &wire{}
	p, err := NewPublisher(Config{URL: s.ClientURL, Carrier: w}, discard())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	if err := p.Call(t.Context(), CallDue); err != nil || len(w.called) != 0 {
		t.Errorf("%v, called %v", err, w.called)
	}
}
