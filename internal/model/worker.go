package model

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
)

// worker is one of them: slots, claims, runs, outcomes.
type worker struct {
	process
	w       *world
	inc     *incarnation // nil: none
	free    int          // slots
	ended   []ended      // outcomes to write
	writing bool
	leaving bool
	looked  time.Time // for what hints did not bring
}

// incarnation is a lease and what runs under it.
type incarnation struct {
	id       uuid.UUID
	over     bool
	good     time.Time // when the last heartbeat that was answered was sent
	running  []*run
	unknown  []heldRow
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
	w.send(&k.process, registerWorker{Worker: inc.id, Lease: lease}, timeout, func(_ answer, ok bool) {
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
			w.send(&k.process, listHeldExecutions{Worker: inc.id}, heartbeat, func(a answer, ok bool) {
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
func (k *worker) compare(inc *incarnation, rows []heldRow) {
	var disowned, unknown []heldRow
	for _, r := range rows {
		here := inc.find(r.ID, r.Token)
		seen := slices.ContainsFunc(inc.unknown, func(u heldRow) bool { return u.ID == r.ID && u.Token == r.Token })
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
	k.handBack(disowned)
}

func (k *worker) handBack(rows []heldRow) {
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
	ids := w.redis.take(w, k.free)
	stray := w.now.Sub(k.looked) > time.Second
	switch {
	case len(ids) > 0:
		k.claim(inc, ids)
		again()
	case w.redis.away || stray:
		o := listClaimableExecutions{}
		if k.looked = w.now; !w.redis.away {
			o.Waited = time.Second
		}
		w.send(&k.process, o, timeout, func(a answer, ok bool) {
			if found := a.IDs; ok && k.free > 0 && len(found) > 0 && k.inc == inc {
				w.random.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
				k.claim(inc, found[:min(k.free, len(found))])
			}
			again()
		})
	default:
		again()
	}
}

// claim asks until it is answered or the incarnation is over, with one token.
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
	ask(claimExecutions{Worker: inc.id, Token: token, IDs: ids}, func(first answer) {
		if len(first.Claims) == len(ids) {
			k.start(inc, token, sent, len(ids), first.Claims)
			return
		}
		ask(listGatedJobs{IDs: ids}, func(a answer) {
			if len(a.IDs) == 0 {
				k.start(inc, token, sent, len(ids), first.Claims)
				return
			}
			session := k.w.session()
			ask(lockJobs{Session: session, Jobs: a.IDs}, func(answer) {
				ask(claimGatedExecutions{Session: session, Worker: inc.id, Token: token, IDs: ids}, func(a answer) {
					k.start(inc, token, sent, len(ids), slices.Concat(first.Claims, a.Claims))
				})
			})
		})
	})
}

// start begins what was claimed, and gives the other slots back. What was
// claimed so long ago that its deadline is near is handed back instead.
func (k *worker) start(inc *incarnation, token uuid.UUID, sent time.Time, asked int, claims []claimed) {
	inc.claiming = slices.DeleteFunc(inc.claiming, func(t uuid.UUID) bool { return t == token })
	k.free += asked - len(claims)
	var late []heldRow
	for _, c := range claims {
		r := &run{claimed: c, asked: sent}
		if left := k.left(r); inc.over || left <= 0 {
			k.free++
			if !inc.over {
				late = append(late, heldRow{ID: c.ID, Token: c.Token})
			}
			continue
		}
		k.alone(r)
		inc.running = append(inc.running, r)
		k.w.audit.started(k.w, c)
		k.begin(inc, r)
	}
	k.handBack(late)
}

// begin draws how a run goes: it ends at its time-out, or a little later if it
// does not listen.
func (k *worker) begin(inc *incarnation, r *run) {
	took := k.w.between(10*time.Millisecond, 3*time.Second)
	kind := ""
	switch k.w.intn(20) {
	case 0:
		took = time.Hour // hangs
	case 1, 2, 3, 4:
		kind = "NETWORK_ERROR"
	case 5:
		kind = "VALIDATION_ERROR"
	}
	if limit := k.left(r) + k.w.between(0, grace); took > limit {
		took, kind = limit, "TIMEOUT"
	}
	k.w.after(took, &k.process, func() { k.finish(inc, r, kind) })
}

// grace is how long a run may go on after its time-out, until it is given up.
const grace = 2 * time.Second

// left is how long a run may take: its time-out, and less where so much of the
// time to its deadline, 5 s later, is over that it could outlive it.
func (k *worker) left(r *run) time.Duration {
	limit := 5 * time.Second
	if j := k.w.audit.jobs[r.Job]; j != nil {
		limit = time.Duration(j.spec.Timeout) * time.Second
	}
	if k.w.bug == countsFromAnswer {
		return limit
	}
	return min(limit, limit+5*time.Second-grace-k.w.now.Sub(r.asked))
}

// alone asks that nobody runs the same execution, who could know better: who is
// neither frozen nor without a lease.
func (k *worker) alone(r *run) {
	for _, other := range k.w.workers {
		inc := other.inc
		if inc == nil || inc.over || other.thaws > int64(k.w.now.Sub(epoch)) || k.w.failover {
			continue
		}
		for _, o := range inc.running {
			if o.ID == r.ID && !o.gone {
				k.w.audit.failf("attempt %d of %s begins while attempt %d goes on at %s", r.Attempt, r.ID, o.Attempt, other.name)
			}
		}
	}
}

// finish is the end of a run at its target; no error means that it succeeded.
func (k *worker) finish(inc *incarnation, r *run, kind string) {
	if r.gone {
		return
	}
	r.gone = true
	o := outcome{ID: r.ID, Token: r.Token, Attempt: r.Attempt, Succeeded: kind == "", Error: kind, Retry: -1}
	if o.Succeeded {
		k.w.audit.succeeded(o)
	} else if inc.over {
		k.forget(inc, r) // it failed because it was ended
		return
	} else if rule := k.retry(r.Job); rule.Retries(kind) && r.Attempt < r.Max {
		o.Retry = rule.Backoff(r.Attempt, k.w.random.Float64()).Truncate(time.Millisecond)
	}
	k.ended = append(k.ended, ended{outcome: o, inc: inc, run: r})
	if !k.writing {
		k.writing = true
		k.w.after(k.w.between(0, 20*time.Millisecond), &k.process, func() {
			batch := k.ended
			k.ended = nil
			k.write(batch)
		})
	}
}

// retry is the rule of the version that runs.
func (k *worker) retry(of uuid.UUID) (rule job.Retry) {
	if j := k.w.audit.jobs[of]; j != nil {
		rule = j.spec.Retry
	}
	return rule
}

// write sends outcomes until each is accepted or refused.
func (k *worker) write(batch []ended) {
	outcomes := make([]outcome, len(batch))
	for i, e := range batch {
		outcomes[i] = e.outcome
	}
	w := k.w
	w.send(&k.process, completeExecutions{Outcomes: outcomes}, timeout, func(a answer, ok bool) {
		if !ok {
			w.after(w.between(100*time.Millisecond, 2*time.Second), &k.process, func() { k.write(batch) })
			return
		}
		for _, e := range batch {
			i := slices.IndexFunc(a.Verdicts, func(v verdict) bool { return v.ID == e.ID })
			if i < 0 {
				w.seen.stale++
			} else if v := a.Verdicts[i]; v.Status == execution.Retrying {
				w.redis.publish(w, []uuid.UUID{e.ID}, e.Retry)
			} else {
				w.redis.publish(w, v.Next, 0)
			}
			k.forget(e.inc, e.run)
		}
		if k.writing = len(k.ended) > 0; k.writing {
			rest := k.ended
			k.ended = nil
			k.write(rest)
		}
	})
}

// leave drains: what runs is handed back, the lease ends, a new process comes.
func (k *worker) leave() {
	inc := k.inc
	if inc == nil || k.leaving {
		return
	}
	k.leaving = true
	k.w.seen.drained++
	var rows []heldRow
	for _, r := range inc.running {
		if !r.gone {
			rows = append(rows, heldRow{ID: r.ID, Token: r.Token})
		}
	}
	k.endAll(inc)
	k.handBack(rows)
	k.w.after(k.w.between(0, 3*time.Second), &k.process, func() {
		k.w.send(&k.process, retireWorker{Worker: inc.id}, heartbeat, func(answer, bool) {
			k.life++
			k.boot()
		})
	})
}
