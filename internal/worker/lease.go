package worker

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/fleet"
	"github.com/scheduler-service/scheduler/internal/postgres/divide"
	"github.com/scheduler-service/scheduler/internal/queue"
)

// incarnation is a lease and what runs under it. When the lease is lost it is
// over for good: the worker goes on under a new one.
type incarnation struct {
	member fleet.Member
	ctx    context.Context // the life of the lease: every run under it ends with it
	end    context.CancelCauseFunc
	fence  time.Duration // after the last good heartbeat nothing runs under it

	mu      sync.Mutex
	running map[uuid.UUID]activeRun
	stopped error // why no further run may begin; nil: it may
	// good is when the last heartbeat that was answered was sent. Counted from
	// sending, so that this side always lets go before the database does.
	good clock.Mark
	// unknown are rows that the database says run here and do not, as the last
	// comparison found them: by execution, the lease token.
	unknown map[uuid.UUID]uuid.UUID
	// compared is when the last comparison ended, and calm how long none follows it.
	compared clock.Mark
	calm     time.Duration
	// claiming are the lease tokens of claims under way. A claim may take several
	// round trips and wait for a job's lock: what its first statement claimed is no
	// run yet when the heartbeat finds it, and releasing it would have it run here and
	// elsewhere. Of a claim that was answered it holds the tenants of what was claimed.
	claiming map[uuid.UUID][]uuid.UUID
}

// activeRun is a run under the lease.
type activeRun struct {
	token   uuid.UUID
	tenant  uuid.UUID
	stop    context.CancelCauseFunc
	attempt *attempt
}

// incarnations takes one lease after the other until ctx is cancelled.
func (w *Worker) incarnations(ctx context.Context) {
	first := sync.OnceFunc(func() { close(w.registered) })
	for ctx.Err() == nil {
		inc, err := w.incarnate(ctx)
		if err != nil {
			w.c.Log.ErrorContext(ctx, "worker cannot register, trying again", "error", err)
			clock.Sleep(ctx, time.Second)
			continue
		}
		w.current.Store(inc)
		w.ready.Store(true)
		first()
		w.hold(ctx, inc)
		w.ready.Store(false)
		w.current.Store(nil)
	}
}

// incarnate registers a new incarnation.
func (w *Worker) incarnate(ctx context.Context) (*incarnation, error) {
	inc := &incarnation{
		member:  fleet.Member{Host: w.c.Host, PID: w.c.PID, Slots: w.c.Slots, Types: w.c.Executor.Types(), Lease: w.c.Lease},
		fence:   w.c.Fence,
		running: map[uuid.UUID]activeRun{}, claiming: map[uuid.UUID][]uuid.UUID{}, good: clock.Start(),
		// Workers that start together do not compare together.
		compared: clock.Start(), calm: rand.N(w.c.Compare),
	}
	id, err := w.members.Register(ctx, inc.member)
	if err != nil {
		return nil, err
	}
	inc.member.ID = id
	inc.ctx, inc.end = context.WithCancelCause(ctx)
	w.c.Log.InfoContext(ctx, "worker registered", "worker_id", inc.member.ID, "slots", w.c.Slots)
	return inc, nil
}

