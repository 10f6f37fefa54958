package simulation

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
)

func (o claimExecutions) do(t *tables, at time.Time) (a answer) {
	if !t.stands(o.Worker, at) {
		return a
	}
	var wanted []*activeRow
	for _, id := range distinct(o.IDs) {
		r := t.row(id)
		if r == nil || o.Locked.holds(id) || !r.CancelAt.IsZero() || !t.runs(o.Types, r) {
			continue
		}
		fresh := r.waits() && !r.AvailableAt.After(at) && (r.SlotLimit == 0 && r.Key == "" || t.bug == ignoresSlots)
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

// runs says that a worker of some types runs what the row is of.
func (t *tables) runs(types []string, r *activeRow) bool {
	return slices.Contains(types, r.Type) || t.bug == claimsAnyType
}

// fit leaves what the tenants' limits admit, counts it, and notes the rest.
func (t *tables) fit(rows []*activeRow, limit int, at time.Time) (admitted []*activeRow) {
	slices.SortFunc(rows, func(a, b *activeRow) int {
		return cmp.Or(compareIDs(a.Tenant, b.Tenant), cmp.Compare(b.Priority, a.Priority), a.AvailableAt.Compare(b.AvailableAt), compareIDs(a.ID, b.ID))
	})
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].Tenant == rows[0].Tenant {
			n++
		}
		admitted = append(admitted, t.fitOne(rows[:n], limit, at)...)
		rows = rows[n:]
	}
	for _, r := range admitted {
		if r.Key != "" {
			t.keys = append(t.keys, keyRow{r.lockKey(), r.ID})
		}
	}
	return admitted
}

// fitOne is fit for what is of one tenant.
func (t *tables) fitOne(rows []*activeRow, limit int, at time.Time) (admitted []*activeRow) {
	one := t.tenant(rows[0].Tenant)
	if t.bug == anothersCount {
		one = &t.tenants[0]
	}
	room := one.room(limit)
	for _, r := range rows {
		if t.bug == ignoresLimit || room.All > 0 && (*room.of(r.Type) > 0 || t.bug == ignoresTypeLimit) {
			room.add(r.Type, -1)
			admitted = append(admitted, r)
		}
	}
	for _, r := range admitted {
		one.Running.add(r.Type, 1)
	}
	if len(admitted) < len(rows) && one.Backlogged.Before(at.Add(-10*time.Second)) {
		one.Backlogged = at
	}
	return admitted
}

// room is how many more a tenant may run.
func (one *tenantRow) room(limit int) counts {
	const boundless = 1_000_000
	most := one.Most
	if most.All < 0 {
		if most.All = limit; limit == 0 {
			most.All = boundless
		}
	}
	for _, of := range []*int{&most.Function, &most.HTTP} {
		if *of < 0 {
			*of = boundless
		}
	}
	return counts{most.All - one.Running.All, most.Function - one.Running.Function, most.HTTP - one.Running.HTTP}
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
	r.AttemptedAt, r.DeadlineAt = at, at.Add(r.Timeout+dispatch.DeadlineMargin)
	if soon := at.Add(dispatch.SweepAhead); r.SweepAt.After(soon) {
		r.SweepAt = soon
	}
	return claimed{ID: r.ID, Job: r.Job, Attempt: r.Attempt, Max: r.MaxAttempts, Token: token}
}

func (o listUnclaimedExecutions) do(t *tables, at time.Time) (a answer) {
	for _, id := range distinct(o.IDs) {
		r := t.row(id)
		if r == nil || !r.mayStart(at) {
			continue
		}
		if !r.bound() {
			if !r.Pooled {
				a.Unpooled = append(a.Unpooled, id)
			}
			continue
		}
		if !t.runs(o.Types, r) {
			continue
		}
		if !slices.Contains(a.IDs, r.Job) {
			a.IDs = append(a.IDs, r.Job)
		}
		if r.SlotLimit > 0 && !slices.Contains(a.SlotJobs, r.Job) {
			a.SlotJobs = append(a.SlotJobs, r.Job)
		}
	}
	slices.SortFunc(a.IDs, compareIDs)
	slices.SortFunc(a.SlotJobs, compareIDs)
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

// count remembers the slots of this moment: what one statement would see that
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

func (o claimLimitedExecutions) do(t *tables, at time.Time) (a answer) {
	defer t.unlock(o.Session)
	if !t.stands(o.Worker, at) {
		return a
	}
	var wanted []*activeRow
	for _, id := range distinct(o.IDs) {
		r := t.row(id)
		if r != nil && r.waits() && !r.AvailableAt.After(at) && r.bound() && r.CancelAt.IsZero() && !t.taken(r) && t.runs(o.Types, r) {
			wanted = append(wanted, r)
		}
	}
	slices.SortFunc(wanted, byTurn)
	var placed []*activeRow
	keyed, ranked := map[lockKey]bool{}, map[uuid.UUID]int{}
	for _, r := range wanted {
		if r.Key != "" && keyed[r.lockKey()] {
			continue // only the first of each key is looked at
		}
		keyed[r.lockKey()] = true
		nth, free := 0, 1
		if r.SlotLimit > 0 {
			taken := t.places(r.Job).Taken
			if t.bug == countsBeforeLock {
				taken = t.counted[o.Session][r.Job]
			}
			nth, free = ranked[r.Job], r.SlotLimit-taken
			ranked[r.Job]++
		}
		// A slot is ranked before it is known whether its row is locked.
		if nth < free && !o.Locked.holds(r.ID) {
			placed = append(placed, r)
		}
	}
	for _, r := range t.fit(placed, o.Limit, at) {
		a.Claims = append(a.Claims, t.give(r, o.Worker, o.Token, at))
	}
	return a
}

// byTurn is the order in which runs get slots, keys and the room of their tenant.
func byTurn(a, b *activeRow) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.AvailableAt.Compare(b.AvailableAt), compareIDs(a.ID, b.ID))
}

// byAge is the order in which ends name what has room now: each step of priority counts as ten seconds of waiting.
func byAge(a, b *activeRow) int {
	since := func(r *activeRow) time.Time { return r.AvailableAt.Add(time.Duration(-r.Priority) * 10 * time.Second) }
	return cmp.Or(since(a).Compare(since(b)), compareIDs(a.ID, b.ID))
}

func (o listExecutionsOfWorker) do(t *tables, at time.Time) (a answer) {
	for i := range t.active {
		r := &t.active[i]
		if !r.waits() && r.Worker == o.Worker && !r.SweepAt.After(at.Add(dispatch.SweepAhead)) {
			a.Held = append(a.Held, workerRun{ID: r.ID, Token: r.Token, Cancelling: !r.CancelAt.IsZero()})
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
