package simulation

import (
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/job/keytemplate"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// dueJob is what a promoter knows of a job that is due: a copy, read when the
// row was locked.
type dueJob struct {
	id       uuid.UUID
	tenant   uuid.UUID
	spec     job.Spec
	schedule *schedule.Schedule
	count    int64
	resume   job.MisfirePolicy
	due      time.Time
	places   job.Places
}

// plan is what a promotion writes. It is put together here a second time, from
// the same decisions (job.Spec.Admit, job.Misfire.Decide, schedule); that the
// result is the promoter's is what the contract tests compare.
type plan struct {
	at      time.Time
	runs    []activeRow
	unruns  []finishedRow
	steps   []step
	cancels []uuid.UUID
	catchup *catchup
}

// step is what a job's row becomes.
type step struct {
	job             uuid.UUID
	due, next, last time.Time // what it was due at; zero: never, none
	runs            int
}

// catchup spreads the late runs of each tenant.
type catchup struct {
	every time.Duration
	last  map[uuid.UUID]time.Time
}

func newCatchup() *catchup { return &catchup{every: catchupEvery, last: map[uuid.UUID]time.Time{}} }

func (c *catchup) next(tenant uuid.UUID, now time.Time) time.Time {
	if c.last[tenant].Before(now) {
		c.last[tenant] = now
	} else {
		c.last[tenant] = c.last[tenant].Add(c.every)
	}
	return c.last[tenant]
}

const lateAfter = 5 * time.Second

func newPlan(jobs []dueJob, at time.Time, c *catchup) *plan {
	p := &plan{at: at, catchup: c}
	for i := range jobs {
		p.add(&jobs[i])
	}
	return p
}

func (p *plan) add(j *dueJob) {
	next, more := j.schedule.Next(j.due)
	if !more || next.After(p.at) {
		p.decideMissed(j, []time.Time{j.due}, finishedRow{}, next)
		return
	}
	misfire := j.misfire()
	found := j.schedule.Between(j.due, p.at, misfire.Limit+1)
	times := found.Times
	unlisted := finishedRow{MissedCount: found.Count - len(times), At: found.First, MissedUntil: found.Last}
	if unlisted.MissedCount == 0 {
		times = append([]time.Time{j.due}, times...)
	} else {
		unlisted.At, unlisted.MissedCount = j.due, unlisted.MissedCount+1
	}
	p.decideMissed(j, times, unlisted, found.Next)
}

func (p *plan) decideMissed(j *dueJob, times []time.Time, missed finishedRow, next time.Time) {
	cut := j.misfire().Decide(times, p.at)
	if cut > 0 {
		if missed.MissedCount == 0 {
			missed.At = times[0]
		}
		missed.MissedUntil = times[cut-1]
	}
	if missed.MissedCount += cut; missed.MissedCount > 0 {
		p.recordNotRun(j, execution.Missed, missed)
	}
	s := step{job: j.id, due: j.due, next: next}
	full := func() bool { return j.spec.MaxExecutions > 0 && j.count+int64(s.runs) >= j.spec.MaxExecutions }
	for _, at := range times[cut:] {
		if full() {
			break
		}
		if ran, dropped := p.admit(j, at); ran {
			s.last, s.runs = at, s.runs+1-dropped
		}
	}
	if full() {
		s.next = time.Time{}
	}
	p.steps = append(p.steps, s)
}

func (p *plan) admit(j *dueJob, at time.Time) (ran bool, dropped int) {
	a := j.spec.Admit(j.places)
	j.places = j.places.Took(a)
	if !a.Run {
		p.recordNotRun(j, execution.Skipped, finishedRow{At: at, MissedUntil: at, MissedCount: 1})
		return false, 0
	}
	if a.CancelOthers {
		if n := len(p.cancels); n == 0 || p.cancels[n-1] != j.id {
			p.cancels = append(p.cancels, j.id)
		}
		dropped = p.drop(j)
	}
	r := newRow(j.tenant, j.id, j.spec, execution.ScheduledID(j.id, at), at, p.at)
	r.Trigger = execution.Scheduled
	if a.Gated {
		r.SlotLimit = j.spec.MaxConcurrent
	}
	if p.at.Sub(at) > lateAfter {
		r.AvailableAt = p.catchup.next(j.tenant, p.at)
		if r.SweepAt = r.AvailableAt.Add(dispatch.HintPatience); r.AvailableAt.After(p.at) && !r.bound() {
			r.pool()
		}
	}
	p.runs = append(p.runs, r)
	return true, dropped
}

// drop turns the runs that the plan made of this job so far into skipped ones.
func (p *plan) drop(j *dueJob) (dropped int) {
	kept := len(p.runs)
	for kept > 0 && p.runs[kept-1].Job == j.id {
		kept--
	}
	for _, r := range p.runs[kept:] {
		p.recordNotRun(j, execution.Skipped, finishedRow{At: r.At, MissedUntil: r.At, MissedCount: 1})
	}
	dropped = len(p.runs) - kept
	p.runs = p.runs[:kept]
	return dropped
}

func (p *plan) recordNotRun(j *dueJob, status execution.Status, o finishedRow) {
	o.Tenant = j.tenant
	o.ID, o.Job, o.Trigger, o.Status, o.CompletedAt = execution.ScheduledID(j.id, o.At), j.id, execution.Scheduled, status, p.at
	p.unruns = append(p.unruns, o)
}

func (j *dueJob) misfire() job.Misfire {
	if j.resume == "" {
		return j.spec.Misfire
	}
	return job.Misfire{Policy: j.resume, Limit: j.spec.Misfire.Limit}
}

// newRow is a run as it is inserted.
func newRow(tenant, of uuid.UUID, spec job.Spec, id uuid.UUID, at, now time.Time) activeRow {
	return activeRow{
		ID: id, Job: of, Tenant: tenant, Type: spec.Type, At: at, Status: execution.Pending, Priority: spec.Priority, MaxAttempts: spec.Retry.MaxRetries + 1, Key: spec.KeyOf(keytemplate.Run{JobID: of, JobName: spec.Name, JobType: spec.Type, Config: spec.Config}),
		Timeout: time.Duration(spec.Timeout) * time.Second, AvailableAt: now, SweepAt: now.Add(dispatch.HintPatience),
	}
}

// hints are the runs to hint at once.
func (p *plan) hints() (ids []uuid.UUID) {
	for _, r := range p.runs {
		if !r.AvailableAt.After(p.at) {
			ids = append(ids, r.ID)
		}
	}
	return ids
}
