package simulation

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// Polls of workers and the sweeper; the claim decides.

// mayStart says that a claim takes the row, as far as it alone decides.
func (r *activeRow) mayStart(at time.Time) bool {
	return r.waits() && r.CancelAt.IsZero() && !r.AvailableAt.After(at)
}

// do lists all of the pool that may be claimed; the statement picks a part of
// them, in an order that chance has a share in.
func (o listPooledExecutions) do(t *tables, at time.Time) (a answer) {
	for i := range t.active {
		r := &t.active[i]
		room := t.tenant(r.Tenant).room(o.Limit)
		if r.Pooled && r.mayStart(at) && room.All > 0 && *room.of(r.Type) > 0 && t.runs(o.Types, r) {
			a.IDs = append(a.IDs, r.ID)
		}
	}
	slices.SortFunc(a.IDs, compareIDs)
	return a
}

// do lists executions whose slot or key is free and that nobody hinted.
func (o listUnblockedExecutions) do(t *tables, at time.Time) (a answer) {
	jobs, keys := map[uuid.UUID]bool{}, map[lockKey]bool{}
	for i := range t.active {
		r := &t.active[i]
		if r.mayStart(at) && r.SlotLimit > 0 {
			jobs[r.Job] = true
		}
		if room := t.tenant(r.Tenant).room(o.Limit); r.mayStart(at) && r.Key != "" && room.All > 0 {
			keys[r.lockKey()] = true
		}
	}
	for id := range jobs {
		a.IDs = append(a.IDs, t.nextInLine(id, o.Types, at, 0)...)
	}
	for key := range keys {
		a.IDs = append(a.IDs, t.nextOfKey(key, at, func(r *activeRow) bool { return t.runs(o.Types, r) })...)
	}
	a.IDs = distinct(a.IDs)
	return a
}

// nextOfKey is the first of those that wait for a key, unless it is held:
// next_of_key.
func (t *tables) nextOfKey(key lockKey, at time.Time, runs func(*activeRow) bool) []uuid.UUID {
	var rows []*activeRow
	for i := range t.active {
		if r := &t.active[i]; r.lockKey() == key && r.mayStart(at) && t.mayHaveSlot(r) && !t.taken(r) && runs(r) {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, byTurn)
	if len(rows) == 0 {
		return nil
	}
	return []uuid.UUID{rows[0].ID}
}

// mayHaveSlot reports whether the row needs no slot of its job, or one is free.
func (t *tables) mayHaveSlot(r *activeRow) bool {
	return r.SlotLimit == 0 || t.places(r.Job).Taken < r.SlotLimit
}

// do names whose turn it is: of tenants, as far as they have room, and of each
// key the first in line; and nothing that no worker runs. Executions that were hinted and were
// never left behind stand in no line, and it does not name them.
func (o listNextExecutions) do(t *tables, at time.Time) (a answer) {
	served := func(r *activeRow) bool { return t.served(r.Type, at) }
	var rows []*activeRow
	for i := range t.active {
		if r := &t.active[i]; r.mayStart(at) && served(r) && (r.Pooled || r.bound()) && !t.taken(r) && t.mayHaveSlot(r) {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, byAge)
	for _, id := range o.Tenants {
		room := t.tenant(id).room(o.Limit)
		room.All = min(room.All, 64)
		for _, r := range rows {
			if r.Tenant == id && room.All > 0 && *room.of(r.Type) > 0 {
				a.IDs = append(a.IDs, r.ID)
				room.add(r.Type, -1)
			}
		}
	}
	for _, key := range o.Keys {
		a.IDs = append(a.IDs, t.nextOfKey(key, at, served)...)
	}
	a.IDs = distinct(a.IDs)
	return a
}

// served says that a worker that lives runs a type.
func (t *tables) served(kind string, at time.Time) bool {
	return slices.ContainsFunc(t.workers, func(w workerRow) bool {
		return !w.Dead && w.ExpiresAt.After(at) && (len(w.Types) == 0 || slices.Contains(w.Types, kind))
	})
}
