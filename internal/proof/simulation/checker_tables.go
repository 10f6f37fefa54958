package simulation

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
)

// compare looks at what the tables became.
func (a *checker) compare(t *tables) {
	a.history(t)
	a.counts(t)
	running := map[uuid.UUID]int{}
	for i := range t.active {
		r := &t.active[i]
		j := a.jobs[r.Job]
		var before execution.Status
		if k, ok := slices.BinarySearchFunc(a.active, r.ID, func(r activeRow, id uuid.UUID) int { return compareIDs(r.ID, id) }); ok {
			before = a.active[k].Status
		}
		switch {
		case r.Tenant != j.tenant || r.Type != j.spec.Type:
			a.failf("execution %s is of tenant %s and type %s, its job is not", r.ID, r.Tenant, r.Type)
		case a.ids[r.ID]:
			a.failf("execution %s is over and active", r.ID)
		case before != r.Status && !slices.Contains(steps[before], r.Status):
			a.failf("execution %s went from %q to %q", r.ID, before, r.Status)
		case before == "" && r.Trigger == execution.Scheduled && (j.paused || j.deleted):
			a.failf("execution %s was made after its job was paused or deleted", r.ID)
		case j.deleted && r.waits():
			a.failf("execution %s waits and its job is deleted", r.ID)
		}
		if !r.waits() {
			if running[r.Job]++; j.spec.Overlap != job.OverlapAllow && running[r.Job] > j.spec.MaxConcurrent {
				a.failf("%d runs of job %s at once, of at most %d", running[r.Job], r.Job, j.spec.MaxConcurrent)
			}
		}
	}
	for _, r := range a.active {
		if _, ok := t.find(r.ID); !ok && !a.ids[r.ID] {
			a.failf("execution %s is gone", r.ID)
		}
	}
	a.active = append(a.active[:0], t.active...)
}

// counts: what is counted as running of each tenant runs; no key is held twice,
// or by what does not run, and none keeps out another tenant.
func (a *checker) counts(t *tables) {
	running := map[uuid.UUID]counts{}
	keys := map[lockKey]bool{}
	for i := range t.active {
		r := &t.active[i]
		if r.waits() {
			continue
		}
		j := a.jobs[r.Job]
		n := running[j.tenant]
		n.add(j.spec.Type, 1)
		running[j.tenant] = n
		if r.Key == "" {
			continue
		}
		if key := (lockKey{j.tenant, r.Key}); keys[key] {
			a.failf("two runs hold the key %q at once, one of them %s", r.Key, r.ID)
		} else {
			keys[key] = true
		}
	}
	for _, one := range t.tenants {
		if one.Running != running[one.ID] {
			a.failf("%+v are counted as running of tenant %s, and %+v run", one.Running, one.ID, running[one.ID])
		}
	}
	if len(keys) != len(t.keys) {
		a.failf("%d keys are held, and %d runs have one", len(t.keys), len(keys))
	}
}

// history: what is over stays as it is, and what is new is as it must be.
func (a *checker) history(t *tables) {
	if len(t.finished) < len(a.finished) {
		a.failf("outcomes are gone")
		return
	}
	for i, o := range t.finished {
		if i < len(a.finished) {
			if was := &a.finished[i]; was.ID != o.ID || was.Status != o.Status || was.Attempt != o.Attempt || was.Token != o.Token || !was.CompletedAt.Equal(o.CompletedAt) {
				a.failf("the outcome of %s changed", o.ID)
			}
			continue
		}
		switch {
		case o.Tenant != a.jobs[o.Job].tenant:
			a.failf("execution %s is recorded for tenant %s, its job is not", o.ID, o.Tenant)
		case a.ids[o.ID]:
			a.failf("execution %s has two outcomes", o.ID)
		case !o.Status.Terminal():
			a.failf("execution %s is over as %q", o.ID, o.Status)
		case o.Status == execution.Completed && !a.wins[outcome{ID: o.ID, Attempt: o.Attempt, Token: o.Token}]:
			a.failf("execution %s is completed and attempt %d did not succeed", o.ID, o.Attempt)
		case a.ending[o.ID] && o.Status != execution.Cancelled:
			a.failf("the end of %s was asked for and it is %s", o.ID, o.Status)
		}
		a.ids[o.ID] = true
	}
	a.finished = append(a.finished, t.finished[len(a.finished):]...)
}

// checkScheduledTimes: each scheduled time of the jobs that a promotion wrote has exactly one
// record, up to where the job is due next, and no other time has any. Every
// scheduled time is first + k intervals: the arithmetic is the checker's own.
func (a *checker) checkScheduledTimes(t *tables, p *plan) {
	for _, s := range p.steps {
		j := a.jobs[s.job]
		if j.deleted {
			continue
		}
		if row := t.job(s.job); row.Next.IsZero() {
			j.idle = append(j.idle, span{from: s.due})
			j.frontier = p.at
		} else {
			j.frontier = row.Next
		}
		a.covered(t, s.job)
	}
}

func (a *checker) covered(t *tables, id uuid.UUID) {
	j := a.jobs[id]
	every := time.Duration(j.spec.Interval)
	have := make([]int, max(0, int(j.frontier.Sub(j.first)+every-1)/int(every)))
	mark := func(at, until time.Time) {
		for ; !at.After(until); at = at.Add(every) {
			k := at.Sub(j.first) / every
			if at.Sub(j.first)%every != 0 || k < 0 || int(k) >= len(have) {
				a.failf("job %s has a record for %v, which is no scheduled time of it", id, at)
				return
			}
			have[k]++
		}
	}
	for i := range t.active {
		if r := &t.active[i]; r.Job == id && r.Trigger == execution.Scheduled {
			mark(r.At, r.At)
		}
	}
	for i := range t.finished {
		if o := &t.finished[i]; o.Job == id && o.Trigger == execution.Scheduled {
			mark(o.At, clock.Later(o.At, o.MissedUntil))
		}
	}
	for k, n := range have {
		at := j.first.Add(time.Duration(k) * every)
		if n > 1 || n == 0 && !slices.ContainsFunc(j.idle, func(s span) bool { return s.holds(at) }) {
			a.failf("the scheduled time %v of job %s has %d records", at, id, n)
		}
	}
}

// steps are what the status of an active execution may become; the empty one is
// that of an execution that does not exist yet. From running to pending goes one
// that was released or taken from a dead worker.
var steps = map[execution.Status][]execution.Status{
	"":                 {execution.Pending, execution.Skipped, execution.Missed},
	execution.Pending:  {execution.Running, execution.Cancelled},
	execution.Running:  {execution.Completed, execution.Failed, execution.Cancelled, execution.Retrying, execution.Pending},
	execution.Retrying: {execution.Running, execution.Cancelled},
}
