package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/queue"
)

// A worker that is called all the time polls seldom while its polls find nothing, and
// soon where there is something to find.
func TestQuietTime(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		seen     pollResult
		hintless bool
		alone    bool // calls come, and there is no Redis
		behind   int
		soon     bool
	}{
		{name: "nothing waits, and hints come"},
		{name: "nothing waits, and no hints come", hintless: true, soon: true},
		{name: "nothing waits, and calls come alone", hintless: true, alone: true, soon: true},
		{name: "nothing waits, calls come alone, and others are quicker", hintless: true, alone: true, behind: followAt},
		{name: "some was claimed", seen: pollResult{waits: true, won: 3}, soon: true},
		{name: "others were quicker", seen: pollResult{waits: true}, soon: true},
		{name: "no slot was free", seen: pollResult{full: true}, soon: true},
	} {
		w := &Worker{c: Config{Called: func() bool { return test.alone }}}
		w.hintless.Store(test.hintless)
		want := pollCalm
		if test.soon {
			want = pollMin
		}
		if got := (&poller{worker: w, behind: test.behind, others: others{live: true}}).quietTime(test.seen); got != want {
			t.Errorf("%s: %v, want %v", test.name, got, want)
		}
	}
}

// Nothing calls for a poll before a worker has stayed away. After a poll that won much it polls
// at once.
func TestAfterAPoll(t *testing.T) {
	t.Parallel()
	w := &Worker{}
	s := &poller{worker: w, wait: pollMin}
	w.join = joining{pause: joinMost}
	if r := s.after(pollResult{taken: true}); r.least < joinMost/2 || r.least > 2*joinMost || r != evenRests(r.least) {
		t.Errorf("while others drain: %v, want %v to %v each", r, joinMost/2, 2*joinMost)
	}
	w.join.frees = 1
	if r := s.after(pollResult{taken: true}); r.least < joinAsk/2 || r.least > 2*joinAsk || r != evenRests(r.least) {
		t.Errorf("where the turn was found free once: %v, want %v to %v each", r, joinAsk/2, 2*joinAsk)
	}
	if r := s.after(pollResult{won: claimBatch}); r != (rests{}) {
		t.Errorf("after a poll that won a batch: %v, want none", r)
	}
}

// A worker polls again soon after a poll that took long because the database did not answer.
func TestPollsRestBriefly(t *testing.T) {
	t.Parallel()
	for asked, want := range map[time.Duration]time.Duration{0: 0, 5 * time.Millisecond: 20 * time.Millisecond, 14 * time.Second: time.Second} {
		if got := restAfter(asked); got != want {
			t.Errorf("after a poll of %v: %v, want %v", asked, got, want)
		}
	}
}

// Where nothing waits without a hint, a free slot and a handled hint call for no poll. A
// retry does, and a call from another process.
func TestIdleWorkerIsCalledByWhatMayWait(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		idle   bool
		happen func(w *Worker)
		called bool
	}{
		{name: "slots are free", happen: func(w *Worker) { w.accept(t.Context(), nil, nil) }, called: true},
		{name: "slots are free, and nothing waits", idle: true, happen: func(w *Worker) { w.accept(t.Context(), nil, nil) }},
		{name: "a hint was handled", happen: handleNothing(t), called: true},
		{name: "a hint was handled, and nothing waits", idle: true, happen: handleNothing(t)},
		{name: "a hint was handled but for one execution, and nothing waited", idle: true, happen: func(w *Worker) { w.handled(2, 1) }, called: true},
		{name: "an attempt is repeated, and nothing waited", idle: true, happen: func(w *Worker) {
			w.accept(t.Context(), []ended{{inc: &incarnation{}, slotless: true, outcome: dispatch.Outcome{Succeeded: true}}}, []dispatch.Verdict{{Status: "retrying"}})
		}, called: true},
		{name: "somebody pooled", idle: true, happen: (*Worker).Wake, called: true},
	} {
		w := &Worker{woken: make(chan struct{}, 1), self: make(chan struct{}, 1), takingSlots: make(chan struct{}, 1)}
		w.idle.Store(test.idle)
		test.happen(w)
		if got := len(w.woken)+len(w.self) > 0; got != test.called {
			t.Errorf("%s: called is %v, want %v", test.name, got, test.called)
		}
	}
}

