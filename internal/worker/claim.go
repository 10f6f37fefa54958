package worker

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// wish is an execution that a hint named and a slot is held for.
type wish struct {
	id      uuid.UUID
	inc     *incarnation
	decided *decision
}

// decision is waited for by those who wish.
type decision struct {
	sync.WaitGroup
	won atomic.Int64 // how many of the wishes became claims
}

// claimed is an attempt that is ours.
type claimed struct {
	id, tenant, job uuid.UUID
	version         int
	scheduledAt     time.Time
	availableAt     time.Time
	trigger         string
	jobType         string
	priority        int
	parameters      json.RawMessage
	attempt         int
	maxAttempts     int
	token           uuid.UUID
	timeout         time.Duration
	claimedAt       time.Time  // the database's clock
	asked           clock.Mark // when the claim was sent, so not after it was carried out
}

// claim takes what it can of a batch and starts the runs. Without an answer of
// the database it asks again with the same token, so that a claim whose
// commit was lost on the way finds its own rows.
func (w *Worker) claim(ctx context.Context, wishes []wish) {
	var inc *incarnation
	live := wishes[:0:0]
	var ids []uuid.UUID
	for _, x := range wishes {
		if x.inc.ctx.Err() != nil || w.unclaimable.has(x.id) {
			x.decided.Done()
			w.free()
			continue
		}
		inc = x.inc // all live wishes are of the one live incarnation
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
		won[r.id] = r
	}
	var late []heldRow
	for _, x := range live {
		r, ok := won[x.id]
		delete(won, x.id) // the same id twice in one batch is one claim
		switch {
		case !ok:
			w.free()
		case allowed(r.timeout, r.asked.Elapsed()) <= 0:
			late = append(late, heldRow{id: r.id, token: r.token})
			w.free()
		default:
			x.decided.won.Add(1)
			w.start(inc, r, specs[versionKey{r.job, r.version}])
		}
		x.decided.Done()
	}
	if len(late) > 0 {
		w.Log.WarnContext(ctx, "a claim was answered so late that the runs could outlive their deadlines, handing them back", "executions", len(late))
		w.handBack(ctx, late)
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
		w.doubt()
		pause(inc.ctx, wait)
		wait = min(2*wait, askAgain)
	}
}

func (w *Worker) claimOnce(ctx context.Context, inc *incarnation, token uuid.UUID, ids []uuid.UUID) ([]claimed, map[versionKey]definition, error) {
	asked := clock.Start()
	rows, err := w.store.claim(ctx, inc.member.ID, token, ids)
	if err != nil {
		return nil, nil, err
	}
	w.Metrics.Batch("claim", len(rows))
	keys := make([]versionKey, len(rows))
	for i, r := range rows {
		rows[i].asked, keys[i] = asked, versionKey{r.job, r.version}
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

// lateness is how long after it was allowed to an attempt was claimed, by the
// database's clock alone. A retry may start at its availableAt.
func (c claimed) lateness() time.Duration { return c.claimedAt.Sub(c.availableAt) }

// elapsed measures an attempt.
func elapsed(m clock.Mark) int64 { return m.Elapsed().Milliseconds() }