// hold keeps the lease until it is lost or ctx is cancelled. The fence runs
// apart from the heartbeat, so that a heartbeat that hangs cannot delay it.
func (w *Worker) hold(ctx context.Context, inc *incarnation) {
	var all sync.WaitGroup
	all.Go(func() { w.fence(inc) })
	all.Go(func() { w.beat(inc) })
	all.Go(func() { w.attend(inc) })
	all.Wait()
	if ctx.Err() == nil {
		return
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := w.members.Retire(leaving, inc.member.ID); err != nil {
		w.c.Log.WarnContext(leaving, "worker could not retire; its lease will run out", "error", err)
	}
}

// fence ends the incarnation when no heartbeat was answered for too long.
func (w *Worker) fence(inc *incarnation) {
	for inc.ctx.Err() == nil {
		left := w.c.Fence - inc.lastGood().Elapsed()
		if left <= 0 {
			w.c.Metrics.SelfFenced()
			w.c.Log.ErrorContext(inc.ctx, "no heartbeat was answered: ending all runs before the database reassigns them",
				"worker_id", inc.member.ID, "running", inc.count())
			inc.end(errLeaseLost)
			return
		}
		clock.Sleep(inc.ctx, left)
	}
}

// beat renews the lease and acts on what comes back, until the lease is lost.
func (w *Worker) beat(inc *incarnation) {
	for inc.ctx.Err() == nil {
		clock.Sleep(inc.ctx, w.c.Heartbeat)
		sent := clock.Start()
		stands, err := w.renew(inc)
		switch {
		case inc.ctx.Err() != nil:
			return
		case err != nil:
			w.c.Log.WarnContext(inc.ctx, "heartbeat not answered", "error", err)
			w.compareSoon()
		case !stands:
			w.c.Log.ErrorContext(inc.ctx, "lease lost: the database counts this worker as dead", "worker_id", inc.member.ID)
			inc.end(errLeaseLost)
			return
		default:
			inc.answered(sent)
			w.compare(inc)
		}
	}
}

func (w *Worker) renew(inc *incarnation) (stands bool, err error) {
	ctx, cancel := context.WithTimeout(inc.ctx, w.c.Heartbeat)
	defer cancel()
	w.c.Metrics.SetRunning(inc.count())
	return w.members.Renew(ctx, inc.member, inc.count())
}

const (
	// compareRest is how many times its own length a comparison is followed by none:
	// it reads what all workers run, so a hundred of them take a tenth of one of the
	// database's cores at most, however much runs. No rest is longer than compareRestMost.
	compareRest     = 1000
	compareRestMost = 10 * time.Minute
	// compareSoonWithin is within how many heartbeats a worker compares after a request
	// to the database failed. It draws one of them, because all workers are in
	// doubt when the database was away.
	compareSoonWithin = 5
)

// compare reads the rows that the database says this worker runs, now and then:
// at its distance, soon after a request failed, and at once when the last
// comparison found a row that is unknown here.
func (w *Worker) compare(inc *incarnation) {
	if !inc.comparesNow() {
		return
	}
	ctx, cancel := context.WithTimeout(inc.ctx, w.c.Heartbeat)
	defer cancel()
	mark := clock.Start()
	rows, err := w.beats.RunsOf(ctx, inc.member.ID)
	if err != nil {
		w.c.Log.WarnContext(ctx, "held executions not read; a later heartbeat reads them", "error", err)
		inc.comparesAfter(compareSoonWithin * w.c.Heartbeat)
		return
	}
	inc.comparesAfter(clock.Rest(mark.Elapsed(), compareRest, w.c.Compare, compareRestMost))
	w.endAndRelease(ctx, inc, rows)
}

// compareSoon has the next comparison come soon: a request to the database failed, and
// may have been carried out.
func (w *Worker) compareSoon() {
	if inc := w.current.Load(); inc != nil {
		inc.comparesWithin(compareSoonWithin * w.c.Heartbeat)
	}
}

// endAndRelease ends the runs whose cancellation was asked for, and releases rows that
// two comparisons in a row found here without a run: a claim whose answer was lost, or
// what a failover brought back.
func (w *Worker) endAndRelease(ctx context.Context, inc *incarnation, rows []dispatch.Run) {
	var disowned []dispatch.Run
	inc.mu.Lock()
	unknown := map[uuid.UUID]uuid.UUID{}
	for _, r := range rows {
		run, here := inc.running[r.ID]
		switch {
		case here && run.token == r.Token:
			if r.Cancelling {
				run.stop(errCancelled)
			}
		case inc.underWay(r.Token): // its run is about to begin
		case inc.unknown[r.ID] == r.Token:
			disowned = append(disowned, r)
		default:
			unknown[r.ID] = r.Token
		}
	}
	inc.unknown = unknown
	inc.mu.Unlock()
	if len(disowned) > 0 {
		w.c.Metrics.Disowned(len(disowned))
		w.c.Log.WarnContext(ctx, "releasing executions that this worker does not run", "executions", len(disowned))
		w.release(ctx, disowned)
	}
}

// release makes executions pending again and hints them; one that the database
// refuses holds up none of the others.
func (w *Worker) release(ctx context.Context, rows []dispatch.Run) {
	err := divide.Items[dispatch.Run]{
		Send:  func(rows []dispatch.Run) error { return w.releaseTogether(ctx, rows) },
		Alone: func(_ dispatch.Run, err error) error { return err },
	}.All(rows)
	if err != nil {
		w.c.Log.WarnContext(ctx, "some executions not released; the next comparison finds them, or the sweeper when the lease ran out", "error", err, "executions", len(rows))
		w.compareSoon()
	}
}

// releaseTogether releases executions in one statement.
func (w *Worker) releaseTogether(ctx context.Context, rows []dispatch.Run) error {
	released, err := w.store.Release(ctx, rows)
	if err != nil {
		return err
	}
	for lane, ids := range lanesOf(released) {
		if err := w.c.Hints.Publish(ctx, lane, ids); err != nil {
			w.c.Log.DebugContext(ctx, "hints not sent, the sweeper sends them", "error", err)
		}
	}
	return nil
}

// add notes a run. The error says why it may not begin: the lease is lost already, or the
// worker ends what runs. A lease counts as lost once its fence has passed, also before the
// goroutine of the fence had its turn: after a standstill of the process the database may have
// reassigned what was claimed before.
func (inc *incarnation) add(a *attempt, stop context.CancelCauseFunc) error {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	if inc.ctx.Err() != nil || inc.good.Elapsed() >= inc.fence {
		return errLeaseLost
	}
	if inc.stopped != nil {
		return inc.stopped
	}
	inc.running[a.ID] = activeRun{token: a.Token, tenant: a.Tenant, stop: stop, attempt: a}
	return nil
}

// claims notes a claim under way.
func (inc *incarnation) claims(token uuid.UUID) {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	inc.claiming[token] = nil
}

// begins notes of a claim under way that the runs of found are about to begin.
func (inc *incarnation) begins(token uuid.UUID, found []dispatch.Claimed) {
	tenants := make([]uuid.UUID, len(found))
	for i, c := range found {
		tenants[i] = c.Tenant
	}
	inc.mu.Lock()
	defer inc.mu.Unlock()
	inc.claiming[token] = tenants
}

// claimed notes that a claim is not under way any more: its runs have begun.
func (inc *incarnation) claimed(token uuid.UUID) {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	delete(inc.claiming, token)
}

// underWay says whether a claim is under way. The caller holds mu.
func (inc *incarnation) underWay(token uuid.UUID) bool {
	_, claiming := inc.claiming[token]
	return claiming
}

// remove forgets a run, unless a later attempt of the same execution took its
// place.
func (inc *incarnation) remove(c claimed) {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	if inc.running[c.ID].token == c.Token {
		delete(inc.running, c.ID)
	}
}

// busy is how many runs of each tenant it holds, with those that are about to begin. While
// they begin, some count twice.
func (inc *incarnation) busy() map[uuid.UUID]int {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	runs := map[uuid.UUID]int{}
	for _, h := range inc.running {
		runs[h.tenant]++
	}
	for _, tenants := range inc.claiming {
		for _, tenant := range tenants {
			runs[tenant]++
		}
	}
	return runs
}

func (inc *incarnation) count() int {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	return len(inc.running)
}

// comparesNow says whether a comparison is due.
func (inc *incarnation) comparesNow() bool {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	return len(inc.unknown) > 0 || inc.compared.Elapsed() >= inc.calm
}

// comparesAfter notes that a comparison ended, and how long none follows.
func (inc *incarnation) comparesAfter(calm time.Duration) {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	inc.compared, inc.calm = clock.Start(), calm
}

// comparesWithin has the next comparison come at some moment within d.
func (inc *incarnation) comparesWithin(d time.Duration) {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	inc.calm = min(inc.calm, inc.compared.Elapsed()+rand.N(d))
}

func (inc *incarnation) lastGood() clock.Mark {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	return inc.good
}

func (inc *incarnation) answered(sent clock.Mark) {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	inc.good = sent
}

// lanesOf groups executions by the lane of their hints.
func lanesOf(waiting []dispatch.Waiting) map[queue.Lane][]uuid.UUID {
	out := map[queue.Lane][]uuid.UUID{}
	for _, w := range waiting {
		lane := queue.LaneFor(w.Priority)
		out[lane] = append(out[lane], w.ID)
	}
	return out
}
