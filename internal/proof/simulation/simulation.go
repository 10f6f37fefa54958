// Package simulation is the protocol as step functions over tables in memory, and
// the proof that seeded faults do not break it.
//
// It owns the operations of the protocol, each equal to one statement or
// transaction of db/queries and compared with PostgreSQL by the contract
// tests; promoters, workers and a tenant that send them, step by step; a
// scheduler that picks the next step, loses messages and answers, kills and
// freezes, by a seed; and the checks of what must hold after every step. It
// refuses to be used by any process: it exists for its tests. Everything it
// cannot show is what two statements do to each other while both are under
// way: here each happens at one moment.
package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
)

// types are the job types that there are in a model.
func types() []string { return []string{"function", "http"} }

// tenantID is a tenant, counted from 0.
func tenantID(n int) uuid.UUID { return uuid.UUID{0: 0x7e, 15: byte(n + 1)} }

// noLimit is that of a tenant that has none of its own.
func noLimit() counts { return counts{-1, -1, -1} }

// epoch is when every run begins.
var epoch = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)

// tally counts what happened, so that a test can ask whether enough did.
type tally struct {
	steps, operations, promoted, claimed, started, completed, stale, reclaimed, released, fenced, drained, killed, failovers int
}

func (t *tally) add(o tally) {
	for _, pair := range []struct {
		to *int
		n  int
	}{
		{&t.steps, o.steps},
		{&t.operations, o.operations},
		{&t.promoted, o.promoted},
		{&t.claimed, o.claimed},
		{&t.started, o.started},
		{&t.completed, o.completed},
		{&t.stale, o.stale},
		{&t.reclaimed, o.reclaimed},
		{&t.released, o.released},
		{&t.fenced, o.fenced},
		{&t.drained, o.drained},
		{&t.killed, o.killed},
		{&t.failovers, o.failovers},
	} {
		*pair.to += pair.n
	}
}

// run lives through one seed: a minute of faults, then peace until everything
// has ended. The violation is empty when all promises held.
func (s setup) run() (violation string, seen tally) {
	w := s.world()
	for w.now.Before(epoch.Add(troubled)) && w.audit.violation == "" {
		w.step()
	}
	w.heal()
	w.settle()
	w.seen.steps = w.steps
	return w.audit.violation, w.seen
}

func (s setup) world() *world {
	w := &world{
		setup: s, random: rand.New(rand.NewPCG(s.seed, 0)), now: epoch, db: &tables{bug: s.bug}, open: map[int]transaction{},
		audit: newChecker(s.failover), faulty: true,
	}
	rate := []int{0, 5, 30, 100}
	w.odds = odds{
		lost: rate[w.intn(4)], unanswered: rate[w.intn(4)], late: rate[w.intn(3)],
		latency: []time.Duration{3 * time.Millisecond, 30 * time.Millisecond, 300 * time.Millisecond}[w.intn(3)],
	}
	w.limit = []int{0, 0, 2, 3}[w.intn(4)]
	w.audit.limit = w.limit
	for i := range 1 + w.intn(3) {
		id := tenantID(i)
		w.db.tenants = append(w.db.tenants, tenantRow{ID: id, Most: noLimit()})
		w.audit.limits[id] = noLimit()
		w.users = append(w.users, &user{process: process{name: fmt.Sprint("tenant ", i)}, w: w, id: id})
	}
	fleet := w.fleet()
	for i := range 2 {
		w.promoters = append(w.promoters, &promoter{process: process{name: fmt.Sprint("promoter ", i)}, w: w})
		w.workers = append(w.workers, &worker{process: process{name: fmt.Sprint("worker ", i)}, w: w, types: fleet[i]})
		w.promoters[i].boot()
		w.workers[i].boot()
	}
	for _, u := range w.users {
		u.boot()
	}
	w.operator.name = "operator"
	w.after(w.between(0, 10*time.Second), &w.operator, w.limitSomebody)
	w.after(w.between(0, 5*time.Second), nil, w.trouble)
	if s.failover {
		w.after(0, nil, w.replicate)
	}
	return w
}

// fleet is what the workers run: each all, one a part, or each another part.
func (w *world) fleet() [2][]string {
	all := types()
	return [][2][]string{{all, all}, {all, all}, {all, all[:1]}, {all[:1], all[1:]}}[w.intn(4)]
}

// heal ends every fault; the tenant pauses what is left of the schedules.
func (w *world) heal() {
	w.logf("no faults from here on")
	w.faulty, w.downUntil, w.redis.away = false, time.Time{}, false
	for _, p := range w.promoters {
		p.thaws = 0
	}
	for _, k := range w.workers {
		k.thaws = 0
	}
	w.operator.life++
	for _, u := range w.users {
		u.life++
		// Requests may still be under way, also an end of a pause.
		w.after(latest+timeout, &u.process, u.stop)
	}
}

// settle goes on until nothing is active; every schedule is stopped, and then
// everything must come to an end by itself.
func (w *world) settle() {
	until := w.now.Add(patience)
	for w.audit.violation == "" && (len(w.db.active) > 0 || slices.ContainsFunc(w.users, func(u *user) bool { return !u.stopped })) {
		if w.now.After(until) {
			for _, r := range w.db.active {
				w.audit.failf("execution %s is still %s long after the last fault", r.ID, r.Status)
			}
			w.audit.failf("a job still fires long after the last fault")
			return
		}
		w.step()
	}
	for i := range w.db.jobs {
		if j := &w.db.jobs[i]; !j.Deleted {
			w.audit.covered(w.db, j.ID)
		}
	}
}
