package simulation

import (
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
)

// promoter is one of them: its loops, each step of which may be its last.
type promoter struct {
	process
	w        *world
	since    time.Time
	scanned  time.Time // when it looked without a lower bound
	late     *catchup
	redisGen int
}

func (p *promoter) boot() {
	p.since, p.scanned, p.late, p.redisGen = time.Time{}, time.Time{}, newCatchup(), p.w.redis.generation
	p.w.after(p.w.between(0, time.Second), &p.process, p.pass)
	p.w.after(p.w.between(0, time.Second), &p.process, p.sweep)
}

// pass is promoter.Pass: the claim, the decision, the write, the hints.
func (p *promoter) pass() {
	w, session := p.w, p.w.session()
	since := p.since
	if w.now.Sub(p.scanned) >= time.Second {
		p.scanned, since = w.now, time.Time{}
	}
	again := func(d time.Duration) { w.after(d, &p.process, p.pass) }
	w.send(&p.process, claimDueJobs{Session: session, Since: since}, timeout, func(a answer, ok bool) {
		if !ok {
			again(time.Second)
			return
		}
		at := a.At
		if len(a.due) == 0 {
			p.since = at.Add(-time.Second)
			w.rollBack(session)
			again(w.between(0, 2*time.Second))
			return
		}
		plan := newPlan(a.due, at, p.late)
		w.send(&p.process, writePromotion{Session: session, plan: plan}, timeout, func(_ answer, ok bool) {
			if !ok {
				again(time.Second)
				return
			}
			p.since = a.due[0].due.Add(-time.Second)
			w.after(0, &p.process, func() {
				again(5 * time.Millisecond)
				if hints := plan.hints(); w.redis.away && len(hints) > 0 {
					w.send(&p.process, poolExecutions{IDs: hints}, timeout, func(answer, bool) {})
				} else {
					w.redis.publish(w, hints, 0)
				}
			})
		})
	})
}

// sweep is maintenance.Sweep, and the end of pauses of ChangeStatus.
func (p *promoter) sweep() {
	w := p.w
	again := func() { w.after(w.between(900*time.Millisecond, 1100*time.Millisecond), &p.process, p.sweep) }
	ask := func(o op, then func(a answer)) {
		w.send(&p.process, o, timeout, func(a answer, ok bool) {
			if ok {
				then(a)
			} else {
				again()
			}
		})
	}
	ask(resumePausedJobs{}, func(answer) {
		ask(markDeadWorkers{}, func(answer) {
			ask(reassignExecutions{}, func(a answer) {
				var ids []uuid.UUID
				for _, v := range a.Verdicts {
					if v.Status == execution.Pending {
						ids = append(ids, v.ID)
					}
				}
				w.redis.publish(w, ids, 0)
				w.next(&p.process, a.Verdicts)
				o := poolLateExecutions{}
				switch {
				case w.redis.away:
					o.Ahead = 4 * time.Second
				case w.redis.generation != p.redisGen:
					p.redisGen, o.Ahead = w.redis.generation, 5*time.Second
				}
				ask(o, func(answer) { again() })
			})
		})
	})
}
