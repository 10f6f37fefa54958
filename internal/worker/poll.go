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
	// between those that do not; it doubles from one to the other. Where more
	// was found than one claim takes, pollNow. Hints and ends of runs call for a
	// poll after pollMin: executions without a hint may wait behind one with a hint.
	//
	// While hints come and nothing was found, no call is heard before pollCalm: a
	// steady load calls all the time, and each poll costs a round trip for nothing.
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
	return seen.won, err
}

// pollResult is what a poll came to.
type pollResult struct {
	won   int
	full  bool          // no slot was free
	waits bool          // something may start, here or in another worker
	asked time.Duration // in the database
}

func (w *Worker) poll(ctx context.Context) (seen pollResult, err error) {
	inc := w.current.Load()
	open, kept := w.slots.free()
	if inc == nil || open+kept == 0 {
		return pollResult{full: inc != nil}, nil
	}
	turns := w.offer(inc, w.takeNext(min(open, claimBatch)))
	open = max(0, open-turns.made)
	busy := inc.busy()
	mark := clock.Start()
	found, err := w.findCandidates(ctx, min(open+kept, claimBatch), busy, &seen)
	if err != nil {
		return pollResult{}, err
	}
	seen.asked = mark.Elapsed()
	chosen := choose(found, busy, open, kept)
	byTenant := map[uuid.UUID][]choice{}
	for _, c := range chosen {
		byTenant[c.Tenant] = append(byTenant[c.Tenant], c)
	}
	offers := map[uuid.UUID]*offered{}
	for tenant, theirs := range byTenant {
		offers[tenant] = w.offer(inc, theirs)
	}
	seen.won = turns.settled()
	for tenant, o := range offers {
		won := o.settled()
		if o.made > 0 && won == 0 {
			w.refused[tenant] = clock.Start()
		}
		seen.won += won
	}
	return seen, nil
}

// findCandidates lists what waits and may start, most urgent first: now and then what
// waits for a slot or key that is free, and what is in the pool. It leaves out tenants
// whose candidates were refused just now.
func (w *Worker) findCandidates(ctx context.Context, most int, busy map[uuid.UUID]int, seen *pollResult) (found []dispatch.Candidate, err error) {
	if w.unblockedAt.Elapsed() >= unblockedEvery {
		w.unblockedAt = clock.Start()
		if found, w.afterUnblocked, err = w.store.PollUnblocked(ctx, most, w.afterUnblocked); err != nil {
			return nil, err
		}
	}
	pooled, after, err := w.store.Poll(ctx, most, w.afterTenant, busy)
	if err != nil {
		return nil, err
	}
	w.afterTenant = after
	seen.waits = len(found)+len(pooled) > 0
	for tenant, at := range w.refused {
		if at.Elapsed() >= refusedFor {
			delete(w.refused, tenant)
		}
	}
	for _, c := range pooled {
		if _, refused := w.refused[c.Tenant]; !refused {
			found = append(found, c)
		}
	}
	return found, nil
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
	s := &poller{worker: w, wait: pollMin}
	for ctx.Err() == nil {
		rest, wait := s.round(ctx)
		clock.Sleep(ctx, rest) // a call that comes meanwhile is heard after it
		timer := time.NewTimer(wait - rest)
		select {
		case <-timer.C:
		case <-w.woken:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// poller is what PollLoop knows from one round to the next.
type poller struct {
	worker *Worker
	wait   time.Duration // after the last poll
	away   clock.Mark    // when hints were last known not to come
	last   clock.Mark    // when it last put hinted executions into the pool
}

// round polls, and returns how long to rest and when to poll again if nobody calls
// before.
func (s *poller) round(ctx context.Context) (rest, wait time.Duration) {
	w := s.worker
	s.noteHints(ctx)
	err := s.poolHinted(ctx)
	var seen pollResult
	if err == nil {
		seen, err = w.poll(ctx)
	}
	switch {
	case err != nil:
		if ctx.Err() == nil {
			w.c.Log.WarnContext(ctx, "poll failed, asking again", "error", err)
		}
		return pollAfterError, pollAfterError
	case seen.won == claimBatch:
		s.wait = pollNow
	case seen.won > 0 || seen.full:
		s.wait = pollMin
	default:
		s.wait = min(max(2*s.wait, pollMin), pollMax)
	}
	rest = max(min(s.wait, s.quietTime(seen)), pollRest*seen.asked)
	return rest, max(rest, s.wait-s.wait/10+rand.N(s.wait/5))
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
