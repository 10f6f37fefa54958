package promoter

import (
	"encoding/json"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/job/schedules"
)

// dueJob is what a promoter must know of a job that is due.
type dueJob struct {
	id, tenant  uuid.UUID
	version     int
	name        string
	jobType     string
	config      json.RawMessage // only where a concurrency key is made of it
	maxAttempts int
	policy      job.Policy
	anchor      time.Time
	count       int64             // executions so far
	resume      job.MisfirePolicy // of what a pause held back; empty: no pause
	due         time.Time         // next_execution_at
	until       time.Time         // the time up to which its misfire policy was applied, see advance.until
	places      job.Places
	hasBacklog  bool // its tenant has a backlog in the pool
	generation  int32
	active      int   // executions that take a place or wait for one, before this pass
	cancelling  bool  // earlier ones of it are being cancelled in pieces
	unreadable  error // why its row cannot be read; nil: it can
}

// compiled is what the job's schedule is compiled from.
func (j *dueJob) compiled() schedules.Job {
	return schedules.Job{ID: j.id, Version: j.version, Anchor: j.anchor, Policy: &j.policy}
}

// specs are the definitions of jobs.
func policies(jobs []dueJob) iter.Seq[*job.Policy] {
	return func(yield func(*job.Policy) bool) {
		for i := range jobs {
			if !yield(&jobs[i].policy) {
				return
			}
		}
	}
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

// skip is one row for scheduled times of a job that do not run.
type skip struct {
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
	last   time.Time // newest time that runs; zero: none
	runs   int
	reason string // why the job is inactive now
	// rest is, where maxExecutions ended the job, the first time after its
	// last run; zero: none. It is due if that run does not happen.
	rest time.Time
	// until is, where the job is promoted in part, up to when its misfire policy
	// has decided; zero: it is promoted whole.
	until time.Time
}

// leftJob is a job that a pass leaves for another one, and when it is due.
type leftJob struct {
	suspect

	at time.Time // zero: nobody asked; year 9999: there is none
}

// plan is what a pass writes in its transaction.
type plan struct {
	at       time.Time // the time that decides
	claimed  int
	runs     []run
	skips    []skip
	advances []advance
	broken   []badJob      // jobs about which nothing can be decided
	busy     []part        // jobs that are left, by tenant, because somebody has its count locked
	cancels  []*dueJob     // whose active runs are cancelled first
	next     time.Time     // when the next job is due; zero while there may be more due now
	left     leftJob       // the first job that is due after this pass, now or later
	oldest   time.Time     // scheduled time of the claimed jobs; zero: none is claimed
	places   *places       // of late runs
	before   uuid.UUID     // where the turns of tenants go on
	held     time.Duration // how long its jobs were locked before its commit; 0: not measured
}

// Why jobs end.
const (
	noFurther = "the schedule has no further time"
)

// lateAfter is how late a time must be for its run to be a catching up, whose
// start is spread over time.
const lateAfter = 5 * time.Second

// add plans what a job catches up, with at most so many rows. Where these do not
// suffice, the job's next scheduled time is the first that has no row yet, and
// advance.until keeps what its misfire policy decided. A job that cannot be
// divided and finds no room is left as it is.
func (p *plan) add(o dueTimes, rows int) {
	if rows <= 0 || o.whole() && rows < o.rows() {
		return
	}
	if o.missed.count > 0 {
		p.skips = append(p.skips, o.missed)
		rows--
	}
	a := advance{job: o.job, next: o.next}
	if o.next.IsZero() {
		a.reason = noFurther
	}
	for i, at := range o.times {
		if a.full() {
			a.rest = at
			break
		}
		if i == rows {
			a.next, a.reason, a.until = at, "", o.until
			break
		}
		if ran, dropped := p.admit(o.job, at); ran {
			a.last, a.runs = at, a.runs+1-dropped
		}
	}
	if a.full() {
		if a.rest.IsZero() {
			a.rest = a.next
		}
		a.next, a.reason, a.until = time.Time{}, job.MaxExecutionsReached, time.Time{}
	}
	p.advances = append(p.advances, a)
}

// full says whether the job has had all its runs.
func (a advance) full() bool {
	limit := a.job.policy.MaxExecutions
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

// admit plans one time as the overlap policy says. It reports whether it
// runs, and how many runs that this plan made before do not any more.
func (p *plan) admit(j *dueJob, at time.Time) (ran bool, dropped int) {
	a := j.policy.Admit(j.places)
	j.places = j.places.Took(a)
	if !a.Run {
		p.skips = append(p.skips, skip{job: j, status: execution.Skipped, first: at, last: at, count: 1, reason: a.Reason})
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
		r.gate = j.policy.MaxConcurrent
	}
	if p.at.Sub(at) > lateAfter {
		r.available = p.places.next(j.tenant, p.at)
	}
	p.runs = append(p.runs, r)
	return true, dropped
}

// drop turns what this plan made of a job so far into skipped rows, and says
// how many: a later time of the same pass cancels it before it began. The
// job is the one that is being planned, so its runs are the last ones.
func (p *plan) drop(j *dueJob) (dropped int) {
	kept := len(p.runs)
	for kept > 0 && p.runs[kept-1].job == j {
		kept--
	}
	for _, r := range p.runs[kept:] {
		p.skips = append(p.skips, skippedBy(r, "a later scheduled time took its place (overlapPolicy cancel_running)"))
	}
	dropped = len(p.runs) - kept
	p.runs = p.runs[:kept]
	return dropped
}

// skippedBy is the row for a run that was planned and does not happen.
func skippedBy(r run, reason string) skip {
	return skip{job: r.job, status: execution.Skipped, first: r.at, last: r.at, count: 1, reason: reason}
}

// missedCount is how many times the plan records as missed.
func (p *plan) missedCount() (n int) {
	for _, u := range p.skips {
		if u.status == execution.Missed {
			n += u.count
		}
	}
	return n
}

// timesBefore are the scheduled times of its rows that lie before a time.
func (p *plan) timesBefore(at time.Time) (times []time.Time) {
	add := func(scheduled time.Time) {
		if scheduled.Before(at) {
			times = append(times, scheduled)
		}
	}
	for _, r := range p.runs {
		add(r.at)
	}
	for _, u := range p.skips {
		add(u.first)
	}
	return times
}

// dailyLimitMet is why a scheduled time is skipped.
const dailyLimitMet = "the tenant has used up its executions of the day (maxExecutionsPerDay); the next day begins at 00:00 UTC"

// cut turns runs into skipped rows where why has a reason for one; it is asked
// about the last run first.
func (p *plan) cut(why func(r run) (reason string)) {
	kept := make([]run, 0, len(p.runs))
	fewer := map[*dueJob]int{}
	for i := len(p.runs) - 1; i >= 0; i-- {
		r := p.runs[i]
		reason := why(r)
		if reason == "" {
			kept = append(kept, r)
			continue
		}
		fewer[r.job]++
		p.skips = append(p.skips, skippedBy(r, reason))
	}
	slices.Reverse(kept)
	p.runs = kept
	last := map[*dueJob]time.Time{}
	for _, r := range kept {
		last[r.job] = r.at
	}
	for i, a := range p.advances {
		if n := fewer[a.job]; n > 0 {
			p.advances[i].lost(n, last[a.job])
		}
	}
	// Nothing takes the place of what would have been cancelled.
	p.cancels = slices.DeleteFunc(p.cancels, func(j *dueJob) bool { return fewer[j] > 0 && last[j].IsZero() })
}

// leave takes all jobs of some tenants out of the plan, which stay due.
func (p *plan) leave(tenants map[uuid.UUID]bool) {
	of := func(j *dueJob) bool { return tenants[j.tenant] }
	left := map[uuid.UUID]*part{}
	for _, a := range p.advances {
		if !of(a.job) {
			continue
		}
		one := left[a.job.tenant]
		if one == nil {
			one = &part{due: a.job.due}
			left[a.job.tenant] = one
		}
		one.jobs, one.due = append(one.jobs, suspect{a.job.id, a.job.tenant}), clock.Earlier(one.due, a.job.due)
	}
	for tenant, one := range left {
		p.busy = append(p.busy, *one)
		p.places.forget(tenant)
	}
	p.runs = slices.DeleteFunc(p.runs, func(r run) bool { return of(r.job) })
	p.skips = slices.DeleteFunc(p.skips, func(s skip) bool { return of(s.job) })
	p.advances = slices.DeleteFunc(p.advances, func(a advance) bool { return of(a.job) })
	p.cancels = slices.DeleteFunc(p.cancels, of)
}
