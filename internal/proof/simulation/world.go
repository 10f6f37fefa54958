package simulation

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// setup says what a world is like.
type setup struct {
	seed     uint64
	failover bool // to an asynchronous standby, which loses the last commits
	bug      bug
	history  *strings.Builder // nil: none is written
}

// world is an installation: the processes, what is under way between them and
// the database, and one seeded source of chance that decides everything.
type world struct {
	setup

	random    *rand.Rand
	now       time.Time
	events    []event
	db        *tables
	downUntil time.Time // the database is away
	sessions  int
	open      map[int]transaction // by session
	standby   *standby
	redis     redis
	audit     *checker
	faulty    bool // faults are still made
	odds      odds
	limit     int // of runs at once of tenants that have none of their own; 0: none
	workers   []*worker
	promoters []*promoter
	users     []*user // one of each tenant
	operator  process
	steps     int
	seen      tally
}

// odds are how often a message suffers, of a thousand.
type odds struct {
	lost, unanswered, late int
	latency                time.Duration // of an ordinary one, at most
}

// transaction is one that goes on over several messages; all of it happens at
// the time of its beginning.
type transaction struct {
	who   *process
	began time.Time
}

// standby is what a failover brings back.
type standby struct {
	db    *tables
	audit *checker
}

// process is what is killed and frozen. A life ends with a kill; what an
// earlier life had in mind does not happen.
type process struct {
	name  string
	life  int
	thaws int64 // nanoseconds since the epoch; frozen until then
}

// event is the next step of something: of a process, or of the world outside
// when who is nil.
type event struct {
	at   int64 // nanoseconds since the epoch
	who  *process
	life int
	run  func()
	off  *bool // it is not to happen any more
}

// freeze lets nothing of a process happen for so long.
func (w *world) freeze(who *process, d time.Duration) {
	who.thaws = int64(w.now.Sub(epoch) + d)
	w.logf("%s freezes for %v", who.name, d)
}

// The bounds of a run: faults for so long, and for so long after the last one
// until everything must be finished.
const (
	troubled  = 40 * time.Second
	patience  = 15 * time.Minute // the longest line of one key and a limit of one took 5
	timeout   = 5 * time.Second  // of a statement, and of an idle transaction
	latest    = 7 * time.Second  // that a message may arrive
	heartbeat = 2 * time.Second
	fence     = 7 * time.Second
	lease     = 10 * time.Second
)

func (w *world) logf(format string, args ...any) {
	if w.history != nil {
		fmt.Fprintf(w.history, "%9.3f  %s\n", w.now.Sub(epoch).Seconds(), fmt.Sprintf(format, args...))
	}
}

func (w *world) intn(n int) int { return w.random.IntN(n) }

// between is a random distance.
func (w *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.random.Int64N(int64(high-low+1))).Truncate(time.Microsecond)
}

// oneIn is true once in so many times, on average.
func (w *world) oneIn(n int) bool { return w.random.IntN(n) == 0 }

func (w *world) id() (id uuid.UUID) {
	for i := 0; i < 16; i += 8 {
		n := w.random.Uint64()
		for k := range 8 {
			id[i+k] = byte(n >> (8 * k))
		}
	}
	return id
}

// after has a step of a process happen in its present life.
func (w *world) after(d time.Duration, who *process, run func()) {
	e := event{at: int64(w.now.Sub(epoch) + d), who: who, run: run}
	if who != nil {
		e.life = who.life
	}
	w.events = append(w.events, e)
}

// step picks one of the events that may happen now, any of them; if there is
// none, time goes on to the next.
func (w *world) step() {
	w.steps++
	for {
		if chosen, next := w.choose(int64(w.now.Sub(epoch))); chosen >= 0 {
			e := w.events[chosen]
			w.events = slices.Delete(w.events, chosen, chosen+1)
			e.run()
			w.now = w.now.Add(time.Duration(w.intn(2000)) * time.Microsecond)
			return
		} else if w.now = epoch.Add(time.Duration(next)); next == math.MaxInt64 {
			panic("model: nothing happens any more")
		}
	}
}

// choose picks an event that may happen now, and says when the next may if
// there is none. It drops those that do not happen any more.
func (w *world) choose(now int64) (chosen int, next int64) {
	kept, ready := 0, 0
	chosen, next = -1, math.MaxInt64
	for i := range w.events {
		e := &w.events[i]
		if e.off != nil && *e.off || e.who != nil && e.life != e.who.life {
			continue
		}
		at := e.at
		if e.who != nil {
			at = max(at, e.who.thaws)
		}
		if at > now {
			next = min(next, at)
		} else if ready++; w.intn(ready) == 0 {
			chosen = kept
		}
		if kept != i {
			w.events[kept] = *e
		}
		kept++
	}
	clear(w.events[kept:])
	w.events = w.events[:kept]
	return chosen, next
}

