package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
)

// A worker that finds the turn taken stays away, twice as long each time, and joins when it finds it free at eight
// questions, one soon after the other. After five seconds in which it was always taken it joins in any case, and one
// that others need joins at once.
func TestWorkersJoinWhereTheTurnIsFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &joining{}
		want := func(joins, free bool, rest time.Duration) {
			t.Helper()
			if got := j.answered(free); got != joins || j.rest() != rest {
				t.Errorf("joins: %t, stays away for %v; want %t, %v", got, j.rest(), joins, rest)
			}
			clock.Sleep(t.Context(), j.rest())
		}
		want(true, true, 0)
		for range 2 {
			want(false, false, 50*time.Millisecond)
			want(false, false, 100*time.Millisecond)
			for range 7 {
				want(false, true, joinAsk)
			}
			want(false, false, 200*time.Millisecond)
			for range 7 {
				want(false, true, joinAsk)
			}
			want(true, true, 0)
		}
		for _, pause := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000, 1000, 1000} {
			want(false, false, pause*time.Millisecond)
		}
		want(true, false, 0)
		want(false, false, 50*time.Millisecond)
		j.needed = true
		want(true, false, 0)
	})
}

// A worker that finds the turn free now and then knows that those who have it go on. It joins at a time of its own, and
// later where it has left because it stood in line, and where many others may join.
func TestWorkersJoinAtTimesOfTheirOwnWhereOthersGoOn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		others, left int
		most         time.Duration
	}{
		{5, 0, 11 * time.Second},
		{5, 1, 21 * time.Second},
		{5, 2, 41 * time.Second},
		{5, 3, 81 * time.Second},
		{15, 0, 31 * time.Second},
		{0, 3, 17 * time.Second}, // the others are full, or not known
	} {
		synctest.Test(t, func(t *testing.T) {
			least, longest := time.Hour, time.Duration(0)
			for range 100 {
				j := &joining{others: test.others, left: test.left}
				at := clock.Start()
				for free := false; !j.answered(free); free = !free {
					clock.Sleep(t.Context(), j.rest())
				}
				least, longest = min(least, at.Elapsed()), max(longest, at.Elapsed())
			}
			// Two rests are between a time that is reached and the question that finds it.
			if least < joinSoonest || least > test.most/2 || longest <= test.most/2 || longest > test.most+2*joinMost {
				t.Errorf("beside %d others, after it left %d times, it joins after %v to %v, want %v to %v", test.others, test.left, least, longest, joinSoonest, test.most)
			}
		})
	}
}

// A worker that found the turn free once joins after five seconds in which it was always taken, however often it left
// before: who had the turn may be cut off since.
func TestWorkersJoinWhereTheTurnStaysTaken(t *testing.T) {
	t.Parallel()
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			j := &joining{left: maxLeft}
			j.answered(false)
			j.answered(true)
			at := clock.Start()
			for !j.answered(false) {
				clock.Sleep(t.Context(), j.rest())
			}
			if took := at.Elapsed(); took > joinAfter+joinMost {
				t.Errorf("it joins after %v, want %v and a rest at most", took, joinAfter)
			}
		})
	}
}

// A worker that has joined leaves where it stands in line for longer than its own turn takes, unless a turn came in time
// before: then it asks now and then.
func TestWorkersLeaveWhereTheyStandInLine(t *testing.T) {
	t.Parallel()
	goesOn := func(j *joining, waited, held time.Duration) bool {
		j.won(60, 100, turnTook{waited: waited, kept: held})
		return j.had.Elapsed() < turnKept
	}
	if j := (&joining{}); goesOn(j, 3, 2) || j.left != 1 {
		t.Error("a worker goes on that has joined and stood in line")
	}
	stayed := 0
	for range 1000 {
		j := &joining{}
		if !goesOn(j, 2, 2) {
			t.Fatal("a worker leaves although its turn came in time")
		}
		if goesOn(j, 3, 2) {
			stayed++
		} else if j.leads {
			t.Fatal("a worker leaves and counts as one that leads")
		}
	}
	if stayed < 650 || stayed > 850 {
		t.Errorf("of 1000 workers that stood in line once after a turn in time, %d go on, want about 750", stayed)
	}
	slow := &joining{usual: turnTook{kept: 2, claim: 2 * slowClaim}}
	for range 100 {
		if slow.usual.claim = 2 * slowClaim; !goesOn(slow, 3, 2) {
			t.Fatal("a worker leaves although commits are slow, so that others have time for a turn meanwhile")
		}
	}
	j := &joining{}
	for range 10 {
		goesOn(j, 3, 2)
	}
	if j.left != maxLeft {
		t.Errorf("it counts %d times that it left, want %d at most", j.left, maxLeft)
	}
	if j.answered(true); j.left != 0 {
		t.Error("it counts the times that it left although nobody drains a backlog")
	}
}

