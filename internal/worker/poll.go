package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/queue"
)

const (
	// pollMin is the distance between polls that find something, and pollMax
	// between those that do not; it doubles from one to the other. It is pollNow where
	// more was claimed than half of what there was room for, and none after a claim that
	// was more than half full. Hints and ends of runs call for a poll after pollMin:
	// executions without a hint may wait behind one with a hint.
	//
	// While hints come and nothing was found, no call is heard before pollCalm: a
	// steady load calls all the time, and each poll or question costs a round trip for
	// nothing.
	pollNow  = time.Millisecond
	pollMin  = 20 * time.Millisecond
	pollCalm = 100 * time.Millisecond
	pollMax  = 250 * time.Millisecond
	// pollRest is how many times its own length no poll follows a poll, so that a
	// worker keeps at most a fifth of one of the database's cores busy by polling,
	// however much waits.
	pollRest = 4
	// unblockedEvery is the distance between polls for executions that wait for a
	// concurrency slot or key that is free. The worker that frees one announces the
	// next; this finds those that no worker announced.
	unblockedEvery = 500 * time.Millisecond
	// idlePoll is the distance between polls while nothing at all waits without a hint
	// and those who change that call: calls may be lost.
	idlePoll = 2 * time.Second
	// refusedFor is how long a worker leaves a tenant alone after a poll that
	// claimed none of its candidates: others were quicker, or a limit of the
	// tenant is met.
	refusedFor = 100 * time.Millisecond
	// awayLinger is how long a worker counts hints as missing when Redis is
	// back: those who send hints notice it up to a second later.
	awayLinger = 3 * time.Second
	// poolHintedEvery is how often, while no hints come, hinted executions are put
	// into the pool, and poolHintedMost how many at once: more than the hints that
	// wait in a lane can name.
	poolHintedEvery = 100 * time.Millisecond
	poolHintedMost  = 2 * queue.Window * queue.MaxIDs
	// pollAfterError is the distance after a poll that the database refused.
	pollAfterError = askAgain
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
	more  bool          // so much was claimed that more may wait
	asked time.Duration // in the database
}

