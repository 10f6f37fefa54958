package promoter

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// dueJob is what a promoter must know of a job that is due.
type dueJob struct {
	id, tenant  uuid.UUID
	version     int
	jobType     string
	maxAttempts int
	spec        job.Spec // the schedule and the policies; not what it runs
	anchor      time.Time
	count       int64             // executions so far
	resume      job.MisfirePolicy // of what a pause held back; empty: no pause
	due         time.Time         // next_execution_at
	places      job.Places
	crowded     bool // its tenant has a line in the pool
}

// run is one execution to insert.
type run struct {
	job       *dueJob
	at        time.Time
	id        uuid.UUID
	gate      int       // waits until fewer than so many run; 0: has its place
	available time.Time // zero: at once
	hinted    bool      // workers are told
	pooled    bool      // workers look for it
}

// unrun is one row for due instants of a job that do not run.
type unrun struct {
	job         *dueJob
	status      execution.Status // skipped or missed
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
	// rest is, where maxExecutions ended the job, the first instant after its
	// last run; zero: none. It is owed if that run does not happen.
	rest time.Time
}

// plan is what a pass writes in its transaction.
type plan struct {
	at       time.Time // the instant that decides
	claimed  int
	runs     []run
	unruns   []unrun
	advances []advance
	cancels  []*dueJob // whose active runs are cancelled first
	next     time.Time // when the next job is due; zero while there may be more due now
	catchup  *catchup
}

// Why instants are missed.
const (
	misfireReason = "due while no promoter could promote it; the misfire policy does not run it any more"
	pausedReason  = "due while the job was paused"
)

// Why jobs end.
const (
	noFurther = "the schedule has no further instant"
)

// lateAfter is how late an instant must be for its run to be a catching up,
// which is rate-limited.
const lateAfter = 5 * time.Second

// add plans what a job owes: its stored instant, and those after it up to now.
func (p *plan) add(j dueJob, s *schedule.Schedule) {
	job := &j
	next, more := s.Next(j.due)
	if !more || next.After(p.at) {
		// The one instant of an ordinary pass, without building lists.
		p.owe(job, []time.Time{j.due}, owedBefore{}, next, more)
		return
	}
	owed := s.Owed(j.due, p.at, j.misfire().Limit+1)
	instants := owed.Instants
	before := owedBefore{count: owed.Count - len(instants), first: owed.First, last: owed.Last, capped: owed.Capped}
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
	capped      bool // there are more than count
}

func (p *plan) owe(j *dueJob, instants []time.Time, before owedBefore, next time.Time, more bool) {
	cut := j.misfire().Decide(instants, p.at)
	m := unrun{job: j, status: execution.Missed, first: before.first, last: before.last, count: before.count + cut, reason: j.missedReason()}
	if cut > 0 {
		if before.count == 0 {
			m.first = instants[0]
		}
		m.last = instants[cut-1]
	}
	if before.capped {
		m.reason += "; counting stopped, so missedCount is the least that it can be"
	}
	if m.count > 0 {
		p.unruns = append(p.unruns, m)
	}
	a := advance{job: j, next: next}
	if !more {
		a.next, a.reason = time.Time{}, noFurther
	}
	for _, at := range instants[cut:] {
		if a.full() {
			a.rest = at
			break
		}
		if ran, dropped := p.admit(j, at); ran {
			a.last, a.runs = at, a.runs+1-dropped
		}
	}
	if a.full() {
		if a.rest.IsZero() {
			a.rest = a.next
		}
		a.next, a.reason = time.Time{}, job.MaxExecutionsReached
	}
	p.advances = append(p.advances, a)
}

// full says whether the job has had all its runs.
func (a advance) full() bool {
	limit := a.job.spec.MaxExecutions
	return limit > 0 && a.job.count+int64(a.runs) >= limit
}

// lost takes away runs that were planned and do not happen.
func (a *advance) lost(n int, last time.Time) {
	was := a.full()
	a.runs, a.last = max(0, a.runs-n), last
	if was && !a.full() {
		a.next, a.reason = a.rest, ""
		if a.next.IsZero() {
			a.reason = noFurther
		}
	}
}

// admit plans one instant as the overlap policy says. It reports whether it
// runs, and how many runs that this plan made before do not any more.
func (p *plan) admit(j *dueJob, at time.Time) (ran bool, dropped int) {
	a := j.spec.Admit(j.places)
	j.places = j.places.Took(a)
	if !a.Run {
		p.unruns = append(p.unruns, unrun{job: j, status: execution.Skipped, first: at, last: at, count: 1, reason: a.Reason})
		return false, 0
	}
	if a.CancelOthers {
		if n := len(p.cancels); n == 0 || p.cancels[n-1] != j { // once is enough: all stands in one transaction
			p.cancels = append(p.cancels, j)
		}
		dropped = p.drop(j)
	}
	r := run{job: j, at: at, id: execution.ScheduledID(j.id, at)}
	if a.Gated {
		r.gate = j.spec.MaxConcurrent
	}
	if p.at.Sub(at) > lateAfter {
		r.available = p.catchup.next(p.at)
	}
	p.runs = append(p.runs, r)
	return true, dropped
}

// drop turns what this plan made of a job so far into skipped rows, and says
// how many: a later instant of the same pass cancels it before it began. The
// job is the one that is being planned, so its runs are the last ones.
func (p *plan) drop(j *dueJob) (dropped int) {
	kept := len(p.runs)
	for kept > 0 && p.runs[kept-1].job == j {
		kept--
	}
	for _, r := range p.runs[kept:] {
		p.unruns = append(p.unruns, skippedBy(r, "a later due instant took its place (overlapPolicy cancel_running)"))
	}
	dropped = len(p.runs) - kept
	p.runs = p.runs[:kept]
	return dropped
}

// skippedBy is the row for a run that was planned and does not happen.
func skippedBy(r run, reason string) unrun {
	return unrun{job: r.job, status: execution.Skipped, first: r.at, last: r.at, count: 1, reason: reason}
}

// stop plans that a job never fires again, and says why.
func (p *plan) stop(j dueJob, reason string) {
	job := &j
	p.unruns = append(p.unruns, unrun{job: job, status: execution.Missed, first: j.due, last: j.due, count: 1, reason: reason})
	p.advances = append(p.advances, advance{job: job, reason: reason})
}

// missedCount is how many instants the plan records as missed.
func (p *plan) missedCount() (n int) {
	for _, u := range p.unruns {
		if u.status == execution.Missed {
			n += u.count
		}
	}
	return n
}

// misfire is the rule for what the job owes. What a pause held back is late
// from the first moment on.
func (j *dueJob) misfire() job.Misfire {
	if j.resume == "" {
		return j.spec.Misfire
	}
	return job.Misfire{Policy: j.resume, Limit: j.spec.Misfire.Limit}
}

func (j *dueJob) missedReason() string {
	if j.resume == "" {
		return misfireReason
	}
	return pausedReason
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

// runsBefore are the months' firsts of the runs whose instants lie before an
// instant, each once.
func (p *plan) runsBefore(at time.Time) (months []time.Time) {
	for _, r := range p.runs {
		month := time.Date(r.at.Year(), r.at.Month(), 1, 0, 0, 0, 0, time.UTC)
		if r.at.Before(at) && !slices.Contains(months, month) {
			months = append(months, month)
		}
	}
	return months
}
