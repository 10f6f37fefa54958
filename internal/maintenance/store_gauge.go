package maintenance

import (
	"context"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/fleet"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/queue"
)

// gaugeRest is how many times its own length a count is followed by none, so that
// all processes together spend at most a hundredth of a core on counting.
const gaugeRest = 100

const (
	// soon is for how long a new worker is made ahead: about what one takes to start.
	soon = time.Minute
	// dueMost bounds the jobs that are counted; as many are due at once in no fleet that
	// follows the number.
	dueMost = 100_000
)

// gauge counts the backlog if nobody did for a while, and keeps it where every
// process may read it; otherwise it reads what was counted last. others are the gauges that
// other passes keep.
func (s *store) gauge(ctx context.Context) (found backlog, others map[string]int64, err error) {
	q := s.queries()
	kept, err := fleet.NewStore(s.db).Gauges(ctx)
	if err != nil {
		return nil, nil, err
	}
	rest := max(gaugeEvery-gaugeEvery/5, gaugeRest*time.Duration(kept.Values[fleet.GaugeCounted])*time.Millisecond)
	turns, err := q.TakeGaugeTurn(ctx, db.TakeGaugeTurnParams{Name: fleet.GaugeCounted, Seconds: rest.Seconds()})
	if err != nil {
		return nil, nil, fmt.Errorf("ask for the turn to count: %w", postgres.Fault(err))
	}
	if turns == 1 {
		found, err = countActive(ctx, q, backlogOf(kept.Values))
		return found, kept.Values, err
	}
	return backlogOf(kept.Values), kept.Values, nil
}

// oldSnapshot is who keeps PostgreSQL from removing dead rows.
type oldSnapshot struct {
	holder       string
	transactions int64 // that began since
}

// oldestSnapshot finds the oldest one; the zero value where there is none.
func (s *store) oldestSnapshot(ctx context.Context) (oldSnapshot, error) {
	row, err := s.queries().OldestSnapshot(ctx)
	switch {
	case fault.KindOf(postgres.Fault(err)) == fault.NotFound:
		return oldSnapshot{}, nil
	case err != nil:
		return oldSnapshot{}, fmt.Errorf("look for old snapshots: %w", postgres.Fault(err))
	}
	return oldSnapshot{holder: row.Holder, transactions: row.Transactions}, nil
}

// countActive counts what waits and runs, and keeps it. A stage that was counted
// before and is empty is zero.
func countActive(ctx context.Context, q *db.Queries, before backlog) (backlog, error) {
	mark := clock.Start()
	counts, err := q.CountActiveExecutions(ctx)
	if err != nil {
		return nil, fmt.Errorf("count active executions: %w", postgres.Fault(err))
	}
	took := mark.Elapsed()
	found := backlog{}
	for of := range before {
		found[of] = 0
	}
	for _, c := range counts {
		lane := queue.LaneFor(int(c.Priority))
		found.add(stage{"running", c.JobType, lane}, c.Running)
		found.add(stage{"waiting", c.JobType, lane}, c.Waiting)
		found.add(stage{"delayed", c.JobType, lane}, c.Delayed)
		oldest := stage{oldestWait, c.JobType, lane}
		found[oldest] = max(found[oldest], c.OldestMs)
	}
	due, err := q.CountDueSoon(ctx, db.CountDueSoonParams{Seconds: soon.Seconds(), Most: dueMost})
	if err != nil {
		return nil, fmt.Errorf("count the jobs that are due soon: %w", postgres.Fault(err))
	}
	for _, d := range due {
		found.add(stage{dueSoon, d.JobType, queue.Low}, d.Jobs)
	}
	p := db.SetGaugesParams{Names: []string{fleet.GaugeCounted}, Values: []int64{took.Milliseconds()}}
	keep := func(name string, value int64) { p.Names, p.Values = append(p.Names, name), append(p.Values, value) }
	keep(fleet.GaugeRunning, found.sum("", "running"))
	keep(fleet.GaugeWaiting, found.sum("", "waiting", "delayed"))
	for of, n := range found {
		keep(of.gauge(), n)
	}
	if err := q.SetGauges(ctx, p); err != nil {
		return nil, fmt.Errorf("keep the gauges: %w", postgres.Fault(err))
	}
	return found, nil
}