func (w *Worker) poll(ctx context.Context) (seen pollResult, err error) {
	inc := w.current.Load()
	open, kept := w.slots.free()
	if inc == nil || open+kept == 0 {
		return pollResult{full: inc != nil}, nil
	}
	turns := w.offer(inc, w.takeNext(min(open, claimBatch)))
	f := free{open: max(0, open-turns.made), kept: kept, busy: inc.busy()}
	most := min(f.open+kept, claimBatch)
	mark := clock.Start()
	found, err := w.findUnblocked(ctx, most)
	if err != nil {
		return pollResult{}, err
	}
	if w.pooled {
		seen.won = w.offerAll(inc, choose(found, f.busy, f.open, f.kept))
		if most -= seen.won; most > 0 {
			err = w.claimPooled(ctx, inc, most, f, &seen)
		}
	} else {
		var pooled []dispatch.Candidate
		pooled, err = w.findPooled(ctx, most, f)
		seen.asked, seen.waits = mark.Elapsed(), len(pooled) > 0
		found = append(found, w.notRefused(pooled)...)
		seen.won = w.offerAll(inc, choose(found, f.busy, f.open, f.kept))
		seen.more = seen.won > most/2
	}
	seen.won += turns.settled()
	seen.waits = seen.waits || len(found) > 0
	w.pooled = seen.won > 0
	return seen, err
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

// findUnblocked lists, now and then, what waits for a slot or key that is free.
func (w *Worker) findUnblocked(ctx context.Context, most int) (found []dispatch.Candidate, err error) {
	if w.unblockedAt.Elapsed() < unblockedEvery {
		return nil, nil
	}
	w.unblockedAt = clock.Start()
	found, w.afterUnblocked, err = w.store.PollUnblocked(ctx, most, w.afterUnblocked)
	return found, err
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
	w.wake()
}

// Wake calls for a poll: somebody pooled executions without a hint.
func (w *Worker) Wake() { w.wake() }

// callAtOnce calls for a poll that does not rest before: an end here made room under the
// limit of a tenant, and what waits for that is in the pool. Each worker polls for the room
// that it made, in turn. When all named the next in line to each other instead, several
// claimed the same executions: 16 workers drained the backlog of a tenant at its limit at
// half the rate of one.
func (w *Worker) callAtOnce() {
	select {
	case w.roomMade <- struct{}{}:
	default:
	}
}

// wakeUnlessIdle calls for a poll, because a slot is free or executions with a hint were
// handled: others may wait behind them. Where nothing waits they tell nothing new, and each of
// them would cost the question whether it still does: more than half of a question for each
// execution of a fleet.
func (w *Worker) wakeUnlessIdle() {
	if !w.idle.Load() {
		w.wake()
	}
}

// wake calls for a poll.
func (w *Worker) wake() {
	select {
	case w.woken <- struct{}{}:
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

// PollLoop polls until ctx is cancelled, then returns nil. While Deps.Away says
// that no hints come, it also puts hinted executions into the pool.
func (w *Worker) PollLoop(ctx context.Context) error {
	defer w.hintless.Store(false)
	defer w.beginning.Wait()
	defer w.idle.Store(false)
	w.polling.Store(true)
	defer context.AfterFunc(ctx, func() { w.polling.Store(false) })()
	s := &poller{worker: w, wait: pollMin}
	for ctx.Err() == nil {
		least, rest, wait := s.round(ctx)
		clock.Sleep(ctx, least)
		// A call that comes in the rest is heard after it.
		if !s.called(ctx, rest-least, nil) {
			s.called(ctx, wait-rest, w.woken)
		}
	}
	return nil
}

// called waits, and says whether a poll is called for meanwhile: by woken, or because
// room was made.
func (s *poller) called(ctx context.Context, wait time.Duration, woken <-chan struct{}) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-s.worker.roomMade:
		s.worker.pooled = true
		clear(s.worker.refused)
		s.worker.idle.Store(false)
	case <-woken: // what it was told of waits for its turn or is in the pool, or a hint came
		s.asked = clock.Mark{}
	case <-timer.C:
		return false
	case <-ctx.Done():
		return false
	}
	return true
}

// poller is what PollLoop knows from one round to the next.
type poller struct {
	worker *Worker
	wait   time.Duration // after the last poll
	away   clock.Mark    // when hints were last known not to come
	last   clock.Mark    // when it last put hinted executions into the pool
	asked  clock.Mark    // when it asked whether anything waits without a hint
}

// askWhetherIdle notes whether a poll would find nothing, because nothing waits without a
// hint. It asks the database every two seconds, and after a call: where hints come, each of
// them calls, and the question costs less than the polls that it spares.
func (s *poller) askWhetherIdle(ctx context.Context) (asked bool, err error) {
	w := s.worker
	if w.hintless.Load() || !w.c.Called() {
		w.idle.Store(false)
		return false, nil
	}
	if s.asked.Elapsed() < idlePoll {
		return false, nil
	}
	s.asked = clock.Start()
	w.idle.Store(false)
	waits, err := w.store.Unhinted(ctx)
	w.idle.Store(err == nil && !waits)
	return true, err
}

// round polls, and returns how long no call at all is heard, how long only one for room that
// was made, and when to poll again if nobody calls before.
func (s *poller) round(ctx context.Context) (least, rest, wait time.Duration) {
	w := s.worker
	s.noteHints(ctx)
	err := s.poolHinted(ctx)
	asked := false
	if err == nil && w.idle.Load() {
		asked, err = s.askWhetherIdle(ctx)
	}
	if err == nil && w.idle.Load() {
		if asked {
			return 0, pollCalm, pollMax
		}
		return 0, pollMin, pollMax
	}
	var seen pollResult
	if err == nil {
		seen, err = w.poll(ctx)
	}
	if err == nil && seen.won == 0 && !seen.waits && !seen.full && s.wait == pollMax {
		_, err = s.askWhetherIdle(ctx)
	}
	switch {
	case err != nil:
		if ctx.Err() == nil {
			w.c.Log.WarnContext(ctx, "poll failed, asking again", "error", err)
		}
		return pollAfterError, pollAfterError, pollAfterError
	case seen.won > claimBatch/2:
		return 0, 0, 0
	case seen.more:
		return pollNow, pollNow, pollNow
	case seen.won > 0 || seen.full:
		s.wait = pollMin
	default:
		s.wait = min(max(2*s.wait, pollMin), pollMax)
	}
	least = pollRest * seen.asked
	rest = max(min(s.wait, s.quietTime(seen)), least)
	return least, rest, max(rest, s.wait-s.wait/10+rand.N(s.wait/5))
}

// quietTime is how long no call is heard after a poll.
func (s *poller) quietTime(seen pollResult) time.Duration {
	if seen.waits || seen.full || s.worker.hintless.Load() {
		return pollMin
	}
	return pollCalm
}

// poolHinted puts hinted executions into the pool while no hints come.
func (s *poller) poolHinted(ctx context.Context) error {
	if s.worker.c.Away == nil || !s.worker.hintless.Load() || s.last.Elapsed() < poolHintedEvery {
		return nil // without any Redis nothing was hinted
	}
	s.last = clock.Start()
	_, err := s.worker.store.PoolLate(ctx, time.Time{}, dispatch.HintPatience, poolHintedMost, nil)
	return err
}

// noteHints notes when hints stop coming and when they come again.
func (s *poller) noteHints(ctx context.Context) {
	w := s.worker
	away := w.c.Away == nil || w.c.Away()
	if away {
		s.away = clock.Start()
	}
	switch hintless := w.hintless.Load(); {
	case away && !hintless:
		w.hintless.Store(true)
		if w.c.Away != nil {
			w.c.Log.WarnContext(ctx, "no hints come, polling for what was hinted too")
		}
	case !away && hintless && s.away.Elapsed() > awayLinger:
		w.hintless.Store(false)
		w.c.Log.InfoContext(ctx, "hints come again")
	}
}
