package model

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
)

// audit checks after every operation what must hold always, against what it
// wrote down itself of the operations before. Of the tables it trusts nothing.
type audit struct {
	violation string // the first
	lossy     bool   // commits may be lost: what depends on them is not asked

	// What follows from the database, and goes back with it.
	jobs   map[uuid.UUID]*told
	active []activeRow
	over   []overRow
	ids    map[uuid.UUID]bool // of what is over
	grants map[uuid.UUID]grant
	ending map[uuid.UUID]bool // executions whose end was asked for while they ran
	leases map[uuid.UUID]time.Time

	// What happened outside, for good.
	given  map[attempt]uuid.UUID // to which token
	starts map[attempt]uuid.UUID
	wins   map[outcome]bool // by id, attempt and token
}

// told is what a tenant said of a job, and when it was first due.
type told struct {
	spec            job.Spec
	first, frontier time.Time
	paused, deleted bool
	// idle are the times in which the job was over, by its number of runs, until
	// somebody resumed it: from the first instant that was due and may not have
	// run. The end of the last one is zero while it goes on.
	idle []span
}

type span struct{ from, to time.Time }

func (s span) holds(at time.Time) bool {
	return !at.Before(s.from) && (s.to.IsZero() || !at.After(s.to))
}

type attempt struct {
	id     uuid.UUID
	number int
}

// grant is an attempt in the hands of a worker.
type grant struct {
	token   uuid.UUID
	attempt int
}

func newAudit(lossy bool) *audit {
	return &audit{
		lossy: lossy, jobs: map[uuid.UUID]*told{}, ids: map[uuid.UUID]bool{}, grants: map[uuid.UUID]grant{}, ending: map[uuid.UUID]bool{},
		leases: map[uuid.UUID]time.Time{}, given: map[attempt]uuid.UUID{}, starts: map[attempt]uuid.UUID{}, wins: map[outcome]bool{},
	}
}

// clone is what goes back with the database; what happened outside is shared.
func (a *audit) clone() *audit {
	c := *a
	c.active, c.over = slices.Clone(a.active), slices.Clone(a.over)
	c.ids, c.grants, c.ending, c.leases = maps.Clone(a.ids), maps.Clone(a.grants), maps.Clone(a.ending), maps.Clone(a.leases)
	c.jobs = make(map[uuid.UUID]*told, len(a.jobs))
	for id, j := range a.jobs {
		copied := *j
		copied.idle = slices.Clone(j.idle)
		c.jobs[id] = &copied
	}
	return &c
}

func (a *audit) failf(format string, args ...any) {
	if a.violation == "" {
		a.violation = fmt.Sprintf(format, args...)
	}
}

// after looks at an operation that was carried out, and its answer.
func (a *audit) after(w *world, o op, got answer, at time.Time) {
	w.seen.operations++
	switch o := o.(type) {
	case createJob:
		if got.Refused == "" {
			first := at.Add(time.Duration(o.Spec.Interval))
			a.jobs[o.Job] = &told{spec: o.Spec, first: first, frontier: first}
		}
	case pauseJob:
		a.tell(o.Job, got, func(j *told) { j.paused = true })
	case resumeJob:
		a.tell(o.Job, got, func(j *told) {
			if j.paused = false; len(j.idle) > 0 && j.idle[len(j.idle)-1].to.IsZero() {
				j.idle[len(j.idle)-1].to = at
			}
		})
	case resumePausedJobs:
		for _, id := range got.IDs {
			a.jobs[id].paused = false
		}
	case deleteJob:
		a.tell(o.Job, got, func(j *told) { j.deleted = true })
		a.askToEnd(o.Job)
	case registerWorker:
		a.leases[o.Worker] = at.Add(o.Lease)
	case renewWorker:
		if got.Stands {
			a.leases[o.Worker] = at.Add(o.Lease)
		}
	case retireWorker:
		delete(a.leases, o.Worker)
	case markDeadWorkers:
		for _, id := range got.IDs {
			delete(a.leases, id)
		}
	case claimExecutions:
		a.claims(w, o.Worker, got.Claims, at)
	case claimGatedExecutions:
		a.claims(w, o.Worker, got.Claims, at)
	case completeExecutions:
		a.completions(w, o.Outcomes, got.Verdicts)
	case releaseExecutions:
		w.seen.released += len(got.IDs)
		a.takeBack(got.IDs)
	case reclaimExecutions:
		w.seen.reclaimed += len(got.Verdicts)
		for _, v := range got.Verdicts {
			delete(a.grants, v.ID)
		}
	case writePromotion:
		w.seen.promoted += len(o.plan.runs)
		for _, id := range o.plan.cancels {
			a.askToEnd(id)
		}
	case listGatedJobs, listHeldExecutions, listClaimableExecutions, lockJobs, claimDueJobs:
		return // they write nothing
	}
	a.compare(w.db)
	if p, ok := o.(writePromotion); ok {
		a.instants(w.db, p.plan)
	}
}

func (a *audit) tell(id uuid.UUID, got answer, change func(j *told)) {
	if j := a.jobs[id]; j != nil && got.Refused == "" {
		change(j)
	}
}

