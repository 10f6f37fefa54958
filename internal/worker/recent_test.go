package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

// TestRefusedClaimIsTriedAgainSoon refuses a claim again and again: the rests
// double up to the longest, and start from the first once it was accepted for a
// while.
func TestRefusedClaimIsTriedAgainSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, id := newRecent(time.Second, 4*time.Second), uuid.New()
		for _, rest := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
			r.add(id)
			<-time.After(rest - 1)
			if !r.has(id) {
				t.Errorf("it is tried again before it rested %v", rest)
			}
			<-time.After(1)
			if r.has(id) {
				t.Errorf("it still rests after %v", rest)
			}
		}
		<-time.After(8 * time.Second)
		if r.has(id); !r.none() {
			t.Error("it is remembered for ever")
		}
		if r.add(id); !r.has(id) {
			t.Error("a new refusal is no refusal")
		}
		<-time.After(time.Second)
		if r.has(id) {
			t.Error("after a long time without a refusal it does not rest for the shortest time")
		}
	})
}
