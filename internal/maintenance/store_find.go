package maintenance

import (
	"context"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/settled"
)

// findable is a pass that FindWork knows.
type findable struct {
	name string
	has  func(db.FindWorkRow) bool // something to do
}

// findables are all of them: those of maintenance, and those of Config.Elsewhere.
func findables() []findable {
	return []findable{
		{sweepPass, func(r db.FindWorkRow) bool { return r.Sweep }},
		{awaitedPass, func(r db.FindWorkRow) bool { return r.EndAwaited }},
		{cancelPass, func(r db.FindWorkRow) bool { return r.Cancel }},
		{suspendPass, func(r db.FindWorkRow) bool { return r.Suspend }},
		{statusPass, func(r db.FindWorkRow) bool { return r.ChangeStatus }},
		{countPass, func(r db.FindWorkRow) bool { return r.CountWaiting }},
		{"replay-dead-letters", func(r db.FindWorkRow) bool { return r.Replay }},
		{"collect-dead-letters", func(r db.FindWorkRow) bool { return r.CollectLetters }},
		{"watch-monitors", func(r db.FindWorkRow) bool { return r.WatchMonitors }},
		{"count-monitors", func(r db.FindWorkRow) bool { return r.CountMonitors }},
		{"count-objectives", func(r db.FindWorkRow) bool { return r.CountObjectives }},
		{"derive-events", func(r db.FindWorkRow) bool { return r.DeriveEvents }},
		{"check-deadlines", func(r db.FindWorkRow) bool { return r.CheckDeadlines }},
		{"send-notifications", func(r db.FindWorkRow) bool { return r.SendNotifications }},
		{lease.Metrics, func(r db.FindWorkRow) bool { return r.Metrics }},
	}
}

// findWork lists the names of the passes that have something to do.
func (s *store) findWork(ctx context.Context, now time.Time) (passes []string, err error) {
	found, err := s.queries().FindWork(ctx, db.FindWorkParams{Now: postgres.At(now), Settled: settled.Lag.Seconds()})
	if err != nil {
		return nil, fmt.Errorf("ask what there is to do: %w", postgres.Fault(err))
	}
	for _, one := range findables() {
		if one.has(found) {
			passes = append(passes, one.name)
		}
	}
	return passes, nil
}