// askToEnd notes what of a job runs when its end is asked for: it ends as
// cancelled, whatever else happens.
func (a *audit) askToEnd(of uuid.UUID) {
	for _, r := range a.active {
		if r.Job == of && !r.waits() {
			a.ending[r.ID] = true
		}
	}
}

func (a *audit) takeBack(ids []uuid.UUID) {
	for _, id := range ids {
		delete(a.grants, id)
	}
}

// claims: an attempt goes to one worker, whose lease stands, and to nobody
// while another has the execution.
func (a *audit) claims(w *world, worker uuid.UUID, claims []claimed, at time.Time) {
	w.seen.claimed += len(claims)
	for _, c := range claims {
		if expires, ok := a.leases[worker]; !ok || !expires.After(at) {
			a.failf("worker %s was given execution %s and has no lease", worker, c.ID)
		}
		if g, ok := a.grants[c.ID]; ok && g.token != c.Token {
			a.failf("execution %s was given to two workers at once", c.ID)
		}
		key := attempt{c.ID, c.Attempt}
		if token, ok := a.given[key]; ok && token != c.Token && !a.lossy {
			a.failf("attempt %d of %s was given twice", c.Attempt, c.ID)
		}
		a.given[key] = c.Token
		a.grants[c.ID] = grant{token: c.Token, attempt: c.Attempt}
		if c.Attempt > c.Max {
			a.failf("attempt %d of %s is one more than the %d that it may have", c.Attempt, c.ID, c.Max)
		}
	}
}

// completions is the fence: an outcome is accepted of the holder alone.
func (a *audit) completions(w *world, outcomes []outcome, verdicts []verdict) {
	for _, v := range verdicts {
		w.seen.completed++
		g, ok := a.grants[v.ID]
		by := slices.ContainsFunc(outcomes, func(o outcome) bool {
			return o.ID == v.ID && ok && o.Token == g.token && o.Attempt == g.attempt
		})
		if !by {
			a.failf("an outcome of %s was accepted of somebody who does not hold it", v.ID)
		}
		delete(a.grants, v.ID)
	}
}

// started: an attempt begins once. After lost commits its number may come
// again, under another token.
func (a *audit) started(w *world, c claimed) {
	w.seen.started++
	key := attempt{c.ID, c.Attempt}
	if token, ok := a.starts[key]; ok && (!a.lossy || token == c.Token) {
		a.failf("attempt %d of %s began twice", c.Attempt, c.ID)
	}
	a.starts[key] = c.Token
}

func (a *audit) succeeded(o outcome) {
	a.wins[outcome{ID: o.ID, Attempt: o.Attempt, Token: o.Token}] = true
}

// compare looks at what the tables became.
func (a *audit) compare(t *tables) {
	a.history(t)
	running := map[uuid.UUID]int{}
	for i := range t.active {
		r := &t.active[i]
		j := a.jobs[r.Job]
		var before execution.Status
		if k, ok := slices.BinarySearchFunc(a.active, r.ID, func(r activeRow, id uuid.UUID) int { return compareIDs(r.ID, id) }); ok {
			before = a.active[k].Status
		}
		switch {
		case a.ids[r.ID]:
			a.failf("execution %s is over and active", r.ID)
		case before != r.Status && !before.MayBecome(r.Status):
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

// history: what is over stays as it is, and what is new is as it must be.
func (a *audit) history(t *tables) {
	if len(t.over) < len(a.over) {
		a.failf("outcomes are gone")
		return
	}
	for i, o := range t.over {
		if i < len(a.over) {
			if was := &a.over[i]; was.ID != o.ID || was.Status != o.Status || was.Attempt != o.Attempt || was.Token != o.Token || !was.CompletedAt.Equal(o.CompletedAt) {
				a.failf("the outcome of %s changed", o.ID)
			}
			continue
		}
		switch {
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
	a.over = append(a.over, t.over[len(a.over):]...)
}

// instants: each due instant of the jobs that a promotion wrote has exactly one
// record, up to where the job is due next, and no other instant has any. Every
// instant is first + k intervals: the arithmetic is the checker's own.
func (a *audit) instants(t *tables, p *plan) {
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

func (a *audit) covered(t *tables, id uuid.UUID) {
	j := a.jobs[id]
	every := time.Duration(j.spec.Interval)
	have := make([]int, max(0, int(j.frontier.Sub(j.first)+every-1)/int(every)))
	mark := func(at, until time.Time) {
		for ; !at.After(until); at = at.Add(every) {
			k := at.Sub(j.first) / every
			if at.Sub(j.first)%every != 0 || k < 0 || int(k) >= len(have) {
				a.failf("job %s has a record for %v, which is no due instant of it", id, at)
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
	for i := range t.over {
		if o := &t.over[i]; o.Job == id && o.Trigger == execution.Scheduled {
			mark(o.At, later(o.At, o.MissedUntil))
		}
	}
	for k, n := range have {
		at := j.first.Add(time.Duration(k) * every)
		if n > 1 || n == 0 && !slices.ContainsFunc(j.idle, func(s span) bool { return s.holds(at) }) {
			a.failf("the instant %v of job %s has %d records", at, id, n)
		}
	}
}
