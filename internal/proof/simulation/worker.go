package simulation

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// worker is one of them: slots, claims, runs, outcomes.
type worker struct {
	process
	w       *world
	types   []string
	inc     *incarnation // nil: none
	free    int          // slots
	ended   []ended      // outcomes to write
	writing bool
	leaving bool
	placed  time.Time // when it looked for places
}

// incarnation is a lease and what runs under it.
type incarnation struct {
	id       uuid.UUID
	over     bool
	good     time.Time // when the last heartbeat that was answered was sent
	running  []*run
	unknown  []workerRun
	claiming []uuid.UUID // tokens of claims under way
}

// run is an attempt.
type run struct {
	claimed
	asked   time.Time // when the claim was sent
	stopped bool      // its end was asked for
	gone    bool      // its outcome is known, or nobody wants it
}

type ended struct {
	outcome
	inc *incarnation
	run *run
}

const slots = 3

func (k *worker) boot() {
	k.inc, k.free, k.ended, k.writing, k.leaving = nil, slots, nil, false, false
	k.w.after(k.w.between(0, time.Second), &k.process, k.incarnate)
	k.w.after(k.w.between(0, time.Second), &k.process, k.take)
}

func (k *worker) incarnate() {
	w := k.w
	inc := &incarnation{id: w.id(), good: w.now}
	w.send(&k.process, registerWorker{Worker: inc.id, Lease: lease, Types: k.types}, timeout, func(_ answer, ok bool) {
		if !ok {
			w.after(time.Second, &k.process, k.incarnate)
			return
		}
		k.inc = inc
		w.after(heartbeat, &k.process, func() { k.beat(inc) })
		w.after(0, &k.process, func() { k.fence(inc) })
	})
}

// fence ends the incarnation when no heartbeat was answered for too long.
func (k *worker) fence(inc *incarnation) {
	if inc.over {
		return
	}
	if left := fence - k.w.now.Sub(inc.good); left > 0 {
		k.w.after(left, &k.process, func() { k.fence(inc) })
		return
	}
	k.w.seen.fenced++
	k.lose(inc)
}

func (k *worker) beat(inc *incarnation) {
	if inc.over {
		return
	}
	w, sent := k.w, k.w.now
	again := func() { w.after(heartbeat, &k.process, func() { k.beat(inc) }) }
	w.send(&k.process, renewWorker{Worker: inc.id, Lease: lease}, heartbeat, func(a answer, ok bool) {
		switch {
		case inc.over:
		case !ok:
			again()
		case !a.Stands:
			k.lose(inc)
		default:
			inc.good = sent
			w.send(&k.process, listExecutionsOfWorker{Worker: inc.id}, heartbeat, func(a answer, ok bool) {
				if ok && !inc.over {
					k.compare(inc, a.Held)
				}
				again()
			})
		}
	})
}

// compare stops what is to be cancelled, and gives back what two heartbeats in
// a row found here without a run.
func (k *worker) compare(inc *incarnation, rows []workerRun) {
	var disowned, unknown []workerRun
	for _, r := range rows {
		here := inc.find(r.ID, r.Token)
		seen := slices.ContainsFunc(inc.unknown, func(u workerRun) bool { return u.ID == r.ID && u.Token == r.Token })
		switch {
		case here != nil:
			if r.Cancelling && !here.stopped {
				here.stopped = true
				k.w.after(k.w.between(0, 100*time.Millisecond), &k.process, func() { k.finish(inc, here, "USER_ERROR") })
			}
		case slices.Contains(inc.claiming, r.Token) && k.w.bug != givesBackClaims: // its run is about to begin
		case seen:
			disowned = append(disowned, r)
		default:
			unknown = append(unknown, r)
		}
	}
	inc.unknown = unknown
	k.release(disowned)
}

func (k *worker) release(rows []workerRun) {
	if len(rows) > 0 {
		k.w.send(&k.process, releaseExecutions{Rows: rows}, timeout, func(a answer, _ bool) { k.w.redis.publish(k.w, a.IDs, 0) })
	}
}

func (inc *incarnation) find(id, token uuid.UUID) *run {
	for _, r := range inc.running {
		if r.ID == id && r.Token == token {
			return r
		}
	}
	return nil
}

// lose ends an incarnation and what runs under it; the worker goes on under a
// new one.
func (k *worker) lose(inc *incarnation) {
	k.inc = nil
	k.endAll(inc)
	k.w.after(k.w.between(0, 100*time.Millisecond), &k.process, k.incarnate)
}

