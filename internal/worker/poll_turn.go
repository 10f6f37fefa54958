package worker

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

const (
	// longTurn is how long a poll may keep the turn, and outOfTurnFor how long a worker
	// polls without one after it kept it for longer, or waited for one that did not come:
	// nobody's slow connection or standstill holds up all others.
	longTurn     = 500 * time.Millisecond
	outOfTurnFor = 5 * time.Second
	// spareCandidates is how many more candidates than have room a poll asks for after one
	// that won nothing: those at the front may be some that cannot be claimed.
	spareCandidates = 8
)

// claimPooled polls the pool and claims in one transaction, so that workers that drain
// one backlog find different executions. It is for a pool that is not empty: where nothing
// waits it costs one round trip more than a poll. It adds to seen what it came to.
func (w *Worker) claimPooled(ctx context.Context, inc *incarnation, most int, f free, seen *pollResult) error {
	token, asked := uuid.New(), clock.Start()
	began, held := asked, time.Duration(0)
	inTurn := w.outOfTurn.Elapsed() >= outOfTurnFor
	inc.claims(token, true)
	defer inc.claims(token, false)
	var decided decision
	var requests []claimRequest
	var ids []uuid.UUID
	tenants := map[uuid.UUID]uuid.UUID{}
	spare := 0
	if w.stuck {
		spare = spareCandidates
	}
	found, after, err := w.store.PollAndClaim(inc.ctx, inc.member.ID, token, most, spare, w.afterTenant, f.busy, inTurn, func(found []dispatch.Candidate, waited time.Duration) []uuid.UUID {
		began, held = clock.Start(), asked.Elapsed()-waited
		seen.asked, seen.waits = held, len(found) > 0
		for _, c := range choose(w.notRefused(found), f.busy, f.open, f.kept) {
			if w.unclaimable.has(c.ID) || !w.slots.takeNow(c.kept) {
				continue
			}
			w.runs.Add(1)
			decided.Add(1)
			requests, ids, tenants[c.ID] = append(requests, claimRequest{id: c.ID, inc: inc, decided: &decided}), append(ids, c.ID), c.Tenant
		}
		return ids
	})
	noTurn := inTurn && held == 0 && postgres.TimedOut(err) // or the poll waited for a row in its turn
	if noTurn || inTurn && held > longTurn {
		w.outOfTurn = clock.Start()
	}
	if noTurn {
		return w.claimPooled(ctx, inc, most, f, seen)
	}
	w.stuck = err == nil && seen.waits && len(found) == 0
	if len(ids) == 0 {
		if err == nil {
			w.afterTenant = after
		}
		return err
	}
	rows, specs, unread := w.withSpecs(inc.ctx, began, found)
	if err = errors.Join(err, unread); err != nil { // the claim may stand: it is repeated with its token
		w.c.Log.WarnContext(ctx, "claim failed, asking again", "error", err, "executions", len(ids))
		w.compareSoon()
		clock.Sleep(inc.ctx, claimAgain)
		rows, specs = w.claimDivided(ctx, inc, token, ids)
	} else {
		w.afterTenant = after
	}
	w.noteRefused(tenants, rows)
	w.settle(ctx, inc, requests, rows, specs)
	won := int(decided.won.Load())
	seen.won, seen.more = seen.won+won, won > most/2
	return nil
}

// noteRefused notes the tenants whose executions were chosen and none claimed.
func (w *Worker) noteRefused(chosen map[uuid.UUID]uuid.UUID, rows []claimed) {
	won := map[uuid.UUID]bool{}
	for _, r := range rows {
		won[r.Tenant] = true
	}
	for _, tenant := range chosen {
		if !won[tenant] {
			w.refused[tenant] = clock.Start()
		}
	}
}
