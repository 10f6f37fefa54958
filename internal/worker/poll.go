package worker

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
)

const (
	// unblockedEvery is the distance between polls of a fleet for executions that wait for a
	// concurrency slot or key that is free. The worker that frees one announces the
	// next; this finds those that no worker announced.
	unblockedEvery = 500 * time.Millisecond
	// unblockedCalled is the distance where another process called and calls alone bring work:
	// nobody hints what has a concurrency key or waits for a slot then, and no poll finds it.
	unblockedCalled = 50 * time.Millisecond
	// unblockedMany is how many claims of executions that waited for a slot or key are worth a poll without a rest.
	unblockedMany = claimBatch / 8
	// refusedFor is how long a worker leaves a tenant alone after a poll that
	// claimed none of its candidates: others were quicker, or a limit of the
	// tenant is met.
	refusedFor = 100 * time.Millisecond
)

// Poll asks once for executions that wait without a hint and may start, and claims as
// many as there are slots free: first those that may start because a run ended here,
// then those in the pool, fairly between tenants. It returns how many it claimed, and
// not what other workers were quicker to claim. It is the same claim that hints lead
// to, so both go on side by side. One goroutine polls.
func (w *Worker) Poll(ctx context.Context) (won int, err error) {
	seen, err := w.poll(ctx)
	w.beginning.Wait()
	return seen.won, err
}

// pollResult is what a poll came to.
type pollResult struct {
	won   int
	full  bool          // no slot was free
	waits bool          // something may start, here or in another worker
	taken bool          // others drain a backlog, and this worker does not join them yet
	more  bool          // so much was claimed that more may wait
	keys  bool          // likewise for free slots and keys, which have a rest of their own
	asked time.Duration // in the database
}

func (w *Worker) poll(ctx context.Context) (seen pollResult, err error) {
	inc := w.current.Load()
	open, kept := w.slots.free()
	if inc == nil || open+kept == 0 {
		return pollResult{full: inc != nil}, nil
	}
	turns := w.offerNamed(inc, open)
	f := free{open: max(0, open-turns.made), kept: kept, busy: inc.busy()}
	most := min(f.open+kept, claimBatch)
	if w.pooled {
		joins, err := w.joins(ctx, inc)
		if err != nil || !joins {
			return pollResult{won: turns.settled(), taken: true}, err
		}
	}
	mark := clock.Start()
	found, err := w.unblocked.find(ctx, w, most, open > 0)
	if err != nil {
		return pollResult{}, err
	}
	if w.pooled {
		seen.won = w.offerAll(inc, choose(found, f.busy, f.open, f.kept))
		w.unblocked.note(seen.won, most)
		if rest := most - seen.won; rest > 0 {
			err = w.claimPooled(ctx, inc, rest, f, &seen)
		}
	} else {
		var pooled []dispatch.Candidate
		pooled, err = w.findPooled(ctx, most, f)
		seen.asked, seen.waits = mark.Elapsed(), len(pooled) > 0
		seen.won = w.offerAll(inc, choose(append(slices.Clip(found), w.notRefused(pooled)...), f.busy, f.open, f.kept))
		w.unblocked.note(min(seen.won, len(found)), most)
		seen.more = seen.won > most/2
	}
	seen.keys = w.unblocked.callAfter(seen.won, f.open)
	seen.won += turns.settled()
	seen.waits = seen.waits || len(found) > 0
	w.pooled = seen.won > 0
	return seen, err
}

// tryNamed claims what was named to this worker, as far as there are slots, and asks for nothing else.
func (w *Worker) tryNamed() {
	if inc := w.current.Load(); inc != nil {
		open, _ := w.slots.free()
		w.offerNamed(inc, open).settled()
	}
}

// offerNamed requests the claims of up to open executions that were named to this worker.
func (w *Worker) offerNamed(inc *incarnation, open int) *offered {
	return w.offer(inc, w.takeNext(min(open, claimBatch)))
}

// offerAll requests the claims of choices, and returns how many became claims.
func (w *Worker) offerAll(inc *incarnation, chosen []choice) (won int) {
	byTenant := map[uuid.UUID][]choice{}
	for _, c := range chosen {
		byTenant[c.Tenant] = append(byTenant[c.Tenant], c)
	}
	offers := map[uuid.UUID]*offered{}
	for tenant, theirs := range byTenant {
		offers[tenant] = w.offer(inc, theirs)
	}
	for tenant, o := range offers {
		n := o.settled()
		if o.made > 0 && n == 0 {
			w.refused[tenant] = clock.Start()
		}
		won += n
	}
	return won
}

// free is what a poll may choose for.
type free struct {
	open, kept int
	busy       map[uuid.UUID]int // runs of each tenant here
}

// unblockedPolls is what a worker knows of its polls for executions whose slot or key is free.
type unblockedPolls struct {
	after     dispatch.Position // where the next one goes on
	at        clock.Mark        // the last one
	took      time.Duration
	won       int
	more      bool // it claimed most of what there was room for, so more may wait
	poolsTurn bool // the next poll is for the pool alone
	called    bool // another process has called since
}