// handleNothing handles a hint that names no execution.
func handleNothing(t *testing.T) func(w *Worker) {
	return func(w *Worker) {
		w.current.Store(&incarnation{})
		if err := w.Handle(t.Context(), queue.LaneFor(0), nil); err != nil {
			t.Error(err)
		}
	}
}

// newPoller makes one of a worker that learns of everything by calls, beside others.
func newPoller(most int) *poller {
	w := &Worker{c: Config{Called: func() bool { return true }}, slots: newSlots(most)}
	return &poller{worker: w, others: others{asked: clock.Start(), live: true}}
}

// Without a Redis a call is heard by all workers. One that was quickest polls at once, and the others
// look later and later whether it left something.
func TestWorkersFollowTheQuickest(t *testing.T) {
	t.Parallel()
	s := newPoller(1)
	w := s.worker
	call := func(seen pollResult) (polls bool) {
		w.idle.Store(true)
		s.hear(t.Context(), true)
		polls = !w.idle.Load()
		s.won = clock.Mark{} // long ago
		s.noteRace(seen)
		return polls
	}
	for i, test := range []struct {
		seen   pollResult
		polls  bool
		behind int
	}{
		{seen: pollResult{}, polls: true, behind: 1},
		{seen: pollResult{won: 1}, polls: true},
		{seen: pollResult{}, polls: true, behind: 1},
		{seen: pollResult{}, polls: true, behind: 2},
		{seen: pollResult{}, behind: 3},
		{seen: pollResult{}, behind: 3},
		{seen: pollResult{full: true}, behind: 3},
		{seen: pollResult{won: 1}},
		{seen: pollResult{full: true}, polls: true},
		{seen: pollResult{won: 1}, polls: true},
	} {
		if polls := call(test.seen); polls != test.polls || s.behind != test.behind {
			t.Errorf("call %d: polls at once %v, behind %d, want %+v", i, polls, s.behind, test)
		}
	}
	s.behind = mostBehind
	w.idle.Store(true)
	if s.hear(t.Context(), false); w.idle.Load() {
		t.Error("it lets others go first although the call was its own")
	}
	s.behind, s.won = 0, clock.Mark{} // long ago
	if s.noteRace(pollResult{}); s.behind != 0 {
		t.Error("a poll that nobody called for was a race")
	}
	// A call just after it won may be for what it won. On a busy machine that may be long ago.
	s.called, s.won = true, clock.Start()
	if s.noteRace(pollResult{}); s.behind != 0 && s.won.Elapsed() <= pollCalm {
		t.Error("it lost a race for what it had won just before")
	}
}

// A worker that is needed lets nobody go first: no other lives, or some do not run all of its types.
func TestAWorkerThatIsNeededDoesNotFollow(t *testing.T) {
	t.Parallel()
	for _, of := range []others{{}, {live: true, serveLess: true}} {
		s := newPoller(1)
		if s.behind = mostBehind; !s.follows() {
			t.Error("it does not follow others that run the same")
		}
		if s.others.live, s.others.serveLess = of.live, of.serveLess; s.follows() {
			t.Errorf("it follows where %+v is known of the others", of)
		}
	}
}

// While nothing waits a worker that follows hears itself as soon as one that leads, and other processes
// later.
func TestAFollowerHearsItself(t *testing.T) {
	t.Parallel()
	s := newPoller(1)
	if r := s.restIdle(false); r != (rests{wait: pollMax}) {
		t.Errorf("one that did not ask rests for %v", r)
	}
	if r := s.restIdle(true); r != (rests{rest: pollMin, deaf: pollMin, wait: pollMax}) {
		t.Errorf("one that leads rests for %v", r)
	}
	s.behind = followAt
	if r := s.restIdle(true); r.least != 0 || r.rest != pollMin || r.deaf < pollMin || r.deaf > pollMax {
		t.Errorf("one that follows rests for %v", r)
	}
	for _, test := range []struct{ self, others chan struct{} }{{make(chan struct{}, 1), nil}, {nil, make(chan struct{}, 1)}} {
		call(test.self)
		call(test.others)
		if heard := s.pause(t.Context(), 0, test.self, test.others); !heard || s.called != (test.others != nil) {
			t.Errorf("heard is %v, from another process is %v", heard, s.called)
		}
	}
}

