package promoter

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
)

const (
	// countBudget is how long a pass counts, and countEvery the distance of two: a
	// fifth of one connection, whatever waits. So 500,000 waiting executions are
	// counted each second, and of 10 million a number is 20 s old.
	countBudget = 200 * time.Millisecond
	countEvery  = time.Second
	// countFrom is how many must wait for a number to be kept.
	countFrom = 500
	// countTenants is how many tenants one statement counts, at most; fewer where
	// that takes long.
	countTenants = 64
)

// waitingCount is where the counting is.
type waitingCount struct {
	after   uuid.UUID
	tenants int32
}

// CountWaiting goes on counting what waits, of tenants and jobs that have much,
// for a fifth of a second at most: admissions compare the numbers with the limits.
// One promoter at a time does so. It says whether all tenants were counted.
func (p *Promoter) CountWaiting(ctx context.Context) (all bool, err error) {
	c := &p.counting
	for began := clock.Start(); began.Elapsed() < countBudget; {
		mark := clock.Start()
		if c.after, err = p.store.countWaiting(ctx, *c, p.Backlog); err != nil {
			c.tenants = max(1, c.tenants/2)
			return false, err
		}
		switch took := mark.Elapsed(); {
		case took > countBudget:
			c.tenants = max(1, c.tenants/2)
		case took < countBudget/8:
			c.tenants = min(countTenants, 2*c.tenants)
		}
		if c.after == uuid.Nil {
			return true, nil
		}
	}
	return false, nil
}

// backlogOf is a job of which executions wait, or (the nil id) a whole tenant.
type backlogOf struct{ tenant, job uuid.UUID }

// full is a limit that is met.
type full struct {
	limit string // its name in the contract
	why   string // for people
}

// backlogs are those that are full.
type backlogs map[backlogOf]full

// of is the limit that lets nothing more of a job wait.
func (b backlogs) of(j *dueJob) (full, bool) {
	if found, ok := b[backlogOf{j.tenant, j.id}]; ok {
		return found, true
	}
	found, ok := b[backlogOf{tenant: j.tenant}]
	return found, ok
}

// refuse skips what a plan makes where as many wait as may, unless it cancels
// what waits.
func (p *plan) refuse(full backlogs) {
	if len(full) == 0 {
		return
	}
	cancels := map[*dueJob]bool{}
	for _, j := range p.cancels {
		cancels[j] = true
	}
	p.cut(func(r run) string {
		if found, ok := full.of(r.job); ok && !cancels[r.job] {
			return found.why
		}
		return ""
	})
}

// hold has backfills make nothing where as many wait as may.
func (b backlogs) hold(steps []backfillStep, at time.Time) {
	for i := range steps {
		job := steps[i].job
		if found, ok := b.of(&job); ok && len(steps[i].instants) > 0 {
			steps[i].hold(len(steps[i].instants), found.limit, at.Add(backfillEvery))
		}
	}
}
