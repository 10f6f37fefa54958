package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
)

// A worker that finds the turn taken stays away, twice as long each time, and joins when it
// is free. After five seconds it joins in any case, and one that others need joins at once.
func TestWorkersJoinWhereTheTurnIsFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &joining{}
		want := func(joins, free bool, pause time.Duration) {
			t.Helper()
			if got := j.answered(free); got != joins || j.pause != pause {
				t.Errorf("joins: %t, stays away for %v; want %t, %v", got, j.pause, joins, pause)
			}
			clock.Sleep(t.Context(), j.pause)
		}
		for range 2 {
			want(false, false, 50*time.Millisecond)
			want(false, false, 100*time.Millisecond)
			want(true, true, 0)
		}
		for _, pause := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000, 1000, 1000} {
			want(false, false, pause*time.Millisecond)
		}
		want(true, false, 0)
		want(false, false, 50*time.Millisecond)
		j.needed = true
		want(true, false, 0)
	})
}

// A worker shows its turn while it wins much and has half of its slots free. With fewer it polls
// for what they leave without asking, and keeps nobody away who has room.
func TestWorkersThatDrainShowTheirTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &Worker{slots: newSlots(4)}
		want := func(turn dispatch.Turn, when string) {
			t.Helper()
			if got := w.turn(); got != turn {
				t.Errorf("%s: %v, want %v", when, got, turn)
			}
		}
		want(dispatch.PlainTurn, "at first")
		w.join.won(claimBatch / 2)
		want(dispatch.PlainTurn, "after it won half of a batch")
		w.join.won(claimBatch)
		want(dispatch.ShownTurn, "after it won a batch")
		for _, turn := range []dispatch.Turn{dispatch.ShownTurn, dispatch.ShownTurn, dispatch.PlainTurn, dispatch.PlainTurn} {
			w.slots.takeNow(false)
			want(turn, "with a slot less")
		}
		if joins, err := w.joins(t.Context(), nil); err != nil || !joins {
			t.Errorf("without room it joins: %t, %v; want it to, without a question", joins, err)
		}
		for range 4 {
			w.slots.give()
		}
		want(dispatch.ShownTurn, "with room again")
		clock.Sleep(t.Context(), turnKept)
		want(dispatch.PlainTurn, "after a while")
		w.outOfTurn = clock.Start()
		want(dispatch.NoTurn, "after a turn that did not come")
	})
}
