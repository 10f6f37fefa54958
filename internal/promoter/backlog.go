package promoter

import (
	"time"

	"github.com/google/uuid"
)

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
		if found, ok := b.of(&job); ok && len(steps[i].times) > 0 {
			steps[i].hold(len(steps[i].times), found.limit, at.Add(backfillEvery))
		}
	}
}