// send has the database carry out an operation, now or later or never, and
// reply called with the answer, or with false where there is none in time:
// then nobody knows whether it was carried out.
func (w *world) send(who *process, o op, limit time.Duration, reply func(a answer, ok bool)) {
	over := new(bool)
	once := func(a answer, ok bool) {
		if !*over {
			*over = true
			reply(a, ok)
		}
	}
	w.after(limit, who, func() { once(answer{}, false) })
	w.events[len(w.events)-1].off = over
	delay, back, lost, unanswered := w.between(0, w.odds.latency), w.between(0, w.odds.latency), false, false
	if w.faulty {
		lost, unanswered = w.intn(1000) < w.odds.lost, w.intn(1000) < w.odds.unanswered
		if w.intn(1000) < w.odds.late {
			delay = w.between(0, latest)
		}
		if w.intn(1000) < w.odds.late {
			back = w.between(0, 8*time.Second)
		}
	}
	if lost {
		w.logf("%s: %s (never arrives)", who.name, shown{o})
		return
	}
	life := who.life
	w.after(delay, nil, func() {
		w.carryOut(who, o, w.now, func(a answer, ok bool) {
			if unanswered || life != who.life {
				return
			}
			w.after(back, who, func() { once(a, ok) })
		})
	})
}

// carryOut is the moment of an operation in the database, where it arrived at
// a time that is its now() although it may have to wait for a lock.
func (w *world) carryOut(who *process, o op, at time.Time, reply func(a answer, ok bool)) {
	if w.now.Before(w.downUntil) || w.blocked(o) && w.now.Sub(at) > timeout || !w.inTransaction(o) {
		w.logf("%s: %s (not carried out)", who.name, shown{o})
		reply(answer{}, false)
		return
	}
	if w.blocked(o) {
		w.after(w.between(time.Millisecond, 10*time.Millisecond), nil, func() { w.carryOut(who, o, at, reply) })
		return
	}
	if gated, ok := o.(claimLimitedExecutions); ok {
		at = w.open[gated.Session].began
	}
	a := o.do(w.db, at)
	w.logf("%s: %s -> %s", who.name, shown{o}, shown{a})
	w.trackSession(transaction{who, at}, o)
	w.audit.after(w, o, a, at)
	reply(a, true)
}

// blocked says that an operation has to wait for a job's lock.
func (w *world) blocked(o op) bool {
	held := func(id uuid.UUID) bool { j := w.db.job(id); return j != nil && j.lock != 0 }
	switch o := o.(type) {
	case lockJobs:
		return w.bug != countsBeforeLock && slices.ContainsFunc(o.Jobs, held)
	case pauseJob:
		return held(o.Job)
	case resumeJob:
		return held(o.Job)
	case deleteJob:
		return held(o.Job)
	case triggerJob:
		return held(o.Job)
	}
	return false
}

// inTransaction says that the transaction that an operation belongs to, if it
// belongs to one, is still there.
func (w *world) inTransaction(o op) bool {
	switch o := o.(type) {
	case writePromotion:
		return w.open[o.Session].who != nil
	case claimLimitedExecutions:
		return w.open[o.Session].who != nil
	}
	return true
}

// trackSession begins and ends transactions. One that is left alone is rolled
// back after the time-out, and soon when its process is killed.
func (w *world) trackSession(t transaction, o op) {
	session := 0
	switch o := o.(type) {
	case claimDueJobs:
		session = o.Session
	case lockJobs:
		session = o.Session
	case writePromotion:
		delete(w.open, o.Session)
		return
	case claimLimitedExecutions:
		delete(w.open, o.Session)
		return
	default:
		return
	}
	w.open[session] = t
	w.after(timeout, nil, func() { w.rollBack(session) })
}

func (w *world) rollBack(session int) {
	if w.open[session].who != nil {
		delete(w.open, session)
		w.db.unlock(session)
	}
}

// next hints whose turn it is when runs ended.
func (w *world) next(who *process, ends []verdict) {
	o := listNextExecutions{Limit: w.limit}
	for _, v := range ends {
		if (v.Backlogged || v.Lost) && !slices.Contains(o.Tenants, v.Tenant) {
			o.Tenants = append(o.Tenants, v.Tenant)
		}
		if v.Key != "" {
			o.Keys = append(o.Keys, lockKey{v.Tenant, v.Key})
		}
	}
	if len(o.Tenants)+len(o.Keys) > 0 {
		w.send(who, o, timeout, func(a answer, _ bool) { w.redis.publish(w, a.IDs, 0) })
	}
}

func (w *world) session() int {
	w.sessions++
	return w.sessions
}
