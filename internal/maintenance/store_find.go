package maintenance

import (
	"context"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/internal/postgres"
)

// findWork lists the names of the passes that have something to do.
func (s *store) findWork(ctx context.Context, now time.Time) (passes []string, err error) {
	found, err := s.queries().FindWork(ctx, postgres.At(now))
	if err != nil {
		return nil, fmt.Errorf("ask what there is to do: %w", postgres.Fault(err))
	}
	for _, pass := range []struct {
		name string
		has  bool
	}{
		{sweepPass, found.Sweep},
		{awaitedPass, found.EndAwaited},
		{cancelPass, found.Cancel},
		{suspendPass, found.Suspend},
		{statusPass, found.ChangeStatus},
		{countPass, found.CountWaiting},
		{replayPass, found.Replay},
	} {
		if pass.has {
			passes = append(passes, pass.name)
		}
	}
	return passes, nil
}
