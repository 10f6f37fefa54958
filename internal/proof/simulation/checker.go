package simulation

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/job"
)

// checker checks after every operation what must hold always, against what it
// wrote down itself of the operations before. Of the tables it trusts nothing.
type checker struct {
	violation string // the first
	limit     int    // of runs of a tenant that has none of its own; 0: none
	lossy     bool   // commits may be lost: what depends on them is not asked

	// These follow from the database, and go back with it.
	jobs     map[uuid.UUID]*told
	active   []activeRow
	finished []finishedRow
	ids      map[uuid.UUID]bool // of finished executions
	grants   map[uuid.UUID]grant
	ending   map[uuid.UUID]bool // executions whose end was asked for while they ran
	leases   map[uuid.UUID]time.Time
	types    map[uuid.UUID][]string // by incarnation
	limits   map[uuid.UUID]counts   // by tenant

	// These happened outside, for good.
	given  map[attempt]uuid.UUID // to which token
	starts map[attempt]uuid.UUID
	wins   map[outcome]bool // by id, attempt and token
}

// told is what a tenant said of a job, and when it was first due.
type told struct {
	tenant          uuid.UUID
	spec            job.Spec
	first, frontier time.Time
	paused, deleted bool
	// idle are the times in which the job was finished, by its number of runs, until
	// somebody resumed it: from the first scheduled time that was due and may not have
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

func newChecker(lossy bool) *checker {
	return &checker{
		lossy: lossy, jobs: map[uuid.UUID]*told{}, ids: map[uuid.UUID]bool{}, grants: map[uuid.UUID]grant{}, ending: map[uuid.UUID]bool{},
		leases: map[uuid.UUID]time.Time{}, types: map[uuid.UUID][]string{}, limits: map[uuid.UUID]counts{}, given: map[attempt]uuid.UUID{}, starts: map[attempt]uuid.UUID{}, wins: map[outcome]bool{},
	}
}

// clone is what goes back with the database; what happened outside is shared.
func (a *checker) clone() *checker {
	c := *a
	c.active, c.finished = slices.Clone(a.active), slices.Clone(a.finished)
	c.ids, c.grants, c.ending, c.leases = maps.Clone(a.ids), maps.Clone(a.grants), maps.Clone(a.ending), maps.Clone(a.leases)
	c.limits = maps.Clone(a.limits)
	c.jobs = make(map[uuid.UUID]*told, len(a.jobs))
	for id, j := range a.jobs {
		copied := *j
		copied.idle = slices.Clone(j.idle)
		c.jobs[id] = &copied
	}
	return &c
}

func (a *checker) failf(format string, args ...any) {
	if a.violation == "" {
		a.violation = fmt.Sprintf(format, args...)
	}
}

// after looks at an operation that was carried out, and its answer.
func (a *checker) after(w *world, o op, got answer, at time.Time) {
	w.seen.operations++
	switch o := o.(type) {
	case listUnclaimedExecutions, listExecutionsOfWorker, listPooledExecutions, listUnblockedExecutions, listNextExecutions, lockJobs, claimDueJobs:
		return // they write nothing
	case createJob, pauseJob, resumeJob, resumePausedJobs, deleteJob, triggerJob, setLimits:
		a.afterRequest(o, got, at)
	default:
		a.afterStep(w, o, got, at)
	}
	a.compare(w.db)
	if p, ok := o.(writePromotion); ok {
		a.checkScheduledTimes(w.db, p.plan)
	}
}

// afterRequest looks at what a tenant asked for.
func (a *checker) afterRequest(o op, got answer, at time.Time) {
	switch o := o.(type) {
	case createJob:
		if got.Refused == "" {
			first := at.Add(time.Duration(o.Spec.Interval))
			a.jobs[o.Job] = &told{tenant: o.Tenant, spec: o.Spec, first: first, frontier: first}
		}
	case pauseJob:
		a.tell(o.Tenant, o.Job, got, func(j *told) { j.paused = true })
	case resumeJob:
		a.tell(o.Tenant, o.Job, got, func(j *told) {
			if j.paused = false; len(j.idle) > 0 && j.idle[len(j.idle)-1].to.IsZero() {
				j.idle[len(j.idle)-1].to = at
			}
		})
	case resumePausedJobs:
		for _, id := range got.IDs {
			a.jobs[id].paused = false
		}
	case deleteJob:
		a.tell(o.Tenant, o.Job, got, func(j *told) {
			j.deleted = true
			a.askToEnd(o.Job)
		})
	case triggerJob:
		a.tell(o.Tenant, o.Job, got, func(*told) {})
	case setLimits:
		a.limits[o.Tenant] = o.Most
	}
}

// afterStep looks at a step of the protocol.
func (a *checker) afterStep(w *world, o op, got answer, at time.Time) {
	switch o := o.(type) {
	case registerWorker:
		a.leases[o.Worker], a.types[o.Worker] = at.Add(o.Lease), o.Types
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
	case claimLimitedExecutions:
		a.claims(w, o.Worker, got.Claims, at)
	case completeExecutions:
		a.completions(w, o.Outcomes, got.Verdicts)
	case releaseExecutions:
		w.seen.released += len(got.IDs)
		a.takeBack(got.IDs)
	case reassignExecutions:
		w.seen.reclaimed += len(got.Verdicts)
		for _, v := range got.Verdicts {
			delete(a.grants, v.ID)
		}
	case writePromotion:
		w.seen.promoted += len(o.plan.runs)
		for _, id := range o.plan.cancels {
			a.askToEnd(id)
		}
	}
}

// tell notes what a tenant's request changed. No tenant has one for another's job.
func (a *checker) tell(tenant, id uuid.UUID, got answer, change func(j *told)) {
	j := a.jobs[id]
	if j == nil || got.Refused != "" {
		return
	}
	if j.tenant != tenant {
		a.failf("tenant %s had its will with job %s of tenant %s", tenant, id, j.tenant)
	}
	change(j)
}

// askToEnd notes what of a job runs when its end is asked for: it ends as
// cancelled, whatever else happens.
func (a *checker) askToEnd(of uuid.UUID) {
	for _, r := range a.active {
		if r.Job == of && !r.waits() {
			a.ending[r.ID] = true
		}
	}
}

func (a *checker) takeBack(ids []uuid.UUID) {
	for _, id := range ids {
		delete(a.grants, id)
	}
}

// claims: an attempt goes to one worker, whose lease stands, and to nobody
// while another has the execution.
func (a *checker) claims(w *world, worker uuid.UUID, claims []claimed, at time.Time) {
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
		if _, known := a.grants[c.ID]; !known {
			a.fits(w.db, worker, c)
		}
		a.given[key] = c.Token
		a.grants[c.ID] = grant{token: c.Token, attempt: c.Attempt}
		if c.Attempt > c.Max {
			a.failf("attempt %d of %s is one more than the %d that it may have", c.Attempt, c.ID, c.Max)
		}
	}
}

