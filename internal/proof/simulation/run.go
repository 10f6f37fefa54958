package simulation

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/job"
)

// start begins what was claimed, and frees the other slots. A run
// claimed so long ago that its deadline is near is released instead.
func (k *worker) start(inc *incarnation, token uuid.UUID, sent time.Time, asked int, claims []claimed) {
	inc.claiming = slices.DeleteFunc(inc.claiming, func(t uuid.UUID) bool { return t == token })
	k.free += asked - len(claims)
	var late []workerRun
	for _, c := range claims {
		r := &run{claimed: c, asked: sent}
		if left := k.left(r); inc.over || left <= 0 {
			k.free++
			if !inc.over {
				late = append(late, workerRun{ID: c.ID, Token: c.Token})
			}
			continue
		}
		k.alone(r)
		inc.running = append(inc.running, r)
		k.w.audit.started(k.w, c)
		k.begin(inc, r)
	}
	k.release(late)
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
			} else {
				w.redis.publish(w, a.Verdicts[i].Next, 0)
			}
			k.forget(e.inc, e.run)
		}
		w.next(&k.process, a.Verdicts)
		if k.writing = len(k.ended) > 0; k.writing {
			rest := k.ended
			k.ended = nil
			k.write(rest)
		}
	})
}
