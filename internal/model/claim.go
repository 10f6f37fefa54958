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
	var wanted []*activeRow
	for _, id := range distinct(o.IDs) {
		r := t.row(id)
		if r == nil || o.Locked.holds(id) || !r.CancelAt.IsZero() {
			continue
		}
		fresh := r.waits() && !r.AvailableAt.After(at) && (r.Gate == 0 && r.Key == "" || t.bug == ignoresGate)
		ours := !r.waits() && r.Token == o.Token && r.Worker == o.Worker
		if t.bug == claimsRunning {
			ours = !r.waits()
		}
		if fresh {
			wanted = append(wanted, r)
		} else if ours {
			a.Claims = append(a.Claims, t.give(r, o.Worker, o.Token, at))
		}
	}
	for _, r := range t.fit(wanted, o.Limit, at) {
		a.Claims = append(a.Claims, t.give(r, o.Worker, o.Token, at))
	}
	return a
}

// fit leaves what the tenant's limit admits, counts it, and notes the rest.
func (t *tables) fit(rows []*activeRow, limit int, at time.Time) []*activeRow {
	slices.SortFunc(rows, func(a, b *activeRow) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.AvailableAt.Compare(b.AvailableAt), compareIDs(a.ID, b.ID))
	})
	admitted := rows[:min(len(rows), max(0, t.room(limit)))]
	if t.bug == ignoresLimit {
		admitted = rows
	}
	if len(rows) > 0 && (len(admitted) > 0 || t.crowded.IsZero() || t.crowded.Before(at.Add(-10*time.Second))) {
		t.running += len(admitted)
		if len(admitted) < len(rows) {
			t.crowded = at
		}
	}
	for _, r := range admitted {
		if r.Key != "" {
			t.keys = append(t.keys, keyRow{r.Key, r.ID})
		}
	}
	return admitted
}

// room is how many more the tenant may run.
func (t *tables) room(limit int) int {
	if limit == 0 {
		limit = 1_000_000
	}
	return limit - t.running
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
	r.Status, r.Worker, r.Token, r.Pooled = execution.Running, worker, token, false
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
		if r == nil || r.Gate == 0 && r.Key == "" || !r.waits() || r.AvailableAt.After(at) || !r.CancelAt.IsZero() {
			continue
		}
		if !slices.Contains(a.IDs, r.Job) {
			a.IDs = append(a.IDs, r.Job)
		}
		if r.Gate > 0 && !slices.Contains(a.Gated, r.Job) {
			a.Gated = append(a.Gated, r.Job)
		}
	}
	slices.SortFunc(a.IDs, compareIDs)
	slices.SortFunc(a.Gated, compareIDs)
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
	var wanted []*activeRow
	for _, id := range distinct(o.IDs) {
		r := t.row(id)
		if r != nil && r.waits() && !r.AvailableAt.After(at) && (r.Gate > 0 || r.Key != "") && r.CancelAt.IsZero() && !t.taken(r.Key) {
			wanted = append(wanted, r)
		}
	}
	slices.SortFunc(wanted, byTurn)
	var placed []*activeRow
	keyed, ranked := map[string]bool{}, map[uuid.UUID]int{}
	for _, r := range wanted {
		if r.Key != "" && keyed[r.Key] {
			continue // only the first of each key is looked at
		}
		keyed[r.Key] = true
		place, free := 0, 1
		if r.Gate > 0 {
			taken := t.places(r.Job).Taken
			if t.bug == countsBeforeLock {
				taken = t.counted[o.Session][r.Job]
			}
			place, free = ranked[r.Job], r.Gate-taken
			ranked[r.Job]++
		}
		// A place is ranked before it is known whether its row is locked.
		if place < free && !o.Locked.holds(r.ID) {
			placed = append(placed, r)
		}
	}
	for _, r := range t.fit(placed, o.Limit, at) {
		a.Claims = append(a.Claims, t.give(r, o.Worker, o.Token, at))
	}
	return a
}

// byTurn is the order in which runs of one job get places.
func byTurn(a, b *activeRow) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.At.Compare(b.At), compareIDs(a.ID, b.ID))
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