// A worker whose slots are taken lets others go first, for a time in proportion, so one does not take
// everything until it is full. On the commit before, it polled at once.
func TestALoadedWorkerLetsOthersGoFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			taken                 int
			alone, needed, polled bool // no other lives; others run fewer types; something was found
			waits                 time.Duration
		}{{taken: 0}, {taken: 1, waits: yieldFor / 2}, {taken: 4, waits: 2 * yieldFor}, {taken: 4, alone: true}, {taken: 4, needed: true}, {taken: 4, polled: true}} {
			s := newPoller(4)
			s.others.live, s.others.serveLess = !test.alone, test.needed
			s.worker.idle.Store(!test.polled)
			for range test.taken {
				s.worker.slots.takeNow(false)
			}
			mark := clock.Start()
			if s.hear(t.Context(), true); mark.Elapsed() != test.waits {
				t.Errorf("with %+v it waits for %v", test, mark.Elapsed())
			}
		}
	})
}

// Without hints a call may be for what has a concurrency key or waits for a slot, which is asked for
// sooner then. On the commit before, such an execution started up to 500 ms late.
func TestACallMayBeForAFreeKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newPoller(1)
		s.worker.unblocked.at = clock.Start()
		clock.Sleep(t.Context(), unblockedCalled)
		for _, test := range []struct{ redis, others, due bool }{{}, {redis: true, others: true}, {others: true, due: true}} {
			if s.worker.c.Away = nil; test.redis {
				s.worker.c.Away = func() bool { return true }
			}
			s.worker.unblocked.called = false
			if s.hear(t.Context(), test.others); s.worker.unblocked.due(s.worker.share, true) != test.due {
				t.Errorf("after a call, %+v: asks is %v", test, !test.due)
			}
		}
	})
}

// Where Redis is used, calls are not all that brings work, and a worker that is called asks first whether
// anything waits.
func TestNobodyLeadsWhereHintsBringWork(t *testing.T) {
	t.Parallel()
	w := &Worker{c: Config{Called: func() bool { return true }, Away: func() bool { return true }}}
	s := &poller{worker: w}
	w.idle.Store(true)
	if s.hear(t.Context(), true); s.leads() || !w.idle.Load() {
		t.Error("it takes a call for news although hints would be")
	}
}

// An announcement is passed on together with those that wait behind it, up to a batch.
func TestAnnouncementsThatWaitArePassedOnTogether(t *testing.T) {
	t.Parallel()
	w := &Worker{announcements: make(chan announcement, announcementsWaiting)}
	of := func(n int, room bool) announcement {
		return announcement{next: make([]dispatch.Waiting, n), freed: make([]dispatch.Freed, n), room: room}
	}
	for _, test := range []struct {
		waiting            []announcement
		next, freed, after int
		room               bool
	}{
		{nil, 1, 1, 0, false},
		{[]announcement{of(2, false), of(0, true), of(3, false)}, 6, 6, 0, true},
		{[]announcement{of(completeBatch/2-2, false), of(5, true), of(1, true)}, completeBatch/2 + 4, completeBatch/2 + 4, 1, true},
		{[]announcement{of(completeBatch/2, false), of(1, true)}, completeBatch/2 + 1, completeBatch/2 + 1, 1, false},
		{[]announcement{{next: make([]dispatch.Waiting, completeBatch)}, of(1, true)}, completeBatch + 1, 1, 1, false},
	} {
		for _, one := range test.waiting {
			w.announcements <- one
		}
		got := w.withWaiting(of(1, false))
		if len(got.next) != test.next || len(got.freed) != test.freed || got.room != test.room || len(w.announcements) != test.after {
			t.Errorf("%d next, %d freed, room %v, %d wait; want %+v", len(got.next), len(got.freed), got.room, len(w.announcements), test)
		}
		for range test.after {
			<-w.announcements
		}
	}
}

