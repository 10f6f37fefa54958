package model

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
)

func (o claimExecutions) do(t *tables, at time.Time) (a answer) {
	if !t.stands(o.Worker, at) {
		return a
	}
	for _, id := range distinct(o.IDs) {
		r := t.row(id)
		if r == nil || o.Locked.holds(id) || !r.CancelAt.IsZero() {
			continue
		}
		fresh := r.waits() && !r.AvailableAt.After(at) && (r.Gate == 0 || t.bug == ignoresGate)
		ours := !r.waits() && r.Token == o.Token && r.Worker == o.Worker
		if t.bug == claimsRunning {
			ours = !r.waits()
		}
		if fresh || ours {
			a.Claims = append(a.Claims, t.give(r, o.Worker, o.Token, at))
		}
	}
	return a
}

// stands says that a worker's lease does, by the database's clock.
func (t *tables) stands(id uuid.UUID, at time.Time) bool {
	w := t.worker(id)
	if t.bug == ignoresLease {
		return true
	}
	return w != nil && !w.Dead && w.ExpiresAt.After(at)
}

// give gives the row to a worker; a claim that is repeated counts once.
func (t *tables) give(r *activeRow, worker, token uuid.UUID, at time.Time) claimed {
	if r.waits() && (t.bug != sameAttempt || r.Attempt == 0) {
		r.Attempt++
	}
	r.Status, r.Worker, r.Token = execution.Running, worker, token
	if r.StartedAt.IsZero() {
		r.StartedAt = at
	}
	r.AttemptedAt, r.DeadlineAt = at, at.Add(r.Timeout+5*time.Second)
	if soon := at.Add(5 * time.Second); r.SweepAt.After(soon) {
		r.SweepAt = soon
	}
	return claimed{ID: r.ID, Job: r.Job, Attempt: r.Attempt, Max: r.MaxAttempts, Token: token}
}

func (o listGatedJobs) do(t *tables, at time.Time) (a answer) {
	for _, id := range o.IDs {
		r := t.row(id)
		if r != nil && r.Gate > 0 && r.waits() && !r.AvailableAt.After(at) && r.CancelAt.IsZero() && !slices.Contains(a.IDs, r.Job) {
			a.IDs = append(a.IDs, r.Job)
		}
	}
	slices.SortFunc(a.IDs, compareIDs)
	return a
}

func (o lockJobs) do(t *tables, _ time.Time) (a answer) {
	if t.bug == countsBeforeLock {
		t.count(o)
		return a
	}
	for _, id := range o.Jobs {
		if j := t.job(id); j != nil {
			j.lock = o.Session
		}
	}
	return a
}

// count remembers the places of this moment: what one statement would see that
// locks and counts.
func (t *tables) count(o lockJobs) {
	if t.counted == nil {
		t.counted = map[int]map[uuid.UUID]int{}
	}
	taken := map[uuid.UUID]int{}
	for _, id := range o.Jobs {
		taken[id] = t.places(id).Taken
	}
	t.counted[o.Session] = taken
}

func (o claimGatedExecutions) do(t *tables, at time.Time) (a answer) {
	defer t.unlock(o.Session)
	if !t.stands(o.Worker, at) {
		return a
	}
	byJob := map[uuid.UUID][]*activeRow{}
	var jobs []uuid.UUID
	for _, id := range distinct(o.IDs) {
		r := t.row(id)
		if r == nil || !r.waits() || r.AvailableAt.After(at) || r.Gate == 0 || !r.CancelAt.IsZero() {
			continue
		}
		if byJob[r.Job] == nil {
			jobs = append(jobs, r.Job)
		}
		byJob[r.Job] = append(byJob[r.Job], r)
	}
	slices.SortFunc(jobs, compareIDs)
	for _, id := range jobs {
		taken := t.places(id).Taken
		if t.bug == countsBeforeLock {
			taken = t.counted[o.Session][id]
		}
		rows := byJob[id]
		slices.SortFunc(rows, byTurn)
		for place, r := range rows {
			// A place is ranked before it is known whether its row is locked.
			if place < r.Gate-taken && !o.Locked.holds(r.ID) {
				a.Claims = append(a.Claims, t.give(r, o.Worker, o.Token, at))
			}
		}
	}
	return a
}

// byTurn is the order in which runs of one job get places.
func byTurn(a, b *activeRow) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.At.Compare(b.At), compareIDs(a.ID, b.ID))
}

// do lists all that may be claimed; the statement picks a part of them, in an
// order that chance has a share in.
func (o listClaimableExecutions) do(t *tables, at time.Time) (a answer) {
	before := at.Add(-o.Waited)
	may := func(r *activeRow) bool {
		return r.waits() && r.CancelAt.IsZero() && !r.AvailableAt.After(before)
	}
	gates := map[uuid.UUID]int{}
	waiting := map[uuid.UUID][]*activeRow{}
	for i := range t.active {
		r := &t.active[i]
		if r.Gate == 0 && may(r) && !r.SweepAt.After(at.Add(time.Minute)) {
			a.IDs = append(a.IDs, r.ID)
		}
		gates[r.Job] = max(gates[r.Job], r.Gate)
		if r.Gate > 0 && may(r) {
			waiting[r.Job] = append(waiting[r.Job], r)
		}
	}
	for id, rows := range waiting {
		slices.SortFunc(rows, byTurn)
		free := max(0, gates[id]-t.places(id).Taken)
		for _, r := range rows[:min(free, len(rows))] {
			a.IDs = append(a.IDs, r.ID)
		}
	}
	slices.SortFunc(a.IDs, compareIDs)
	return a
}

func (o listHeldExecutions) do(t *tables, at time.Time) (a answer) {
	for i := range t.active {
		r := &t.active[i]
		if !r.waits() && r.Worker == o.Worker && !r.SweepAt.After(at.Add(5*time.Second)) {
			a.Held = append(a.Held, heldRow{ID: r.ID, Token: r.Token, Cancelling: !r.CancelAt.IsZero()})
		}
	}
	return a
}

func (t *tables) unlock(session int) {
	for i := range t.jobs {
		if t.jobs[i].lock == session {
			t.jobs[i].lock = 0
		}
	}
}

func distinct(ids []uuid.UUID) []uuid.UUID {
	if len(ids) < 2 {
		return ids
	}
	ids = slices.Clone(ids)
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids)
}
