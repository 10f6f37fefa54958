package worker

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fleet"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/queue"
)

// incarnation is a lease and what runs under it. When the lease is lost it is
// over for good: the worker goes on under a new one.
type incarnation struct {
	member fleet.Member
	ctx    context.Context // the life of the lease: every run under it ends with it
	end    context.CancelCauseFunc

	mu      sync.Mutex
	running map[uuid.UUID]held
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
	// round trips and wait for a job's lock: what its first statement took is no
	// run yet when the heartbeat finds it, and to give it back would have it run
	// here and elsewhere.
	claiming map[uuid.UUID]bool
}

// held is a run under the lease.
type held struct {
	token    uuid.UUID
	tenant   uuid.UUID
	priority int
	stop     context.CancelCauseFunc
}

// incarnations takes one lease after the other until ctx is cancelled.
func (w *Worker) incarnations(ctx context.Context) {
	for ctx.Err() == nil {
		inc, err := w.incarnate(ctx)
		if err != nil {
			w.Log.ErrorContext(ctx, "worker cannot register, trying again", "error", err)
			pause(ctx, time.Second)
			continue
		}
		w.current.Store(inc)
		w.ready.Store(true)
		w.hold(ctx, inc)
		w.ready.Store(false)
		w.current.Store(nil)
	}
}

// incarnate registers a new incarnation.
func (w *Worker) incarnate(ctx context.Context) (*incarnation, error) {
	inc := &incarnation{
		member:  fleet.Member{ID: uuid.New(), Host: w.Host, PID: w.PID, Slots: w.Slots, Types: w.Executor.Types(), Lease: w.Lease},
		running: map[uuid.UUID]held{}, claiming: map[uuid.UUID]bool{}, good: clock.Start(),
		// Workers that start together do not compare together.
		compared: clock.Start(), calm: rand.N(w.Compare),
	}
	if err := w.members.Register(ctx, inc.member); err != nil {
		return nil, err
	}
	inc.ctx, inc.end = context.WithCancelCause(ctx)
	w.Log.InfoContext(ctx, "worker registered", "worker_id", inc.member.ID, "slots", w.Slots)
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
		w.Log.WarnContext(leaving, "worker could not retire; its lease will run out", "error", err)
	}
}

// fence ends the incarnation when no heartbeat was answered for too long.
func (w *Worker) fence(inc *incarnation) {
	for inc.ctx.Err() == nil {
		left := w.Fence - inc.lastGood().Elapsed()
		if left <= 0 {
			w.Metrics.SelfFenced()
			w.Log.ErrorContext(inc.ctx, "no heartbeat was answered: ending all runs before the database hands them on",
				"worker_id", inc.member.ID, "running", inc.count())
			inc.end(errLeaseLost)
			return
		}
		pause(inc.ctx, left)
	}
}

// beat renews the lease and acts on what comes back, until the lease is lost.
func (w *Worker) beat(inc *incarnation) {
	for inc.ctx.Err() == nil {
		pause(inc.ctx, w.Heartbeat)
		sent := clock.Start()
		stands, err := w.renew(inc)
		switch {
		case inc.ctx.Err() != nil:
			return
		case err != nil:
			w.Log.WarnContext(inc.ctx, "heartbeat not answered", "error", err)
			w.doubt()
		case !stands:
			w.Log.ErrorContext(inc.ctx, "lease lost: the database counts this worker as dead", "worker_id", inc.member.ID)
			inc.end(errLeaseLost)
			return
		default:
			inc.answered(sent)
			w.compare(inc)
		}
	}
}

func (w *Worker) renew(inc *incarnation) (stands bool, err error) {
	ctx, cancel := context.WithTimeout(inc.ctx, w.Heartbeat)
	defer cancel()
	w.Metrics.SetActiveJobs(inc.count())
	return w.members.Renew(ctx, inc.member, inc.count())
}

const (
	// compareRest is how many times its own length a comparison is followed by none:
	// it reads what all workers run, so a hundred of them take a tenth of one of the
	// database's cores at most, however much runs.
	compareRest = 1000
	// doubtWithin is within how many heartbeats a worker compares after a request
	// to the database failed. It draws one of them, because all workers are in
	// doubt when the database was away.
	doubtWithin = 5
)