// After a poll that claimed most of what it had room for the next question for free keys is brought forward, but for the
// turn of the pool: at once where it claimed many, and after a rest that all workers share where it claimed few.
func TestQuestionsForKeysRestAsLongAsTheyTook(t *testing.T) {
	t.Parallel()
	const took = 10 * time.Millisecond
	for _, test := range []struct {
		won, most, able int
		full            bool // no slot is open, only those that are kept
		want            time.Duration
	}{
		{won: 0, most: 1, want: unblockedEvery},
		{won: 16, most: 32, want: unblockedEvery},
		{won: 17, most: 32, want: 2 * took},
		{won: 1, most: 1, able: 3, want: 5 * took},
		{won: 31, most: 31, able: 100, want: (1 + shareMost) * took},
		{won: 32, most: 63, able: 3, want: 0},
		{won: 32, most: 64, able: 3, want: 4 * unblockedEvery},
		{won: 256, most: 256, full: true, want: unblockedEvery},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newPoller(1).worker
			w.able = test.able
			w.unblocked = unblockedPolls{at: clock.Start(), took: took}
			w.unblocked.note(test.won, test.most)
			w.unblocked.note(0, test.most) // of the poll of the pool
			if w.unblocked.more && w.unblocked.due(w.share, !test.full) {
				t.Errorf("%+v: the pool has no turn", test)
			}
			for _, poll := range []struct {
				won, open int
				calls     bool
			}{{0, 0, false}, {1, 0, true}, {0, 1, true}} {
				if calls := w.unblocked.callAfter(poll.won, poll.open); calls != (w.unblocked.more && poll.calls) {
					t.Errorf("%+v, %+v: calls for the next one is %v", test, poll, calls)
				}
			}
			if left := max(0, w.unblocked.left(w.share)); w.unblocked.more && !test.full && left != test.want {
				t.Errorf("%+v: the poller waits for %v", test, left)
			}
			clock.Sleep(t.Context(), test.want-1)
			if test.want > 0 && w.unblocked.due(w.share, !test.full) {
				t.Errorf("%+v: it asks too soon", test)
			}
			clock.Sleep(t.Context(), 1)
			if !w.unblocked.due(w.share, !test.full) {
				t.Errorf("%+v: it does not ask in time", test)
			}
		})
	}
}

// A worker that took all of its slots and may get more hears the end of a run after a rest as long as the poll took. One
// that has slots left polls on.
func TestAPollThatTookAllSlotsHearsTheNextEnd(t *testing.T) {
	t.Parallel()
	s := newPoller(100)
	s.worker.self = make(chan struct{}, 1)
	polled := pollResult{won: 94, more: true, asked: 3 * time.Millisecond}
	if r := s.after(polled); r != evenRests(pollNow) {
		t.Errorf("with free slots it rests for %v", r)
	}
	for s.worker.slots.takeNow(false) {
	}
	s.worker.callItself() // by an end before the poll
	if r := s.after(polled); r != (rests{least: polled.asked, rest: polled.asked, deaf: pollMin, wait: pollMin, slots: true}) {
		t.Errorf("without a free slot it rests for %v", r)
	}
	if len(s.worker.self) != 0 {
		t.Error("a call from before the poll calls for the next one")
	}
	s.worker.join.usual = turnTook{kept: slowClaim / 8, claim: 2 * slowClaim}
	if r := s.after(polled); r.slots {
		t.Error("it waits for the slots of others while commits are slow, and the next claim could be under way")
	}
	s.worker.join.usual = turnTook{}
	if r := s.after(pollResult{won: claimBatch, more: true, asked: time.Minute}); r.least != pollMin || r.wait != pollMin {
		t.Errorf("after a slow poll it rests for %v", r)
	}
	if s.wait = pollMax; s.after(polled) == (rests{}) || s.wait != pollMin {
		t.Errorf("after a poll that won something it waits for %v", s.wait)
	}
}