// fits: what begins is of a type that its worker runs, and its tenant may run so
// many. A limit that was lowered ends nothing.
func (a *checker) fits(t *tables, worker uuid.UUID, c claimed) {
	j := a.jobs[c.Job]
	if !slices.Contains(a.types[worker], j.spec.Type) {
		a.failf("execution %s is of type %s and was given to a worker that does not run it", c.ID, j.spec.Type)
	}
	most, now := a.limits[j.tenant], counts{}
	for i := range t.active {
		if r := &t.active[i]; !r.waits() && a.jobs[r.Job].tenant == j.tenant {
			now.add(a.jobs[r.Job].spec.Type, 1)
		}
	}
	if most.All < 0 && a.limit > 0 {
		most.All = a.limit
	}
	if most.All >= 0 && now.All > most.All || *most.of(j.spec.Type) >= 0 && *now.of(j.spec.Type) > *most.of(j.spec.Type) {
		a.failf("%+v run of tenant %s, of at most %+v", now, j.tenant, most)
	}
}

// completions is the fence: an outcome is accepted of the holder alone.
func (a *checker) completions(w *world, outcomes []outcome, verdicts []verdict) {
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
func (a *checker) started(w *world, c claimed) {
	w.seen.started++
	key := attempt{c.ID, c.Attempt}
	if token, ok := a.starts[key]; ok && (!a.lossy || token == c.Token) {
		a.failf("attempt %d of %s began twice", c.Attempt, c.ID)
	}
	a.starts[key] = c.Token
}

func (a *checker) succeeded(o outcome) {
	a.wins[outcome{ID: o.ID, Attempt: o.Attempt, Token: o.Token}] = true
}
