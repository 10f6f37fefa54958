package model

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// What workers and the sweeper look for; the claim decides.

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

// do lists who has a place or a key and was not told.
func (o listPlacedExecutions) do(t *tables, at time.Time) (a answer) {
	waiting, keyed := map[uuid.UUID][]*activeRow{}, map[lockKey][]*activeRow{}
	for i := range t.active {
		r := &t.active[i]
		switch {
		case !r.mayStart(at) || t.taken(r) || !t.runs(o.Types, r):
		case r.Gate > 0:
			waiting[r.Job] = append(waiting[r.Job], r)
		case r.Key != "":
			keyed[r.lockKey()] = append(keyed[r.lockKey()], r)
		}
	}
	for id, rows := range waiting {
		slices.SortFunc(rows, byTurn)
		for _, r := range rows[:min(max(0, t.free(id)), len(rows))] {
			a.IDs = append(a.IDs, r.ID)
		}
	}
	for _, rows := range keyed {
		slices.SortFunc(rows, byTurn)
		a.IDs = append(a.IDs, rows[0].ID)
	}
	slices.SortFunc(a.IDs, compareIDs)
	return a
}

// do names whose turn it is: of tenants, as far as they have room, and of each
// key the first in line; and nothing that no worker runs.
func (o listNextExecutions) do(t *tables, at time.Time) (a answer) {
	var rows []*activeRow
	for i := range t.active {
		if r := &t.active[i]; r.mayStart(at) && t.served(r.Type, at) {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, byTurn)
	for _, id := range o.Tenants {
		room := t.tenant(id).room(o.Limit)
		room.All = min(room.All, 64)
		for _, r := range rows {
			if r.Tenant == id && room.All > 0 && *room.of(r.Type) > 0 && !t.taken(r) && (r.Gate == 0 || t.free(r.Job) > 0) {
				a.IDs = append(a.IDs, r.ID)
				room.add(r.Type, -1)
			}
		}
	}
	for _, key := range o.Keys {
		if i := slices.IndexFunc(rows, func(r *activeRow) bool { return r.lockKey() == key }); i >= 0 {
			a.IDs = append(a.IDs, rows[i].ID)
		}
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

// free is how many places a job has left for those of its runs that wait for
// one.
func (t *tables) free(of uuid.UUID) int {
	gate := 0
	for i := range t.active {
		if t.active[i].Job == of {
			gate = max(gate, t.active[i].Gate)
		}
	}
	return gate - t.places(of).Taken
}
