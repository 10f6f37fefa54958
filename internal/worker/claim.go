package worker

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/job/definition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/divide"
)

// claimRequest asks for the claim of an execution, for which a slot is taken.
type claimRequest struct {
	id      uuid.UUID
	inc     *incarnation
	decided *decision
}

// decision lets those who request claims wait until all of them are decided.
type decision struct {
	sync.WaitGroup
	won atomic.Int64 // how many of the requests became claims
}

// claimed is an attempt that this worker runs.
type claimed struct {
	dispatch.Claimed
	asked clock.Mark // when the claim was sent, so not after it was carried out
}

// claim claims what it can of a batch and starts the runs. Without an answer of
// the database it asks again with the same token, so that a claim whose
// commit was lost on the way finds its own rows.
func (w *Worker) claim(ctx context.Context, requests []claimRequest) {
	var inc *incarnation
	live := requests[:0:0]
	var ids []uuid.UUID
	for _, x := range requests {
		if x.inc.ctx.Err() != nil || w.unclaimable.has(x.id) {
			x.decided.Done()
			w.free()
			continue
		}
		inc = x.inc // all live requests are of the one live incarnation
		live, ids = append(live, x), append(ids, x.id)
	}
	if len(live) == 0 {
		return
	}
	token := uuid.New()
	inc.claims(token)
	defer inc.claimed(token)
	rows, specs := w.claimDivided(ctx, inc, token, ids)
	w.settle(ctx, inc, live, rows, specs)
}

// settle starts what was claimed of requests, and frees the slots of the others.
func (w *Worker) settle(ctx context.Context, inc *incarnation, live []claimRequest, rows []claimed, specs map[definition.Key]definition.Definition) {
	won := make(map[uuid.UUID]claimed, len(rows))
	for _, r := range rows {
		won[r.ID] = r
	}
	var late, stopped []dispatch.Run
	for _, x := range live {
		r, ok := won[x.id]
		delete(won, x.id) // the same id twice in one batch is one claim
		switch {
		case !ok:
			w.free()
		case remainingTime(r.Timeout, r.asked.Elapsed()) <= 0:
			late = append(late, dispatch.Run{ID: r.ID, Token: r.Token})
			w.free()
		default:
			x.decided.won.Add(1)
			if err := w.start(inc, r, specs[keyOf(r.Claimed)]); errors.Is(err, errDraining) {
				stopped = append(stopped, dispatch.Run{ID: r.ID, Token: r.Token})
			}
		}
		x.decided.Done()
	}
	if len(late) > 0 {
		w.c.Log.WarnContext(ctx, "a claim was answered so late that the runs could outlive their deadlines; releasing them", "executions", len(late))
		w.release(ctx, late)
	}
	if len(stopped) > 0 {
		w.c.Log.WarnContext(ctx, "a claim was answered after the drain time; releasing its executions", "executions", len(stopped))
		w.release(ctx, stopped)
	}
}

// claimDivided claims what the database lets it claim. Where it refuses them together
// the halves are claimed, down to the execution that cannot be claimed, which this
// worker then leaves alone for a while.
func (w *Worker) claimDivided(ctx context.Context, inc *incarnation, token uuid.UUID, ids []uuid.UUID) (rows []claimed, specs map[definition.Key]definition.Definition) {
	specs = map[definition.Key]definition.Definition{}
	_ = divide.Items[uuid.UUID]{ // no error but a refusal ends it
		Send: func(ids []uuid.UUID) error {
			some, theirs, err := w.claimUntilAnswered(ctx, inc, token, ids)
			rows = append(rows, some...)
			maps.Copy(specs, theirs)
			return err
		},
		Alone: func(id uuid.UUID, err error) error {
			w.unclaimable.add(id)
			w.c.Log.ErrorContext(ctx, "an execution cannot be claimed: the database refuses it", "execution_id", id, "error", err)
			return nil
		},
	}.All(ids)
	return rows, specs
}

// claimPause is the pause before a claim that was not answered is asked for again. The
// database may still be at it.
const claimPause = 250 * time.Millisecond

// claimUntilAnswered asks until the database answers, if only with a refusal, or the
// incarnation has ended. While it waits the slots stay taken: that is the backpressure.
func (w *Worker) claimUntilAnswered(ctx context.Context, inc *incarnation, token uuid.UUID, ids []uuid.UUID) ([]claimed, map[definition.Key]definition.Definition, error) {
	wait := claimPause
	for {
		rows, specs, err := w.claimOnce(inc.ctx, inc, token, ids)
		switch {
		case err == nil:
			return rows, specs, nil
		case inc.ctx.Err() != nil:
			return nil, nil, nil
		case postgres.Refused(err):
			return nil, nil, err
		}
		w.c.Log.WarnContext(ctx, "claim failed, asking again", "error", err, "executions", len(ids))
		w.compareSoon()
		clock.Sleep(inc.ctx, wait)
		wait = min(2*wait, askAgain)
	}
}

func (w *Worker) claimOnce(ctx context.Context, inc *incarnation, token uuid.UUID, ids []uuid.UUID) ([]claimed, map[definition.Key]definition.Definition, error) {
	asked := clock.Start()
	found, held, forOthers, err := w.store.Claim(ctx, inc.member.ID, token, ids)
	if forOthers { // also where the rest of the claim failed: those are in the pool by now
		w.c.CallWorkers(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	w.tryLater(heldAgain, held)
	return w.withSpecs(ctx, asked, found)
}

// keyOf names the version that an attempt runs.
func keyOf(c dispatch.Claimed) definition.Key { return definition.Key{Job: c.Job, Version: c.Version} }

// withSpecs adds to claims what the jobs' versions say.
func (w *Worker) withSpecs(ctx context.Context, asked clock.Mark, found []dispatch.Claimed) ([]claimed, map[definition.Key]definition.Definition, error) {
	w.c.Metrics.Batch("claim", len(found))
	rows, keys := make([]claimed, len(found)), make([]definition.Key, len(found))
	for i, c := range found {
		rows[i], keys[i] = claimed{Claimed: c, asked: asked}, keyOf(c)
	}
	specs, err := w.specs.of(ctx, keys)
	return rows, specs, err
}

// lateness is how long after it could start an attempt was claimed, by the database's
// clock alone.
func (c claimed) lateness() time.Duration { return c.ClaimedAt.Sub(c.AvailableAt) }

// heldAgain is when executions are tried again whose job somebody else held locked: by
// then an ordinary transaction has ended.
const heldAgain = 50 * time.Millisecond

// retryHere is how long a backoff may be for which the worker of the attempt tries the next one itself.
// After a longer one nobody notices how often the fleet polls.
const retryHere = 10 * time.Second

// tryLater has a Poll try executions after a while. Should none do so, they are found as
// what waits in the pool or for a free slot or key is.
func (w *Worker) tryLater(after time.Duration, ids []uuid.UUID) {
	if len(ids) > 0 {
		time.AfterFunc(after, func() { w.tryHere(ids) })
	}
}
