package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
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
