package worker

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/postgres"
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
	inc.claims(token, true)
	defer inc.claims(token, false)
	rows, specs := w.claimUntilAnswered(ctx, inc, token, ids)
	won := make(map[uuid.UUID]claimed, len(rows))
	for _, r := range rows {
		won[r.ID] = r
	}
	var late []dispatch.Run
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
			w.start(inc, r, specs[versionKey{r.Job, r.Version}])
		}
		x.decided.Done()
	}
	if len(late) > 0 {
		w.Log.WarnContext(ctx, "a claim was answered so late that the runs could outlive their deadlines; releasing them", "executions", len(late))
		w.release(ctx, late)
	}
}

// claimUntilAnswered asks until the database answers or the incarnation is
// over. While it waits the slots stay taken: that is the backpressure. Where the
// database refuses it asks for the halves, down to the execution that cannot be
// claimed, which this worker then leaves alone for a while.
func (w *Worker) claimUntilAnswered(ctx context.Context, inc *incarnation, token uuid.UUID, ids []uuid.UUID) ([]claimed, map[versionKey]definition) {
	wait := 250 * time.Millisecond
	for {
		rows, specs, err := w.claimOnce(inc.ctx, inc, token, ids)
		switch {
		case err == nil:
			return rows, specs
		case inc.ctx.Err() != nil:
			return nil, nil
		case postgres.Refused(err) && len(ids) == 1:
			w.unclaimable.add(ids[0])
			w.Log.ErrorContext(ctx, "an execution cannot be claimed: the database refuses it", "execution_id", ids[0], "error", err)
			return nil, nil
		case postgres.Refused(err):
			rows, specs = w.claimUntilAnswered(ctx, inc, token, ids[:len(ids)/2])
			others, theirs := w.claimUntilAnswered(ctx, inc, token, ids[len(ids)/2:])
			all := map[versionKey]definition{}
			maps.Copy(all, specs)
			maps.Copy(all, theirs)
			return append(rows, others...), all
		}
		w.Log.WarnContext(ctx, "claim failed, asking again", "error", err, "executions", len(ids))
		w.compareSoon()
		pause(inc.ctx, wait)
		wait = min(2*wait, askAgain)
	}
}

func (w *Worker) claimOnce(ctx context.Context, inc *incarnation, token uuid.UUID, ids []uuid.UUID) ([]claimed, map[versionKey]definition, error) {
	asked := clock.Start()
	found, err := w.store.Claim(ctx, inc.member.ID, token, ids)
	if err != nil {
		return nil, nil, err
	}
	w.Metrics.Batch("claim", len(found))
	rows, keys := make([]claimed, len(found)), make([]versionKey, len(found))
	for i, c := range found {
		rows[i], keys[i] = claimed{Claimed: c, asked: asked}, versionKey{c.Job, c.Version}
	}
	specs, err := w.specs.of(ctx, keys)
	return rows, specs, err
}

// pause waits for d or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// lateness is how long after it could start an attempt was claimed, by the database's
// clock alone.
func (c claimed) lateness() time.Duration { return c.ClaimedAt.Sub(c.AvailableAt) }
