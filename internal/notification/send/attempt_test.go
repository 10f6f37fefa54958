package send

import (
	"errors"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/notification"
)

// A message has all its attempts, with each delay that its id gives it.
func TestEveryMessageHasAllItsAttempts(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for last := range 256 {
		l := letter{giveUpAt: begin.Add(notification.Lifetime)}
		l.delivery[15] = byte(last)
		at := begin
		for {
			l.attempt++
			o := decide(l, result{err: errors.New("the receiver answered 500")}, at)
			if o.status == "failed" {
				break
			}
			at = o.next.Add(time.Minute) // an attempt takes a while, too
		}
		if took := at.Sub(begin); l.attempt != len(delays)+1 || took < 18*time.Hour {
			t.Fatalf("a message whose id ends with %x was tried %d times in %v", last, l.attempt, took)
		}
	}
}
