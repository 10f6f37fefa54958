package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/queue"
)

const (
	// pollMin is the distance between polls that find something, and pollMax
	// between those that do not; it doubles from one to the other. It is pollNow where
	// more was claimed than half of what there was room for, and none after a claim that
	// was more than half full. Where no slot is left after that, the end of a run calls for
	// the next poll, after a rest as long as the last one took: a worker of 100 slots that
	// was deaf for pollMin drained a backlog of short runs at a third of the speed.
	// Executions without a hint may wait behind those with one, so
	// hints and ends of runs call for a poll after pollMin. They call for none while nothing
	// waits without a hint.
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
	// however much waits. No rest is longer than pollRestMost: a poll that took more than a
	// quarter of that has waited for something.
	pollRest     = 4
	pollRestMost = time.Second
	// idlePoll is the distance between polls while nothing at all waits without a hint
	// and those who change that call: calls may be lost.
	idlePoll = 2 * time.Second
	// yieldFor is how long a worker that is behind lets others go first when it is called, at first;
	// then it is twice as long. Both are up to a half shorter or longer, so that those who follow do not
	// come together where nobody went first. One that is not behind lets others go first for twice
	// yieldFor if all of its slots are taken, and for less in proportion to those that are.
	yieldFor = 25 * time.Millisecond
	// A worker is behind where others were quicker at followAt calls, one after the other: a single one
	// may have been for nothing, as that of a session which begins to listen. It counts no further
	// than mostBehind.
	followAt   = 2
	mostBehind = followAt + 1
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
		s.sleep(ctx, s.round(ctx))
	}
	return nil
}

// sleep waits until the next poll. A call that comes in a rest is heard after it.
func (s *poller) sleep(ctx context.Context, r rests) {
	w := s.worker
	clock.Sleep(ctx, r.least)
	if !s.pause(ctx, r.rest-r.least, nil, nil) && !s.pauseForOwn(ctx, r.deaf-r.rest, r.slots) {
		s.pause(ctx, r.wait-r.deaf, w.self, w.woken)
	}
}

// rests are times after a poll. The worker hears nothing before least, that room was made from then on,
// itself from rest on, and other processes from deaf on. After wait it polls without a call. slots says that it waits for
// slots: no other call can tell of more.
type rests struct {
	least, rest, deaf, wait time.Duration
	slots                   bool
}

// pause waits, and says whether a poll is called for meanwhile: by this worker, by another process, or
// because room was made.
func (s *poller) pause(ctx context.Context, wait time.Duration, self, others <-chan struct{}) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	s.self = false
	select {
	case <-s.worker.roomMade:
		s.worker.pooled = true
		clear(s.worker.refused)
		s.worker.idle.Store(false)
	case <-self:
		s.hear(ctx, false)
	case <-others:
		s.hear(ctx, true)
	case <-timer.C:
		select { // a call that came before this wait
		case <-self:
			s.hear(ctx, false)
		case <-others:
			s.hear(ctx, true)
		default:
			return false
		}
	case <-ctx.Done():
		return false
	}
	return true
}

// pauseForOwn is pause for calls by this worker. One that waits for slots, and is told of some, waits for those of all
// runs that have ended by then: one poll for all of its slots takes half of the time of two, each for a half.
func (s *poller) pauseForOwn(ctx context.Context, wait time.Duration, slots bool) (called bool) {
	w, began, due := s.worker, clock.Start(), int64(0)
	for s.pause(ctx, wait-began.Elapsed(), w.self, nil) {
		if due == 0 {
			due = w.ends.Load()
		}
		if !s.self || !slots || w.freed.Load() >= due {
			return true
		}
	}
	return false
}

// poller is what PollLoop knows from one round to the next.
type poller struct {
	worker *Worker
	wait   time.Duration // after the last poll
	away   clock.Mark    // when hints were last known not to come
	last   clock.Mark    // when it last put hinted executions into the pool
	asked  clock.Mark    // when it asked whether anything waits without a hint
	won    clock.Mark    // when a poll last won something
	called bool          // whether another process has called since the last poll
	self   bool          // whether this worker's own call alone ended the last rest
	empty  clock.Mark    // when a poll last found that nothing waits, unless one has found something since
	behind int           // how many calls, one after the other, others were quicker at
	others others
}