// compare reads the rows that the database says this worker runs, now and then:
// at its distance, soon after a request failed, and at once when the last
// comparison found a row that is unknown here.
func (w *Worker) compare(inc *incarnation) {
	if !inc.comparesNow() {
		return
	}
	ctx, cancel := context.WithTimeout(inc.ctx, w.Heartbeat)
	defer cancel()
	mark := clock.Start()
	rows, err := w.store.held(ctx, inc.member.ID)
	if err != nil {
		w.Log.WarnContext(ctx, "held executions not read; a later heartbeat reads them", "error", err)
		inc.comparesAfter(doubtWithin * w.Heartbeat)
		return
	}
	inc.comparesAfter(max(w.Compare, compareRest*mark.Elapsed()))
	w.giveUp(ctx, inc, rows)
}

// doubt has the next comparison come soon: a request to the database failed, and
// may have been carried out.
func (w *Worker) doubt() {
	if inc := w.current.Load(); inc != nil {
		inc.comparesWithin(doubtWithin * w.Heartbeat)
	}
}

// giveUp ends the runs whose cancellation was asked for, and gives back rows
// that two comparisons in a row found here without a run: a claim whose answer
// was lost, or what a failover brought back.
func (w *Worker) giveUp(ctx context.Context, inc *incarnation, rows []heldRow) {
	var disowned []heldRow
	inc.mu.Lock()
	unknown := map[uuid.UUID]uuid.UUID{}
	for _, r := range rows {
		run, here := inc.running[r.id]
		switch {
		case here && run.token == r.token:
			if r.cancelling {
				run.stop(errCancelled)
			}
		case inc.claiming[r.token]: // its run is about to begin
		case inc.unknown[r.id] == r.token:
			disowned = append(disowned, r)
		default:
			unknown[r.id] = r.token
		}
	}
	inc.unknown = unknown
	inc.mu.Unlock()
	if len(disowned) > 0 {
		w.Metrics.Disowned(len(disowned))
		w.Log.WarnContext(ctx, "giving back executions that this worker does not run", "executions", len(disowned))
		w.handBack(ctx, disowned)
	}
}

// handBack makes executions pending again and hints them; one that the database
// refuses holds up none of the others.
func (w *Worker) handBack(ctx context.Context, rows []heldRow) {
	if len(rows) == 0 {
		return
	}
	released, err := w.store.release(ctx, rows)
	if half := len(rows) / 2; half > 0 && postgres.Refused(err) {
		w.handBack(ctx, rows[:half])
		w.handBack(ctx, rows[half:])
		return
	}
	if err != nil {
		w.Log.WarnContext(ctx, "executions not handed back; the next comparison finds them, or the sweeper when the lease ran out", "error", err, "executions", len(rows))
		w.doubt()
		return
	}
	for lane, ids := range released {
		if err := w.Hints.Publish(ctx, lane, ids); err != nil {
			w.Log.DebugContext(ctx, "hints not sent, the sweeper sends them", "error", err)
		}
	}
}

// add notes a run; it reports false when the lease is lost already.
func (inc *incarnation) add(c claimed, stop context.CancelCauseFunc) bool {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	if inc.ctx.Err() != nil {
		return false
	}
	inc.running[c.id] = held{token: c.token, tenant: c.tenant, priority: c.priority, stop: stop}
	return true
}

// claims notes a claim under way, or that its runs have begun.
func (inc *incarnation) claims(token uuid.UUID, underWay bool) {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	if underWay {
		inc.claiming[token] = true
	} else {
		delete(inc.claiming, token)
	}
}

// remove forgets a run, unless a later attempt of the same execution took its
// place.
func (inc *incarnation) remove(c claimed) {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	if inc.running[c.id].token == c.token {
		delete(inc.running, c.id)
	}
}

// endAll ends every run and answers which.
func (inc *incarnation) endAll(why error) []heldRow {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	rows := make([]heldRow, 0, len(inc.running))
	for id, h := range inc.running {
		h.stop(why)
		rows = append(rows, heldRow{id: id, token: h.token})
	}
	return rows
}

// busy is how many runs of each tenant it holds.
func (inc *incarnation) busy() map[uuid.UUID]int {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	runs := map[uuid.UUID]int{}
	for _, h := range inc.running {
		runs[h.tenant]++
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

// lanesOf groups released executions by lane.
func lanesOf(rows []released) map[queue.Lane][]uuid.UUID {
	out := map[queue.Lane][]uuid.UUID{}
	for _, r := range rows {
		lane := queue.LaneFor(r.priority)
		out[lane] = append(out[lane], r.id)
	}
	return out
}

// released is an execution that waits again.
type released struct {
	id       uuid.UUID
	priority int
}
