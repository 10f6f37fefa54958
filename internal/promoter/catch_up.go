package promoter

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// Why scheduled times are missed.
const (
	misfireReason = "due while no promoter could promote it; the misfire policy does not run it any more"
	pausedReason  = "due while the job was paused"
)

// dueTimes is what a job catches up: its stored scheduled time, and those after it up
// to now, as its misfire policy decides.
type dueTimes struct {
	job    *dueJob
	missed skip        // the first of them, which do not run; count 0: none
	times  []time.Time // the others
	next   time.Time   // after them; zero: never
	until  time.Time   // up to when this decides
}

// dueTimesOf decides what a job catches up at a time. A job that was promoted in part
// first does what was decided then: a policy that decided anew at each piece would
// miss what became late meanwhile.
func dueTimesOf(j *dueJob, s *schedule.Schedule, at time.Time) dueTimes {
	decided := j.resume == "" && !j.until.Before(j.due)
	if decided && j.until.Before(at) {
		at = j.until
	}
	limit := max(1, j.misfire().Limit)
	o := dueTimes{job: j, until: at, missed: skip{job: j, status: execution.Missed, reason: j.missedReason()}}
	due := s.Between(j.due, at, limit+1)
	o.next, o.times = due.Next, due.Times
	if unlisted := due.Count - len(o.times); unlisted > 0 {
		o.missed.first, o.missed.last, o.missed.count = j.due, due.Last, unlisted+1
	} else {
		o.times = append([]time.Time{j.due}, o.times...)
	}
	cut := max(0, len(o.times)-limit)
	if !decided {
		cut = j.misfire().Decide(o.times, at)
	}
	if cut > 0 {
		if o.missed.count == 0 {
			o.missed.first = o.times[0]
		}
		o.missed.last, o.missed.count = o.times[cut-1], o.missed.count+cut
		o.times = o.times[cut:]
	}
	if due.Capped {
		o.missed.reason += "; counting stopped, so missedCount is the least that it can be"
	}
	return o
}

// rows is how many rows its outcome takes at most.
func (o *dueTimes) rows() int { return len(o.times) + min(o.missed.count, 1) }

// whole says whether it is promoted in one piece. Under cancel_running each
// scheduled time replaces those before it, also those of the piece before.
func (o *dueTimes) whole() bool { return o.job.policy.Overlap == job.OverlapCancel }

// misfire is the rule for what the job catches up. Times that a pause held back are late
// from the first moment on.
func (j *dueJob) misfire() job.Misfire {
	if j.resume == "" {
		return j.policy.Misfire
	}
	return job.Misfire{Policy: j.resume, Limit: j.policy.Misfire.Limit}
}

func (j *dueJob) missedReason() string {
	if j.resume == "" {
		return misfireReason
	}
	return pausedReason
}

// inTurns orders jobs so that their tenants take turns, each with its jobs in the
// order given.
func inTurns(jobs []dueJob) []*dueJob {
	of := map[uuid.UUID][]*dueJob{}
	var tenants []uuid.UUID
	for i := range jobs {
		j := &jobs[i]
		if len(of[j.tenant]) == 0 {
			tenants = append(tenants, j.tenant)
		}
		of[j.tenant] = append(of[j.tenant], j)
	}
	order := make([]*dueJob, 0, len(jobs))
	for round := 0; len(order) < len(jobs); round++ {
		for _, tenant := range tenants {
			if round < len(of[tenant]) {
				order = append(order, of[tenant][round])
			}
		}
	}
	return order
}

// grants shares out the rows of a pass: between the tenants first, then between the
// jobs of each. The first job gets what it takes where it cannot be divided, so
// that none waits for ever for a pass with enough room.
func grants(all []dueTimes, rows int) []int {
	granted := make([]int, len(all))
	var tenants []uuid.UUID
	of, wants := map[uuid.UUID][]int{}, map[uuid.UUID]int{}
	total := 0
	for i := range all {
		n := all[i].rows()
		granted[i], total = n, total+n
		if i == 0 && all[i].whole() {
			rows, total = rows-n, 0
			continue
		}
		tenant := all[i].job.tenant
		if len(of[tenant]) == 0 {
			tenants = append(tenants, tenant)
		}
		of[tenant], wants[tenant] = append(of[tenant], i), wants[tenant]+n
	}
	if total <= rows {
		return granted // nearly always
	}
	each := make([]int, len(tenants))
	for i, tenant := range tenants {
		each[i] = wants[tenant]
	}
	for i, n := range share(each, max(rows, 0)) {
		grantJobs(all, of[tenants[i]], n, granted)
	}
	return granted
}

// grantJobs shares out the rows of one tenant. Jobs that cannot be divided go
// first, as far as one row is left for each of the others.
func grantJobs(all []dueTimes, jobs []int, rows int, granted []int) {
	var divisible, wants []int
	for _, i := range jobs {
		if !all[i].whole() {
			divisible, wants = append(divisible, i), append(wants, all[i].rows())
		}
	}
	for _, i := range jobs {
		if !all[i].whole() {
			continue
		}
		if n := all[i].rows(); n <= rows-len(divisible) {
			rows -= n
		} else {
			granted[i] = 0
		}
	}
	for k, n := range share(wants, rows) {
		granted[divisible[k]] = n
	}
}

// share divides so many among those who want some: nobody gets more than he wants,
// and who wants less leaves the rest to the others. Where there is less than one
// for each, the first get one.
func share(wants []int, total int) []int {
	given := make([]int, len(wants))
	order := make([]int, len(wants))
	for i := range order {
		order[i] = i
	}
	if total >= len(wants) {
		slices.SortStableFunc(order, func(a, b int) int { return wants[a] - wants[b] })
	}
	for n, i := range order {
		given[i] = min(wants[i], max(total/(len(order)-n), min(total, 1)))
		total -= given[i]
	}
	return given
}