// A worker shows its turn while it wins much and has half of its slots free, or of runs that have ended. With fewer it
// polls for what they leave without asking, and keeps nobody away who has room.
func TestWorkersThatDrainShowTheirTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &Worker{slots: newSlots(4)}
		want := func(turn dispatch.Turn, when string) {
			t.Helper()
			if got := w.turn(); got != turn {
				t.Errorf("%s: %v, want %v", when, got, turn)
			}
		}
		want(dispatch.PlainTurn, "at first")
		w.join.won(2, 4, turnTook{kept: 1})
		want(dispatch.PlainTurn, "after it won half of what there was room for")
		w.join = joining{}
		w.join.won(3, 4, turnTook{kept: slowClaim / 2, claim: slowClaim + 3*rowClaim + 1})
		want(dispatch.PlainTurn, "after it won more, by a slow claim")
		w.join = joining{}
		w.join.won(3, 4, turnTook{kept: slowClaim, claim: slowClaim*3/2 + 3*rowClaim})
		want(dispatch.ShownTurn, "after it won more, by a claim that is little slower than its poll")
		w.join = joining{}
		w.join.won(3, 4, turnTook{kept: 1, claim: slowClaim + 3*rowClaim})
		want(dispatch.ShownTurn, "after it won more, by a claim that took the time of its executions")
		for _, turn := range []dispatch.Turn{dispatch.ShownTurn, dispatch.ShownTurn, dispatch.PlainTurn, dispatch.PlainTurn} {
			w.slots.takeNow(false)
			want(turn, "with a slot less")
		}
		w.ends.Add(2)
		want(dispatch.ShownTurn, "while two outcomes are written")
		w.freed.Add(2)
		w.join.had = clock.Mark{}
		if joins, err := w.joins(t.Context(), nil); err != nil || !joins {
			t.Errorf("without room it joins: %t, %v; want it to, without a question", joins, err)
		}
		for range 4 {
			w.slots.give()
		}
		want(dispatch.ShownTurn, "with room again")
		clock.Sleep(t.Context(), turnKept)
		want(dispatch.PlainTurn, "after a while")
		w.join = joining{pause: joinMin, frees: joinFrees - 1}
		w.join.answered(true)
		want(dispatch.ShownTurn, "after it stayed away while others drained")
		w.outOfTurn = clock.Start()
		want(dispatch.NoTurn, "after a turn that did not come")
	})
}

// The workers of a fleet ask together as often as one that is alone, but for one that learns of nothing
// by hints and calls: what waits is then for its own polls to find.
func TestAFleetAsksAsOneWorker(t *testing.T) {
	t.Parallel()
	away := func() bool { return true }
	for _, test := range []struct {
		name   string
		able   int
		calls  bool
		away   func() bool // there is a Redis
		behind bool        // and it is away
		want   time.Duration
	}{
		{name: "alone", calls: true, want: time.Second},
		{name: "one of four", able: 3, calls: true, want: 4 * time.Second},
		{name: "one of forty", able: 39, calls: true, want: shareMost * time.Second},
		{name: "one of four, and hints come", able: 3, calls: true, away: away, want: 4 * time.Second},
		{name: "one of four, and no hints come", able: 3, calls: true, away: away, behind: true, want: time.Second},
		{name: "one of four, and no calls come", able: 3, want: time.Second},
	} {
		w := &Worker{c: Config{Called: func() bool { return test.calls }, Away: test.away}, able: test.able}
		w.hintless.Store(test.behind)
		if got := w.share(time.Second); got != test.want {
			t.Errorf("%s: it asks every %v, want %v", test.name, got, test.want)
		}
	}
}

