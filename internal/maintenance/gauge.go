package maintenance

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/queue"
)

// MakePartitions makes the partitions that are missing; a zero now means the
// database's clock. It takes no lease: without partitions nothing is recorded,
// and several processes that make them at once make each once.
func (m *Maintainer) MakePartitions(ctx context.Context, now time.Time) error {
	made, err := partition.Keep(ctx, m.store.queries(), max(1, m.c.PartitionsAhead), now)
	if err != nil {
		return err
	}
	if made > 0 {
		m.c.Log.InfoContext(ctx, "partitions made", "count", made)
	}
	return nil
}

// Gauge takes the numbers about the whole service, those of the database from
// whichever process counted them last. Without Redis the queue is what waits in
// the database.
func (m *Maintainer) Gauge(ctx context.Context) error {
	found, err := m.store.gauge(ctx)
	if err != nil {
		return err
	}
	for of, n := range found {
		if of.state == oldestWait {
			m.c.Metrics.SetOldestWait(of.jobType, string(of.lane), time.Duration(n)*time.Millisecond)
		} else {
			m.c.Metrics.SetBacklog(of.state, of.jobType, string(of.lane), n)
		}
	}
	depths, err := m.c.Hints.Depth(ctx)
	if err != nil {
		depths = map[queue.Lane]int{}
		for _, lane := range lanes {
			depths[lane] = int(found.sum(lane, "waiting", "delayed"))
		}
	}
	for lane, n := range depths {
		m.c.Metrics.SetQueueSize(string(lane), n)
	}
	return nil
}

// lanes are the classes of priority, as the queue has them.
var lanes = []queue.Lane{queue.High, queue.Normal, queue.Low}

// oldestWait stands for a state in a stage whose number is how long the first
// waiting execution has waited, in milliseconds.
const oldestWait = "oldest"

// stage is a state of active executions of one type and lane: running, waiting
// (they may start), or delayed (they may start later).
type stage struct {
	state, jobType string
	lane           queue.Lane
}

// backlog is how many active executions are in each stage.
type backlog map[stage]int64

// gauge is the name under which processes share the number of a stage.
func (s stage) gauge() string {
	return strings.Join([]string{"backlog", s.state, string(s.lane), s.jobType}, ":")
}

// backlogOf reads the gauges that another process kept.
func backlogOf(gauges map[string]int64) backlog {
	b := backlog{}
	for name, n := range gauges {
		parts := strings.SplitN(name, ":", 4)
		if len(parts) == 4 && parts[0] == "backlog" {
			b[stage{parts[1], parts[3], queue.Lane(parts[2])}] = n
		}
	}
	return b
}

// add adds executions to a stage; those of several priorities are of one lane.
func (b backlog) add(to stage, n int64) { b[to] += n }

// sum counts the executions in some states, of one lane or, where it is empty, of all.
func (b backlog) sum(lane queue.Lane, states ...string) (n int64) {
	for of, count := range b {
		if slices.Contains(states, of.state) && (lane == "" || of.lane == lane) {
			n += count
		}
	}
	return n
}
