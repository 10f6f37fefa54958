package simulation

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
)

func (o claimDueJobs) do(t *tables, at time.Time) (a answer) {
	for i := range t.jobs {
		j := &t.jobs[i]
		if j.Status != job.Active || j.Next.IsZero() || j.Next.After(at) || j.Next.Before(o.Since) || o.Locked.holds(j.ID) {
			continue
		}
		if j.lock != 0 && t.bug != noSkipLocked {
			continue
		}
		j.lock = o.Session
		due := dueJob{id: j.ID, tenant: j.tenant, spec: j.spec, schedule: j.schedule, count: j.Count, resume: j.Resume, due: j.Next}
		if j.spec.Overlap != job.OverlapAllow {
			due.places = t.places(j.ID)
		}
		a.due = append(a.due, due)
	}
	a.At = at
	slices.SortStableFunc(a.due, func(x, y dueJob) int { return cmp.Or(x.due.Compare(y.due), compareIDs(x.id, y.id)) })
	return a
}

// do writes what was planned, at the time of the plan: a transaction has
// one now().
func (o writePromotion) do(t *tables, _ time.Time) (a answer) {
	defer t.unlock(o.Session)
	p := o.plan
	for _, id := range p.cancels {
		const reason = "a later scheduled time took its place (overlapPolicy cancel_running)"
		t.cancelWaiting(id, p.at, reason)
		t.requestCancel(id, p.at, reason)
	}
	if t.bug != advancesOnly {
		for _, r := range p.runs {
			if !t.ended(r.ID, r.At) {
				t.insert(r)
			}
		}
		for _, u := range p.unruns {
			t.record(u)
		}
	}
	if t.bug == insertsOnly {
		return a
	}
	for _, s := range p.steps {
		j := t.job(s.job)
		if j.Next = s.next; s.next.IsZero() {
			j.Status = job.Inactive
		}
		j.Resume = ""
		if s.runs > 0 {
			j.Last = s.last
		}
		j.Count += int64(s.runs)
	}
	return a
}

// do is one pass of a promoter that has just started.
func (o promote) do(t *tables, at time.Time) answer {
	const session = -1
	p := newPlan(claimDueJobs{Session: session, Locked: o.Locked}.do(t, at).due, at, newCatchup())
	long := t.longLines(at)
	var ids []uuid.UUID
	for i := range p.runs {
		r := &p.runs[i]
		switch backlogged := slices.Contains(long, r.Tenant); {
		case backlogged && !r.bound():
			r.pool()
		case !backlogged && !r.AvailableAt.After(at):
			ids = append(ids, r.ID)
		}
	}
	writePromotion{Session: session, plan: p}.do(t, at)
	slices.SortFunc(ids, compareIDs)
	return answer{IDs: ids}
}

// longLines are the tenants of which a line of the pool is so long that what
// becomes due of theirs belongs behind it.
func (t *tables) longLines(at time.Time) (long []uuid.UUID) {
	type line struct {
		tenant   uuid.UUID
		priority int
		kind     string
	}
	lines := map[line]int{}
	for i := range t.active {
		if r := &t.active[i]; r.Pooled && !r.AvailableAt.After(at) {
			of := line{r.Tenant, r.Priority, r.Type}
			if lines[of]++; lines[of] == 17 {
				long = append(long, r.Tenant)
			}
		}
	}
	return long
}

// catchupEvery is the distance of late runs.
const catchupEvery = 100 * time.Millisecond

// cancelWaiting is CancelWaitingByJob.
func (t *tables) cancelWaiting(of uuid.UUID, at time.Time, reason string) {
	var over []finishedRow
	for i := range t.active {
		if r := &t.active[i]; r.Job == of && r.waits() {
			o := r.end(execution.Cancelled, at)
			o.Reason = reason
			over = append(over, o)
		}
	}
	for _, o := range over {
		t.remove(o.ID)
		t.record(o)
	}
}

// requestCancel is RequestCancelByJob.
func (t *tables) requestCancel(of uuid.UUID, at time.Time, reason string) {
	for i := range t.active {
		if r := &t.active[i]; r.Job == of && !r.waits() && r.CancelAt.IsZero() {
			r.CancelAt, r.CancelFor = at, reason
		}
	}
}