// hearsAll says whether the worker learns by hints and calls of everything that comes.
func (w *Worker) hearsAll() bool {
	return w.c.Called() && (w.c.Away == nil || !w.hintless.Load())
}

// byCallsAlone says whether it learns of everything by calls: there is no Redis.
func (w *Worker) byCallsAlone() bool { return w.c.Away == nil && w.c.Called() }

// hear notes a call, of another process or its own: what it tells of waits for its turn or is in the
// pool, or a hint came.
func (s *poller) hear(ctx context.Context, fromOther bool) {
	w := s.worker
	s.asked = clock.Mark{}
	s.called, s.self = fromOther, !fromOther
	if !w.byCallsAlone() {
		return
	}
	if fromOther {
		w.unblocked.called = true
		s.askOfOthers(ctx)
		s.yield(ctx)
	}
	if !fromOther || s.behind < followAt {
		w.idle.Store(false) // so it polls
	}
}

// yield lets others go first after a call, which is heard by all workers: one of them is enough for one
// execution. A worker to which others were quicker at the last calls lets those go first, and asks then whether
// they left something. An execution that the quickest worker cannot take starts up to 350 ms late: this one hears
// no other process for up to pollMax (restIdle) and then waits. One that was quickest and found nothing since
// lets others go first as far as its slots are taken, so that it does not take everything until all are.
func (s *poller) yield(ctx context.Context) {
	switch slots := s.worker.slots; {
	case s.follows():
		wait := yieldFor << (s.behind - followAt)
		clock.Sleep(ctx, wait/2+rand.N(wait))
	case s.others.live && !s.others.serveLess && s.worker.idle.Load():
		clock.Sleep(ctx, 2*yieldFor*time.Duration(slots.taken())/time.Duration(slots.all()))
	}
}

// noteRace notes whether others were quicker, if this poll followed a call. A call just after this
// worker won something may have been for that.
func (s *poller) noteRace(seen pollResult) {
	called := s.called
	s.called = false
	switch {
	case seen.won > 0:
		s.behind, s.won = 0, clock.Start()
	case called && !seen.full && s.won.Elapsed() > pollCalm:
		s.behind = min(s.behind+1, mostBehind)
	}
}