// In a fleet a worker asks for free slots and keys when its turn comes, and its own calls after a poll that
// found nothing bring no other poll at once. On the commit before, each of 16 workers asked as often as one.
func TestAWorkerOfAFleetLeavesPollsToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, able := range []int{0, 3} {
			s := newPoller(1)
			s.worker.able, s.worker.unblocked.at = able, clock.Start()
			leaves := func(want bool, when string) {
				t.Helper()
				if got := s.leavesPoolToOthers(); got != want {
					t.Errorf("beside %d others, %s: leaves the pool to them is %v", able, when, got)
				}
			}
			s.after(pollResult{})
			s.hear(t.Context(), false)
			leaves(able > 0, "after a poll that found nothing and its own call")
			if able > 0 { // a worker that asks here has no store to ask
				if r := s.round(t.Context()); r.rest != pollCalm || r.wait < r.rest {
					t.Errorf("it rests for %v", r)
				}
			}
			s.pause(t.Context(), 0, nil, nil)
			leaves(false, "after no call")
			s.hear(t.Context(), true)
			leaves(false, "after a call of another process")
			s.worker.unblocked.called = false // it has asked
			s.hear(t.Context(), false)
			for _, seen := range []pollResult{{waits: true}, {won: 1}, {full: true}} {
				s.after(seen)
				leaves(false, "after a poll that found something or had no slot")
			}
			s.after(pollResult{})
			clock.Sleep(t.Context(), s.worker.share(pollCalm)-pollCalm)
			leaves(false, "a while after a poll that found nothing")
			for range 12 { // polls that find nothing
				s.after(pollResult{})
			}
			if want := s.worker.share(pollMax); s.wait != want {
				t.Errorf("beside %d others it polls every %v, want %v", able, s.wait, want)
			}
			clock.Sleep(t.Context(), unblockedEvery)
			if due := s.worker.unblocked.due(s.worker.share, true); due != (able == 0) {
				t.Errorf("beside %d others: it asks for free slots is %v", able, due)
			}
			clock.Sleep(t.Context(), s.worker.share(unblockedEvery))
			if !s.worker.unblocked.due(s.worker.share, true) {
				t.Errorf("beside %d others it asks for no free slots", able)
			}
		}
	})
}

// A worker that leaves the pool to others claims what is named to it all the same.
func TestNamedExecutionsAreTriedWithoutAPoll(t *testing.T) {
	t.Parallel()
	w := &Worker{slots: newSlots(2), next: make(chan uuid.UUID, 3), self: make(chan struct{}, 1), claims: newBatch[claimRequest](claimBatch, time.Second, nil)}
	w.current.Store(&incarnation{})
	ids := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	w.tryHere(ids)
	go func() {
		for range 2 {
			(<-w.claims.in).decided.Done()
		}
	}()
	if w.tryNamed(); w.slots.taken() != 2 || len(w.next) != 1 {
		t.Errorf("%d of two slots are taken, and %d of three executions are named still", w.slots.taken(), len(w.next))
	}
}

// The worker of an attempt tries the next one as soon as the backoff has ended, if that is soon: nobody polls
// at that moment. On the commit before, the next attempt of a lone worker began up to 250 ms late.
func TestAWorkerTriesItsRetryWhenItIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &Worker{next: make(chan uuid.UUID, 2), self: make(chan struct{}, 1)}
		soon, late := uuid.New(), uuid.New()
		var batch []ended
		var verdicts []dispatch.Verdict
		for id, backoff := range map[uuid.UUID]time.Duration{soon: retryHere, late: retryHere + time.Millisecond} {
			e := ended{inc: &incarnation{}, slotless: true, outcome: dispatch.Outcome{Succeeded: true, RetryMS: backoff.Milliseconds()}}
			e.ID = id
			batch, verdicts = append(batch, e), append(verdicts, dispatch.Verdict{ID: id, Status: "retrying"})
		}
		w.accept(t.Context(), batch, verdicts)
		clock.Sleep(t.Context(), retryHere-1)
		synctest.Wait()
		if n := len(w.next); n != 0 {
			t.Errorf("%d are tried before their backoff has ended", n)
		}
		clock.Sleep(t.Context(), time.Minute)
		synctest.Wait()
		if named := w.takeNext(2); len(named) != 1 || named[0].ID != soon {
			t.Errorf("it tries %v, want %s", named, soon)
		}
	})
}
