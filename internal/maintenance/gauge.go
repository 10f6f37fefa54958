package maintenance

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/fleet"
	"github.com/scheduler-service/scheduler/internal/queue"
)

// Gauge takes the numbers about the whole service, those of the database from
// whichever process counted them last, and returns how many executions wait or run.
// Without Redis the queue is what waits in the database.
func (m *Maintainer) Gauge(ctx context.Context) (active int64, err error) {
	found, others, err := m.store.gauge(ctx)
	if err != nil {
		return 0, err
	}
	m.c.Metrics.SetActiveJobs(others[fleet.GaugeActiveJobs])
	m.c.Metrics.SetDeadLetters(others[fleet.GaugeDeadLetters])
	m.c.Metrics.SetObjectives(others[fleet.GaugeFastBurn], others[fleet.GaugeSlowBurn], others[fleet.GaugeNoBudget])
	m.c.Metrics.SetMonitorHold(others[fleet.GaugeMonitors+"hold_seconds"])
	for _, status := range fleet.MonitorStatuses {
		m.c.Metrics.SetMonitors(status, others[fleet.GaugeMonitors+status])
	}
	for of, n := range found {
		switch of.state {
		case oldestWait:
			m.c.Metrics.SetOldestWait(of.jobType, string(of.lane), time.Duration(n)*time.Millisecond)
		case dueSoon:
		default:
			m.c.Metrics.SetBacklog(of.state, of.jobType, string(of.lane), n)
		}
	}
	for jobType, n := range found.wantedSlots() {
		m.c.Metrics.SetWantedSlots(jobType, n)
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
	return found.sum("", "running", "waiting", "delayed"), nil
}

// lanes are the classes of priority, as the queue has them.
var lanes = []queue.Lane{queue.High, queue.Normal, queue.Low}

// oldestWait stands for a state in a stage whose number is how long the first
// waiting execution has waited, in milliseconds.
const oldestWait = "oldest"

// dueSoon stands for a state in a stage whose number is how many jobs of all lanes are due
// within a minute.
const dueSoon = "due"

// wantedSlots is how many slots a type's executions could use by the time that a new
// worker takes them: what runs, what may start, and what becomes due.
func (b backlog) wantedSlots() map[string]int64 {
	wanted := map[string]int64{}
	for of, n := range b {
		if slices.Contains([]string{"running", "waiting", dueSoon}, of.state) {
			wanted[of.jobType] += n
		}
	}
	return wanted
}

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