// endAll ends every run. One that had just succeeded is written all the same.
func (k *worker) endAll(inc *incarnation) {
	inc.over = true
	for _, r := range slices.Clone(inc.running) {
		switch {
		case r.gone: // its outcome is being written
		case k.w.oneIn(5):
			k.finish(inc, r, "")
		default:
			r.gone = true
			k.forget(inc, r)
		}
	}
}

func (k *worker) forget(inc *incarnation, r *run) {
	inc.running = slices.DeleteFunc(inc.running, func(o *run) bool { return o == r })
	k.free++
}

// take brings hints, or what a look at the database found, to a claim.
func (k *worker) take() {
	w := k.w
	again := func() { w.after(w.between(20*time.Millisecond, 700*time.Millisecond), &k.process, k.take) }
	inc := k.inc
	if inc == nil || k.free == 0 || k.leaving {
		again()
		return
	}
	if ids := w.redis.take(w, k.free); len(ids) > 0 {
		k.claim(inc, ids)
		again()
		return
	}
	look := func(o op) {
		w.send(&k.process, o, timeout, func(a answer, ok bool) {
			if found := a.IDs; ok && k.free > 0 && len(found) > 0 && k.inc == inc {
				w.random.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
				k.claim(inc, found[:min(k.free, len(found))])
			}
			again()
		})
	}
	switch {
	case w.now.Sub(k.placed) > time.Second/2:
		k.placed = w.now
		look(listUnblockedExecutions{Types: k.types, Limit: w.limit})
	case w.redis.away:
		w.send(&k.process, poolLateExecutions{Ahead: 5 * time.Second}, timeout, func(answer, bool) { look(listPooledExecutions{Types: k.types, Limit: w.limit}) })
	default:
		look(listPooledExecutions{Types: k.types, Limit: w.limit})
	}
}

// claim asks until it is answered or the incarnation has ended, with one token.
func (k *worker) claim(inc *incarnation, ids []uuid.UUID) {
	k.free -= len(ids)
	token := k.w.id()
	inc.claiming = append(inc.claiming, token)
	k.claimAgain(inc, token, ids)
}

func (k *worker) claimAgain(inc *incarnation, token uuid.UUID, ids []uuid.UUID) {
	if inc.over {
		k.free += len(ids)
		return
	}
	again := func() {
		k.w.after(k.w.between(250*time.Millisecond, 2*time.Second), &k.process, func() { k.claimAgain(inc, token, ids) })
	}
	ask := func(o op, then func(a answer)) {
		k.w.send(&k.process, o, timeout, func(a answer, ok bool) {
			if ok {
				then(a)
			} else {
				again()
			}
		})
	}
	sent := k.w.now
	ask(claimExecutions{Worker: inc.id, Token: token, IDs: ids, Types: k.types, Limit: k.w.limit}, func(first answer) {
		if len(first.Claims) == len(ids) {
			k.start(inc, token, sent, len(ids), first.Claims)
			return
		}
		ask(listUnclaimedExecutions{IDs: ids, Types: k.types}, func(left answer) {
			rest := func(answer) {
				if len(left.IDs) == 0 {
					k.start(inc, token, sent, len(ids), first.Claims)
					return
				}
				session := k.w.session()
				ask(lockJobs{Session: session, Jobs: left.SlotJobs}, func(answer) {
					ask(claimLimitedExecutions{Session: session, Worker: inc.id, Token: token, IDs: ids, Types: k.types, Limit: k.w.limit}, func(a answer) {
						k.start(inc, token, sent, len(ids), slices.Concat(first.Claims, a.Claims))
					})
				})
			}
			if len(left.Unpooled) == 0 {
				rest(answer{})
				return
			}
			ask(poolExecutions{IDs: left.Unpooled}, rest)
		})
	})
}

// leave drains: what runs is released, the lease ends, a new process comes.
func (k *worker) leave() {
	inc := k.inc
	if inc == nil || k.leaving {
		return
	}
	k.leaving = true
	k.w.seen.drained++
	var rows []workerRun
	for _, r := range inc.running {
		if !r.gone {
			rows = append(rows, workerRun{ID: r.ID, Token: r.Token})
		}
	}
	k.endAll(inc)
	k.release(rows)
	k.w.after(k.w.between(0, 3*time.Second), &k.process, func() {
		k.w.send(&k.process, retireWorker{Worker: inc.id}, heartbeat, func(answer, bool) {
			k.life++
			k.boot()
		})
	})
}