// A worker that waits for slots polls once for all runs that have ended when the first of their slots is free, but not for
// those that end later. It waits for no outcome that is written late, and not where it is told of something else.
func TestAPollForSlotsWaitsForThoseOfAllEnds(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, test := range []struct {
		name   string
		slots  bool // it waits for some
		called time.Duration
		then   func(w *Worker) // at 5 ms
		want   time.Duration
	}{
		{name: "all are free", slots: true, called: 3 * ms, want: 5 * ms, then: func(w *Worker) { w.freed.Add(2); w.callItself() }},
		{name: "one is not", slots: true, called: 3 * ms, want: 10 * ms, then: func(w *Worker) { w.freed.Add(1); w.callItself() }},
		{name: "nothing else happens", slots: true, called: 3 * ms, want: 10 * ms, then: func(*Worker) {}},
		{name: "a tenant has room", slots: true, called: 3 * ms, want: 5 * ms, then: (*Worker).callAtOnce},
		{name: "another process calls", slots: true, called: 3 * ms, want: 10 * ms, then: (*Worker).Wake},
		{name: "it does not wait for slots", called: 3 * ms, want: 3 * ms, then: func(*Worker) {}},
		{name: "a call in the rest", called: ms, want: 2 * ms, then: func(*Worker) {}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newPoller(10)
			w, began := s.worker, clock.Start()
			w.self, w.woken, w.roomMade = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
			go func() {
				clock.Sleep(t.Context(), test.called)
				w.ends.Store(13)
				w.freed.Store(11)
				w.callItself()
				clock.Sleep(t.Context(), 5*ms-test.called)
				w.ends.Add(5)
				test.then(w)
			}()
			s.sleep(t.Context(), rests{least: ms, rest: 2 * ms, deaf: 10 * ms, wait: 10 * ms, slots: test.slots})
			if began.Elapsed() != test.want {
				t.Errorf("%s: it slept for %v, want %v", test.name, began.Elapsed(), test.want)
			}
			clock.Sleep(t.Context(), 10*ms) // the other goroutine ends
		})
	}
}

// While a worker rests before it asks for free keys again, it polls the pool as if it asked for none.
func TestARestBetweenQuestionsForKeysIsNoneOfThePool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newPoller(100)
		keys := func(took time.Duration, poolsTurn bool) {
			s.worker.unblocked = unblockedPolls{at: clock.Start(), took: took, won: 9, more: true, poolsTurn: poolsTurn}
		}
		keys(time.Minute, true)
		if r := s.after(pollResult{won: 9, keys: true}); r != evenRests(pollNow) {
			t.Errorf("before the turn of the pool it rests for %v", r)
		}
		keys(time.Minute, false)
		if r := s.after(pollResult{won: 60, more: true, keys: true}); r != evenRests(pollNow) {
			t.Errorf("while the pool has more it rests for %v", r)
		}
		if r := s.after(pollResult{won: 9, waits: true, keys: true}); r.rest != pollMin || r.wait > 2*pollMin {
			t.Errorf("after a poll that found something in the pool it rests for %v", r)
		}
		keys(5*time.Millisecond, false)
		for range 9 {
			if r := s.after(pollResult{keys: true, asked: time.Millisecond}); r != (rests{least: 4 * time.Millisecond, rest: 10 * time.Millisecond, deaf: 10 * time.Millisecond, wait: 10 * time.Millisecond}) {
				t.Errorf("after a poll that found nothing in the pool it rests for %v", r)
			}
			s.hear(t.Context(), false)
			if s.leavesPoolToOthers() {
				t.Error("it leaves the keys to others")
			}
		}
	})
}

// A worker to which calls alone bring work takes it after a poll that won something that nothing is left, unless the pool
// or free keys may have more.
func TestALeaderGoesOnWhereMoreMayWait(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		seen pollResult
		idle bool
	}{{pollResult{won: 1}, true}, {pollResult{won: 1, more: true}, false}, {pollResult{won: 1, keys: true}, false}} {
		s := newPoller(1)
		if err := s.learn(t.Context(), test.seen); err != nil || s.worker.idle.Load() != test.idle {
			t.Errorf("%+v: idle is %v, %v", test.seen, !test.idle, err)
		}
	}
}
