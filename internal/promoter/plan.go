package promoter

import (
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// dueJob is what a promoter must know of a job that is due.
type dueJob struct {
	id, tenant    uuid.UUID
	version       int
	jobType       string
	priority      int
	maxAttempts   int
	timeout       time.Duration
	definition    schedule.Definition
	misfirePolicy string
	misfireLimit  int
	misfireGrace  time.Duration
	due           time.Time // next_execution_at
}

// run is one execution to insert.
type run struct {
	job *dueJob
	at  time.Time
	id  uuid.UUID
}

// missed is one row for the due instants of a job that do not run.
type missed struct {
	job         *dueJob
	first, last time.Time
	count       int
	reason      string
}

// advance is what a job's row becomes.
type advance struct {
	job    *dueJob
	next   time.Time // zero: never
	last   time.Time // newest instant that runs; zero: none
	runs   int
	reason string // why the job is inactive now
}

// plan is what a pass writes in its transaction.
type plan struct {
	at         time.Time // the instant that decides
	claimed    int
	runs       []run
	misses     []missed
	advances   []advance
	next       time.Time // when the next job is due; set when nothing was
	roundTrips int
}

const misfireReason = "due while no promoter could promote it; the misfire policy does not run it any more"

// add plans what a job owes: its stored instant, and those after it up to now.
func (p *plan) add(j dueJob, s *schedule.Schedule) {
	job := &j
	next, more := s.Next(j.due)
	if !more || next.After(p.at) {
		// The one instant of an ordinary pass, without building lists.
		p.owe(job, []time.Time{j.due}, owedBefore{}, next, more)
		return
	}
	owed := s.Owed(j.due, p.at, j.misfireLimit+1)
	instants := owed.Instants
	before := owedBefore{count: owed.Count - len(instants), first: owed.First, last: owed.Last}
	if before.count == 0 {
		instants = append([]time.Time{j.due}, instants...)
	} else {
		before.first, before.count = j.due, before.count+1
	}
	p.owe(job, instants, before, owed.Next, !owed.Next.IsZero())
}

// owedBefore are owed instants too many to list.
type owedBefore struct {
	count       int
	first, last time.Time
}

func (p *plan) owe(j *dueJob, instants []time.Time, before owedBefore, next time.Time, more bool) {
	cut := j.misfire().Decide(instants, p.at)
	m := missed{job: j, first: before.first, last: before.last, count: before.count + cut, reason: misfireReason}
	if cut > 0 {
		if before.count == 0 {
			m.first = instants[0]
		}
		m.last = instants[cut-1]
	}
	if m.count > 0 {
		p.misses = append(p.misses, m)
	}
	a := advance{job: j, runs: len(instants) - cut}
	for _, at := range instants[cut:] {
		p.runs = append(p.runs, run{job: j, at: at, id: execution.ScheduledID(j.id, at)})
		a.last = at
	}
	if more {
		a.next = next
	} else {
		a.reason = "the schedule has no further instant"
	}
	p.advances = append(p.advances, a)
}

// stop plans that a job never fires again, and says why.
func (p *plan) stop(j dueJob, reason string) {
	job := &j
	p.misses = append(p.misses, missed{job: job, first: j.due, last: j.due, count: 1, reason: reason})
	p.advances = append(p.advances, advance{job: job, reason: reason})
}

func (p *plan) missedCount() (n int) {
	for _, m := range p.misses {
		n += m.count
	}
	return n
}

// oldest is the oldest due instant of the plan; zero when there is none.
func (p *plan) oldest() (oldest time.Time) {
	for _, a := range p.advances {
		if oldest.IsZero() || a.job.due.Before(oldest) {
			oldest = a.job.due
		}
	}
	return oldest
}

// lanes are the ids to hint, by lane.
func (p *plan) lanes() map[queue.Lane][]uuid.UUID {
	out := map[queue.Lane][]uuid.UUID{}
	for _, r := range p.runs {
		lane := queue.LaneFor(r.job.priority)
		out[lane] = append(out[lane], r.id)
	}
	return out
}
