package worker

import (
	"context"
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

// pooledClaim is a claim of executions that a poll found in the pool.
type pooledClaim struct {
	inc      *incarnation
	token    uuid.UUID
	asked    clock.Mark // when it was sent
	requests []claimRequest
	ids      []uuid.UUID
	tenants  map[uuid.UUID]uuid.UUID // of the executions
	decided  decision
}

// claimPooled polls the pool and claims in one transaction, so that workers that drain
// one backlog find different executions. It is for a pool that is not empty: where nothing
// waits it costs one round trip more than a poll. It adds to seen what it came to.
//
// The runs of the claim begin while the next poll is under way, see begin: reading their
// definitions was a fifth of the time in which a worker drained a backlog.
func (w *Worker) claimPooled(ctx context.Context, inc *incarnation, most int, f free, seen *pollResult) error {
	c := &pooledClaim{inc: inc, token: uuid.New(), tenants: map[uuid.UUID]uuid.UUID{}}
	asked, held, waited := clock.Start(), time.Duration(0), time.Duration(0)
	c.asked = asked
	turn := w.turn()
	inc.claims(c.token)
	spare := 0
	if w.stuck {
		spare = spareCandidates
	}
	found, after, err := w.store.PollAndClaim(inc.ctx, inc.member.ID, c.token, most, spare, w.afterTenant, f.busy, turn, func(found []dispatch.Candidate, inLine time.Duration) []uuid.UUID {
		c.asked, held, waited = clock.Start(), asked.Elapsed()-inLine, inLine
		seen.asked, seen.waits = held, len(found) > 0
		w.request(c, choose(w.notRefused(found), f.busy, f.open, f.kept))
		return c.ids
	})
	noTurn := turn != dispatch.NoTurn && held == 0 && postgres.TimedOut(err) // or the poll waited for a row in its turn
	if noTurn || turn != dispatch.NoTurn && held > longTurn {
		w.outOfTurn = clock.Start()
	}
	if noTurn {
		inc.claimed(c.token)
		return w.claimPooled(ctx, inc, most, f, seen)
	}
	w.stuck = err == nil && seen.waits && len(found) == 0
	if err == nil {
		w.afterTenant = after
	}
	switch {
	case len(c.ids) == 0:
		inc.claimed(c.token)
		return err
	case err != nil: // the claim may stand
		w.noteRefused(c.tenants, w.claimAgain(ctx, c, err))
		won := int(c.decided.won.Load())
		seen.won, seen.more = seen.won+won, won > most/2
	default:
		w.join.won(len(found), most, turnTook{waited: waited, kept: held, claim: asked.Elapsed() - waited - held})
		w.noteRefused(c.tenants, found)
		seen.won, seen.more = seen.won+len(found), len(found) > most/2
		w.begin(ctx, c, found)
	}
	return nil
}

// turn is how the next poll keeps out of the way of others.
func (w *Worker) turn() dispatch.Turn {
	switch {
	case w.outOfTurn.Elapsed() < outOfTurnFor:
		return dispatch.NoTurn
	case w.hasRoomSoon() && w.join.drains.Elapsed() < turnKept:
		return dispatch.ShownTurn
	}
	return dispatch.PlainTurn
}

// request adds to a claim what gets a slot at once.
func (w *Worker) request(c *pooledClaim, chosen []choice) {
	for _, one := range chosen {
		if w.unclaimable.has(one.ID) || !w.slots.takeNow(one.kept) {
			continue
		}
		w.runs.Add(1)
		c.decided.Add(1)
		c.requests = append(c.requests, claimRequest{id: one.ID, inc: c.inc, decided: &c.decided})
		c.ids, c.tenants[one.ID] = append(c.ids, one.ID), one.Tenant
	}
}

// begin begins the runs of a claim, beside what the caller does next. At most one claim
// waits for this: the next one waits here until the runs of the last have begun.
func (w *Worker) begin(ctx context.Context, c *pooledClaim, found []dispatch.Claimed) {
	c.inc.begins(c.token, found)
	w.beginning.Wait()
	w.beginning.Go(func() {
		rows, specs, err := w.withSpecs(c.inc.ctx, c.asked, found)
		if err != nil {
			w.claimAgain(ctx, c, err)
			return
		}
		w.settle(ctx, c.inc, c.requests, rows, specs)
		c.inc.claimed(c.token)
	})
}

// claimAgain asks for a claim with its token again, which finds what it claimed before, and
// begins the runs. It returns what it found.
func (w *Worker) claimAgain(ctx context.Context, c *pooledClaim, err error) []dispatch.Claimed {
	w.c.Log.WarnContext(ctx, "claim failed, asking again", "error", err, "executions", len(c.ids))
	w.compareSoon()
	clock.Sleep(c.inc.ctx, claimPause)
	rows, specs := w.claimDivided(ctx, c.inc, c.token, c.ids)
	w.settle(ctx, c.inc, c.requests, rows, specs)
	c.inc.claimed(c.token)
	found := make([]dispatch.Claimed, len(rows))
	for i, r := range rows {
		found[i] = r.Claimed
	}
	return found
}

// noteRefused notes the tenants whose executions were chosen and none claimed.
func (w *Worker) noteRefused(chosen map[uuid.UUID]uuid.UUID, rows []dispatch.Claimed) {
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
