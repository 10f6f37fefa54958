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
	w.join.pause = joinMost
	if r := s.after(pollResult{taken: true}); r.least < joinMost/2 || r.least > 2*joinMost || r != evenRests(r.least) {
		t.Errorf("while others drain: %v, want %v to %v each", r, joinMost/2, 2*joinMost)
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
		s.worker.unblockedAt = clock.Start()
		clock.Sleep(t.Context(), unblockedCalled)
		for _, test := range []struct{ redis, others, due bool }{{}, {redis: true, others: true}, {others: true, due: true}} {
			if s.worker.c.Away = nil; test.redis {
				s.worker.c.Away = func() bool { return true }
			}
			s.worker.calledSinceUnblocked = false
			if s.hear(t.Context(), test.others); s.worker.unblockedDue() != test.due {
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

// Only a poll that claimed many, and most of what it had room for, brings the next question for free keys forward.
func TestFewFreeSlotsAskForNoMoreKeys(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ won, most, want int }{{0, 0, 0}, {1, 1, 0}, {31, 31, 0}, {32, 32, 2}, {32, 63, 2}, {32, 64, 0}, {128, 256, 0}, {129, 256, 2}} {
		w := &Worker{}
		if w.noteUnblocked(test.won, test.most); w.untilUnblocked != test.want {
			t.Errorf("%+v: the next question after %d polls", test, w.untilUnblocked)
		}
	}
}
