package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
)

// No attempt begins once the fence has passed, although nothing has ended the incarnation yet:
// as after a standstill of the process, when the answer to a claim is read before the
// goroutine of the fence has its turn.
func TestNoAttemptBeginsAfterTheFence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inc := &incarnation{ctx: t.Context(), fence: 7 * time.Second, good: clock.Start(), running: map[uuid.UUID]activeRun{}}
		add := func() error {
			_, stop := context.WithCancelCause(inc.ctx)
			defer stop(nil)
			return inc.add(&attempt{claimed: claimed{Claimed: dispatch.Claimed{ID: uuid.New()}}}, stop)
		}
		<-time.After(7*time.Second - 1)
		if err := add(); err != nil || inc.count() != 1 {
			t.Errorf("before the fence: %v, %d runs", err, inc.count())
		}
		<-time.After(1)
		if err := add(); !errors.Is(err, errLeaseLost) || inc.count() != 1 {
			t.Errorf("at the fence: %v, %d runs", err, inc.count())
		}
		inc.answered(clock.Start())
		if err := add(); err != nil || inc.count() != 2 {
			t.Errorf("after the next heartbeat: %v, %d runs", err, inc.count())
		}
	})
}
