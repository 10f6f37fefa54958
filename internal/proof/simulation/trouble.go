package simulation

import (
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
)

// trouble is the next fault, and the one after it.
func (w *world) trouble() {
	if !w.faulty {
		return
	}
	k, p := w.workers[w.intn(len(w.workers))], w.promoters[w.intn(len(w.promoters))]
	switch w.intn(10) {
	case 0, 1:
		w.kill(&k.process, k.boot)
	case 2:
		w.kill(&p.process, p.boot)
	case 3, 4:
		w.freeze(&k.process, w.between(time.Second, 20*time.Second))
	case 5:
		w.freeze(&p.process, w.between(time.Second, 10*time.Second))
	case 6:
		w.logf("redis is wiped")
		w.redis.wipe()
	case 7:
		w.logf("redis is away")
		w.redis.away = true
		w.after(w.between(time.Second, 10*time.Second), nil, func() { w.redis.away = false })
	case 8:
		w.downUntil = w.now.Add(w.between(100*time.Millisecond, 12*time.Second))
		w.logf("the database is away until %.3f", w.downUntil.Sub(epoch).Seconds())
		w.dropSessions()
	default:
		k.leave()
	}
	if w.failover && w.oneIn(3) {
		w.failOver()
	}
	w.after(w.between(500*time.Millisecond, 8*time.Second), nil, w.trouble)
}

// kill ends a process at once; what it sent goes on. Another takes its place.
func (w *world) kill(who *process, boot func()) {
	w.logf("%s is killed", who.name)
	w.seen.killed++
	who.life++
	w.freeze(who, w.between(0, 5*time.Second)) // until it is started again
	for _, session := range slices.Sorted(maps.Keys(w.open)) {
		if w.open[session].who == who {
			w.after(time.Duration(session%5)*20*time.Millisecond, nil, func() { w.rollBack(session) })
		}
	}
	boot()
}

// limitSomebody is the platform that changes what a tenant may run at once.
func (w *world) limitSomebody() {
	most := noLimit()
	for _, of := range []*int{&most.All, &most.Function, &most.HTTP} {
		if w.oneIn(3) {
			*of = 1 + w.intn(3)
		}
	}
	w.send(&w.operator, setLimits{Tenant: w.users[w.intn(len(w.users))].id, Most: most}, timeout, func(answer, bool) {})
	w.after(w.between(2*time.Second, 20*time.Second), &w.operator, w.limitSomebody)
}

func (w *world) dropSessions() {
	for session := range w.open {
		w.rollBack(session)
	}
}

// replicate has the standby catch up now and then.
func (w *world) replicate() {
	w.standby = &standby{db: w.db.clone(), audit: w.audit.clone()}
	w.after(w.between(0, 2*time.Second), nil, w.replicate)
}

// failOver goes on from the standby: commits since then never happened.
func (w *world) failOver() {
	w.logf("the standby takes over")
	w.seen.failovers++
	w.dropSessions()
	w.db, w.audit = w.standby.db.clone(), w.standby.audit.clone()
	for _, u := range w.users {
		u.forget(w.db)
	}
}

// user is a tenant who makes jobs and changes his mind.
type user struct {
	process
	w       *world
	id      uuid.UUID
	jobs    []uuid.UUID
	stopped bool
}

func (u *user) boot() {
	for range 1 + u.w.intn(3) {
		u.create()
	}
	u.w.after(u.w.between(0, 6*time.Second), &u.process, u.act)
}

func (u *user) create() {
	id := u.w.id()
	u.jobs = append(u.jobs, id)
	u.w.send(&u.process, createJob{Tenant: u.id, Job: id, Spec: drawSpec(u.w.intn)}, timeout, func(answer, bool) {})
}

func (u *user) act() {
	w, of := u.w, u.jobs[u.w.intn(len(u.jobs))]
	if other := w.users[w.intn(len(w.users))]; w.oneIn(6) {
		of = other.jobs[w.intn(len(other.jobs))] // if it is another's, he must not reach it
	}
	var o op
	switch w.intn(12) {
	case 0, 1, 2, 3:
		o = triggerJob{Tenant: u.id, Job: of, ID: execution.RequestedID(of, w.id(), w.now, nil)}
	case 4, 5:
		p := pauseJob{Tenant: u.id, Job: of}
		if w.oneIn(2) {
			p.Until = w.now.Add(w.between(time.Second, 10*time.Second))
		}
		o = p
	case 6, 7, 8:
		policies := []job.MisfirePolicy{"", job.MisfireSkip, job.FireOnce, job.FireAll}
		o = resumeJob{Tenant: u.id, Job: of, Missed: policies[w.intn(len(policies))]}
	case 9:
		o = deleteJob{Tenant: u.id, Job: of}
	default:
		if len(u.jobs) < 5 {
			u.create()
		}
	}
	next := func(a answer, ok bool) {
		if t, made := o.(triggerJob); made && ok && a.Refused == "" {
			w.redis.publish(w, []uuid.UUID{t.ID}, 0)
		}
		w.after(w.between(500*time.Millisecond, 8*time.Second), &u.process, u.act)
	}
	if o == nil {
		next(answer{}, false)
		return
	}
	w.send(&u.process, o, timeout, next)
}

// stop pauses every job that the database knows, until none fires any more.
func (u *user) stop() {
	fires := func(j jobRow) bool { return j.tenant == u.id && fires(j) }
	if u.stopped = !slices.ContainsFunc(u.w.db.jobs, fires); u.stopped {
		return
	}
	for _, j := range u.w.db.jobs {
		if fires(j) {
			u.w.send(&u.process, pauseJob{Tenant: u.id, Job: j.ID}, timeout, func(answer, bool) {})
		}
	}
	u.w.after(time.Second, &u.process, u.stop)
}

func fires(j jobRow) bool {
	return j.Status == job.Active || j.Status == job.Paused && !j.Until.IsZero()
}

// forget drops what the database forgot.
func (u *user) forget(t *tables) {
	u.jobs = slices.DeleteFunc(u.jobs, func(id uuid.UUID) bool { return t.job(id) == nil })
	if len(u.jobs) == 0 {
		u.create()
	}
}
