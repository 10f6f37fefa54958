package promoter

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/job/keytemplate"
	"github.com/scheduler-service/scheduler/internal/queue"
)

// backlogAfter is how many executions of a tenant may wait in the pool before those
// that become due for it go there too: a hint would overtake them.
const backlogAfter = 16

// lanes are where hints would wait behind others. It is advice, and a little old.
type lanes struct {
	full map[queue.Lane]bool
	none bool // no hint can be sent at all
}

// seeLanes counts what waits in the lanes. Without an answer nothing is hinted,
// which costs an idle worker's distance between two looks.
func (p *Promoter) seeLanes(ctx context.Context) lanes {
	depths, err := p.c.Hints.Depth(ctx)
	l := lanes{full: map[queue.Lane]bool{}, none: err != nil}
	for lane, waiting := range depths {
		l.full[lane] = waiting >= queue.Window
	}
	return l
}

// remoteType is the type of the jobs that workers of tenants' own run, which get no hints.
const remoteType = "remote"

// callType is the type of the jobs that call a target and wait for its answer.
const callType = "http"

// takes says whether the hint of a job's run may be sent.
func (l lanes) takes(j *dueJob) bool {
	return j.jobType != remoteType && !l.none && !j.hasBacklog && !l.full[queue.LaneFor(j.policy.Priority)]
}

// announce decides of each run whether it is hinted or waits in the pool. What
// may not start yet is in the pool, where it is found when it may. A run that
// waits for a place or a key is never: it would be in the way of those that may
// start.
func (p *plan) announce(l lanes) {
	for i := range p.runs {
		r := &p.runs[i]
		r.hinted = !r.available.After(p.at) && l.takes(r.job)
		r.pooled = !r.hinted && r.gate == 0 && r.key() == ""
	}
}

// calls says whether workers are to be called: runs got no hint, and are in the pool or wait for a
// concurrency slot or key, which may be free.
func (p *plan) calls() bool {
	return slices.ContainsFunc(p.runs, func(r run) bool { return !r.hinted })
}

// key is the run's concurrency key; empty: none.
func (r run) key() string { return r.job.key(nil) }

// key is the concurrency key of a run of the job with these parameters.
func (j *dueJob) key(parameters json.RawMessage) string {
	return j.policy.KeyOf(keytemplate.Run{JobID: j.id, JobName: j.name, JobType: j.jobType, Config: j.config, Parameters: parameters})
}

// burst is what the runs have in common that are hinted in one go.
type burst struct {
	lane  queue.Lane
	calls bool // they are of callType; others may compute
}

// hints are the ids to hint. Tenants take turns: a hint names what stands side by
// side, and a tenant with one run is not in the last of them.
func (p *plan) hints() map[burst][]uuid.UUID {
	type line struct {
		burst
		tenant uuid.UUID
	}
	lines, order := map[line][]uuid.UUID{}, []line{}
	for _, r := range p.runs {
		if !r.hinted {
			continue
		}
		l := line{burst{queue.LaneFor(r.job.policy.Priority), r.job.jobType == callType}, r.job.tenant}
		if len(lines[l]) == 0 {
			order = append(order, l)
		}
		lines[l] = append(lines[l], r.id)
	}
	out := map[burst][]uuid.UUID{}
	for len(order) > 0 {
		left := order[:0]
		for _, l := range order {
			out[l.burst] = append(out[l.burst], lines[l][0])
			if lines[l] = lines[l][1:]; len(lines[l]) > 0 {
				left = append(left, l)
			}
		}
		order = left
	}
	return out
}