// askWhetherIdle notes whether a poll would find nothing, because nothing waits without a
// hint. It asks the database every two seconds, and after a call. The question costs less than
// the polls that it spares.
func (s *poller) askWhetherIdle(ctx context.Context) (asked bool, err error) {
	w := s.worker
	if !w.hearsAll() {
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
	w.pooled = w.pooled || waits // others may drain it already
	return true, err
}

// round polls, and returns how long nothing calls for the next poll.
func (s *poller) round(ctx context.Context) rests {
	w := s.worker
	s.noteHints(ctx)
	err := s.poolHinted(ctx)
	asked := false
	if err == nil && w.idle.Load() {
		asked, err = s.askWhetherIdle(ctx)
	}
	if err == nil && w.idle.Load() {
		return s.restIdle(asked)
	}
	s.askOfOthers(ctx)
	if err == nil && s.leavesPoolToOthers() {
		w.tryNamed()
		return rests{rest: pollCalm, deaf: pollCalm, wait: max(pollCalm, s.wait-s.empty.Elapsed())}
	}
	var seen pollResult
	if err == nil {
		seen, err = w.poll(ctx)
	}
	if err == nil {
		err = s.learn(ctx, seen)
	}
	if err != nil {
		if ctx.Err() == nil {
			w.c.Log.WarnContext(ctx, "poll failed, asking again", "error", err)
		}
		return evenRests(pollAfterError)
	}
	return s.after(seen)
}

// evenRests are those in which nothing at all is heard.
func evenRests(d time.Duration) rests { return rests{least: d, rest: d, deaf: d, wait: d} }

// restIdle is how long no call is heard while nothing waits. A worker that follows hears other processes some
// seven times a second at most, each worker at times of its own.
func (s *poller) restIdle(asked bool) rests {
	if !asked {
		return rests{wait: pollMax} // it cost nothing
	}
	s.noteRace(pollResult{})
	rest := pollMin
	if !s.worker.byCallsAlone() {
		rest = pollCalm
	}
	deaf := rest
	if s.follows() {
		deaf = pollMin + rand.N(pollMax-pollMin)
	}
	return rests{rest: rest, deaf: deaf, wait: pollMax}
}

// learn notes after a poll whether anything may wait still.
func (s *poller) learn(ctx context.Context, seen pollResult) (err error) {
	s.noteRace(seen)
	switch {
	case seen.full || seen.taken:
	case s.leads() && seen.won > 0 && !seen.more && !seen.keys:
		s.worker.idle.Store(true) // probably: it asks next
		s.asked = clock.Mark{}
	case seen.won == 0 && !seen.waits && (s.wait >= pollMax || s.worker.byCallsAlone()):
		_, err = s.askWhetherIdle(ctx)
	}
	return err
}

// after is what round returns after a poll that the database answered.
func (s *poller) after(seen pollResult) rests {
	keysIn := s.worker.unblocked.left(s.worker.share)
	if seen.won > 0 || seen.full {
		s.wait = pollMin
	}
	switch {
	case seen.taken:
		rest := s.worker.join.rest()
		return evenRests(rest/2 + rand.N(rest))
	case (seen.more || seen.keys) && s.worker.awaitsSlots():
		least := min(seen.asked, pollMin)
		return rests{least: least, rest: least, deaf: pollMin, wait: pollMin, slots: !s.worker.join.slowly()}
	case seen.won > claimBatch/2:
		return rests{}
	case seen.more || seen.keys && keysIn <= 0:
		return evenRests(pollNow)
	case seen.won == 0 && !seen.full:
		s.wait = min(max(2*s.wait, pollMin), s.worker.share(pollMax))
	}
	s.empty = clock.Mark{}
	if seen.won == 0 && !seen.waits && !seen.full && !seen.keys {
		s.empty = clock.Start()
	}
	least := restAfter(seen.asked)
	rest := max(min(s.wait, s.quietTime(seen)), least)
	wait := max(rest, s.wait-s.wait/10+rand.N(s.wait/5))
	if seen.keys {
		wait = max(least, min(wait, keysIn))
		rest = min(rest, wait)
	}
	return rests{least: least, rest: rest, deaf: rest, wait: wait}
}

// awaitsSlots says that every slot is taken, but those that are kept. It forgets a call from before, so that the next one
// tells of a slot that is free; a poll follows in any case.
func (w *Worker) awaitsSlots() bool {
	select {
	case <-w.self:
	default:
	}
	open, _ := w.slots.free()
	return open == 0
}

// restAfter is how long no poll follows one that took so long. It had no bound: a worker whose
// poll was answered after 14 s, because a standby confirmed nothing, polled no more for a
// minute, and took only what it had a hint for.
func restAfter(asked time.Duration) time.Duration {
	return clock.Rest(asked, pollRest, 0, pollRestMost)
}

// quietTime is how long no call is heard after a poll.
func (s *poller) quietTime(seen pollResult) time.Duration {
	if seen.waits || seen.full || s.worker.hintless.Load() && !s.follows() {
		return pollMin
	}
	return pollCalm
}

// leads says whether calls alone bring what this worker runs, and it was not slower than others at the last ones.
func (s *poller) leads() bool { return s.worker.byCallsAlone() && s.behind < followAt }

// follows says whether others were quicker at the last calls, and may be so at all: a call may be for what only
// this worker runs where no other lives, or some do not run all of its types. It asks first then, and lets nobody go first.
func (s *poller) follows() bool {
	return s.behind >= followAt && s.others.live && !s.others.serveLess
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