// find lists, now and then, what waits for a slot or key that is free.
func (u *unblockedPolls) find(ctx context.Context, w *Worker, most int, open bool) (found []dispatch.Candidate, err error) {
	if !u.due(w.share, open) {
		return nil, nil
	}
	few := u.more
	*u = unblockedPolls{after: u.after, at: clock.Start()}
	found, u.after, err = w.store.PollUnblocked(ctx, most, few, u.after)
	u.took = u.at.Elapsed()
	return found, err
}

// due says whether it is time to ask for free slots and keys. After a question that brought most of what there was room
// for, the next poll is for the pool alone. Then the worker may ask again, after a rest as long as the question took and
// as long again for each worker that shares these polls (share). So those of shareMost workers keep one of the database's
// cores busy at most. After unblockedMany claims or more it needs no rest. A fleet that asked every unblockedEvery alone
// drained a backlog of executions that have a key each, and no limit, at 400 to 600 a second, and at 24 where each worker
// had 12 slots.
func (u *unblockedPolls) due(share func(time.Duration) time.Duration, open bool) bool {
	if u.poolsTurn {
		u.poolsTurn = false
		return false
	}
	wait := share(unblockedEvery)
	if u.called {
		wait = min(wait, unblockedCalled)
	}
	if u.more && open {
		wait = min(wait, u.rest(share))
	}
	return u.at.Elapsed() >= wait
}

// note notes how many of those that waited for a slot or key the last poll claimed, which had room for most.
func (u *unblockedPolls) note(won, most int) {
	if won > 0 {
		u.won, u.more = won, won > most/2
		u.poolsTurn = u.more
	}
}

// callAfter says whether a poll that claimed won, and had open slots besides those that are kept, calls for the next one
// because of keys and slots. Without an open slot the end of a run does.
func (u *unblockedPolls) callAfter(won, open int) bool { return u.more && (won > 0 || open > 0) }

// rest is how long after the last of these polls, which left more, the next one may be.
func (u *unblockedPolls) rest(share func(time.Duration) time.Duration) time.Duration {
	if u.won >= unblockedMany {
		return 0
	}
	return min(u.took+share(u.took), share(unblockedEvery))
}

// left is how long the poller waits for the next of these polls, after one that left more and the pool's turn.
func (u *unblockedPolls) left(share func(time.Duration) time.Duration) time.Duration {
	if !u.more || u.poolsTurn {
		return 0
	}
	return u.rest(share) - u.at.Elapsed()
}

// findPooled lists what is in the pool and may start.
func (w *Worker) findPooled(ctx context.Context, most int, f free) ([]dispatch.Candidate, error) {
	found, after, err := w.store.Poll(ctx, most, w.afterTenant, f.busy)
	if err == nil {
		w.afterTenant = after
	}
	return found, err
}

// notRefused leaves out tenants whose candidates were refused just now.
func (w *Worker) notRefused(found []dispatch.Candidate) (rest []dispatch.Candidate) {
	for tenant, at := range w.refused {
		if at.Elapsed() >= refusedFor {
			delete(w.refused, tenant)
		}
	}
	for _, c := range found {
		if _, refused := w.refused[c.Tenant]; !refused {
			rest = append(rest, c)
		}
	}
	return rest
}

// offered are the claim requests of one poll.
type offered struct {
	decision
	made int
}

// settled waits until the requests are decided, and says how many became claims.
func (o *offered) settled() int {
	o.Wait()
	return int(o.won.Load())
}

// offer requests the claims of choices that get a slot at once.
func (w *Worker) offer(inc *incarnation, choices []choice) *offered {
	o := &offered{}
	for _, c := range choices {
		if !w.slots.takeNow(c.kept) {
			continue // hints were quicker; it is found again
		}
		o.made++
		w.requestClaim(inc, c.ID, &o.decision)
	}
	return o
}

// tryHere has the next Poll try executions, at once. Beyond what it has room for, a
// later one finds them.
func (w *Worker) tryHere(ids []uuid.UUID) {
	for _, id := range ids {
		select {
		case w.next <- id:
		default:
		}
	}
	w.callItself()
}

// Wake calls for a poll: another process pooled executions without a hint.
func (w *Worker) Wake() { call(w.woken) }

// callAtOnce calls for a poll that does not rest before: an end here made room under the
// limit of a tenant, and what waits for that is in the pool. Each worker polls for the room
// that it made, in turn. When all named the next in line to each other instead, several
// claimed the same executions: 16 workers drained the backlog of a tenant at its limit at
// half the rate of one.
func (w *Worker) callAtOnce() { call(w.roomMade) }

// wakeUnlessIdle calls for a poll, because a slot is free or executions with a hint were
// handled: others may wait behind them. Where nothing waits they tell nothing new, and each of
// them would cost the question whether it still does: more than half of a question for each
// execution of a fleet.
func (w *Worker) wakeUnlessIdle() {
	if !w.idle.Load() {
		w.callItself()
	}
}

// callItself calls for a poll because of something that this worker did.
func (w *Worker) callItself() { call(w.self) }

// call calls for a poll, unless one is called for in this way already.
func call(of chan<- struct{}) {
	select {
	case of <- struct{}{}:
	default:
	}
}

// takeNext takes up to n of what tryHere brought.
func (w *Worker) takeNext(n int) (found []choice) {
	for len(found) < n {
		select {
		case id := <-w.next:
			found = append(found, choice{Candidate: dispatch.Candidate{ID: id}})
		default:
			return found
		}
	}
	return found
}
