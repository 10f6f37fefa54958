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

// gauge answers how many executions wait in each lane. It counts if nobody did for
// a while, and keeps what it counted where every process may read it.
func (s *store) gauge(ctx context.Context) (map[queue.Lane]int, error) {
	q := s.queries()
	kept, err := fleet.NewStore(s.db).Gauges(ctx)
	if err != nil {
		return nil, err
	}
	rest := max(gaugeEvery-gaugeEvery/5, gaugeRest*time.Duration(kept[fleet.GaugeCounted])*time.Millisecond)
	turns, err := q.TakeGaugeTurn(ctx, db.TakeGaugeTurnParams{Name: fleet.GaugeCounted, Seconds: rest.Seconds()})
	if err != nil {
		return nil, fmt.Errorf("ask for the turn to count: %w", postgres.Fault(err))
	}
	if turns == 1 {
		return countActive(ctx, q)
	}
	lanes := map[queue.Lane]int{}
	for _, lane := range []queue.Lane{queue.High, queue.Normal, queue.Low} {
		lanes[lane] = int(kept[fleet.GaugeWaitingIn+string(lane)])
	}
	return lanes, nil
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

// countActive counts what waits and runs, and keeps it.
func countActive(ctx context.Context, q *db.Queries) (map[queue.Lane]int, error) {
	mark := clock.Start()
	counts, err := q.CountActiveExecutions(ctx)
	if err != nil {
		return nil, fmt.Errorf("count active executions: %w", postgres.Fault(err))
	}
	took := mark.Elapsed()
	var running, waiting int64
	lanes := map[queue.Lane]int{queue.High: 0, queue.Normal: 0, queue.Low: 0}
	for _, c := range counts {
		running, waiting = running+c.Running, waiting+c.Waiting
		lanes[queue.LaneFor(int(c.Priority))] += int(c.Waiting)
	}
	p := db.SetGaugesParams{
		Names:  []string{fleet.GaugeRunning, fleet.GaugeWaiting, fleet.GaugeCounted},
		Values: []int64{running, waiting, took.Milliseconds()},
	}
	for lane, n := range lanes {
		p.Names, p.Values = append(p.Names, fleet.GaugeWaitingIn+string(lane)), append(p.Values, int64(n))
	}
	if err := q.SetGauges(ctx, p); err != nil {
		return nil, fmt.Errorf("keep the gauges: %w", postgres.Fault(err))
	}
	return lanes, nil
}
