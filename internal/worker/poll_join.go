package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

const (
	// turnKept is how long after a turn that won something a worker takes the next one
	// without asking whether it is free.
	turnKept = 100 * time.Millisecond
	// joinMin is how long a worker that finds the turn taken polls no backlog. Each time that
	// it finds it taken again it is twice as long, up to joinMost.
	joinMin  = 50 * time.Millisecond
	joinMost = time.Second
	// joinFrees is how often, one after the other, a worker that stays away finds the turn free before it joins, and
	// joinAsk about how long it waits in between. One that drains a backlog by few slots has no turn for some 10 ms,
	// while what it claimed runs and is completed.
	joinFrees = 8
	joinAsk   = 10 * time.Millisecond
	// joinAfter is how long a worker finds the turn taken at every question before it joins in any case: a session whose
	// worker is cut off may hold the turn. Where the turn is free now and then, those who have it go on, and the database
	// may have room for one more: it joins joinSoonest after it began to stay away, or later, at a time of its own: up to
	// joinSpread for each other worker, so of a fleet one joins every two seconds. That doubles each time that the worker
	// leaves because it stood in line, up to maxLeft times.
	joinAfter   = 5 * time.Second
	joinSoonest = time.Second
	joinSpread  = 2 * time.Second
	maxLeft     = 3
	// leaveChance is how many turns that came late make a worker that drains a backlog ask once whether others do,
	// on average.
	leaveChance = 4
	// Claims are slow that wait for a slow commit: besides rowClaim for each execution they take longer than slowClaim, and
	// half as long again as their polls, on average. On a busy server polls take longer, too. Others may use the database
	// meanwhile.
	slowClaim = 10 * time.Millisecond
	rowClaim  = 60 * time.Microsecond
	// othersFor is how long it counts as known whether other workers live and what they run.
	othersFor = 10 * time.Second
	// shareMost is how many times as long a worker of a fleet waits between two questions as one
	// that is alone: nobody else may ask for a while where the others fail together or are full.
	shareMost = 8
)

// others is what a worker knows of other workers of the service.
type others struct {
	asked     clock.Mark
	live      bool // there are some
	serveLess bool // one of them runs fewer types
}

// share is the distance between two questions of each worker of a fleet of up to shareMost, which together
// ask every d. A larger fleet asks more often. Each may run the executions that another finds. When each of 16
// workers asked as often as one that is alone, these questions were a fifth of PostgreSQL's time, and many
// claimed the one execution that all had found. Where calls or hints are missing, each worker asks for itself.
func (w *Worker) share(d time.Duration) time.Duration {
	if !w.hearsAll() {
		return d
	}
	return d * time.Duration(min(1+w.able, shareMost))
}

// askOfOthers asks which other workers live and what they run, unless it knows.
func (s *poller) askOfOthers(ctx context.Context) {
	inc := s.worker.current.Load()
	if inc == nil || s.others.asked.Elapsed() < othersFor {
		return
	}
	s.others.asked = clock.Start()
	live, serveLess, able, err := s.worker.store.OtherWorkers(ctx, inc.member.ID)
	if err != nil {
		s.worker.c.Log.DebugContext(ctx, "other workers are not known, they count as none", "error", err)
	}
	s.others.live, s.others.serveLess, s.worker.able = live, serveLess, able
}

// leavesPoolToOthers says whether this worker tries what is named to it and does not ask for more: only it
// called itself, a poll has just found that nothing waits, and others ask, too.
func (s *poller) leavesPoolToOthers() bool {
	return s.self && s.empty.Elapsed() < s.worker.share(pollCalm)-pollCalm
}

// joining is what a worker knows of the turns in which a backlog is drained. The polling
// goroutine owns it.
type joining struct {
	had    clock.Mark    // the last turn that won something, unless it came late
	drains clock.Mark    // the last turn that won more than half of what there was room for, while claims were not slow
	leads  bool          // a turn came in time since it joined
	left   int           // how often it left because it stood in line, since it found nobody who drains
	usual  turnTook      // of the last turns, on average
	others int           // workers that could drain it, too
	needed bool          // it serves types that others do not, so it does not stay away
	pause  time.Duration // for which it stays away; zero where the turn was not found taken

	// While it stays away:
	away  clock.Mark    // since then
	after time.Duration // how long after that it joins in any case; zero until it has found the turn free
	taken clock.Mark    // since when the turn was found taken at every question
	frees int           // how often the turn was found free since it was last found taken
}

// joins says whether the worker takes its turn with those who drain the backlog.
//
// A few workers with room drain it as fast as a whole fleet, because one poll runs at a time.
// Each further one costs the others: its sessions make plans of their own, and take memory and
// processors. So a worker with room that had its turn just now goes on, and while it wins much
// it shows that it has the turn. Another one with room joins where nobody shows that, and leaves
// again where it has to stand in line. Where runs take long nobody has room for long, and all poll
// for what their slots leave.
func (w *Worker) joins(ctx context.Context, inc *incarnation) (bool, error) {
	j := &w.join
	if !w.hasRoomSoon() || j.had.Elapsed() < turnKept {
		j.pause, j.frees = 0, 0
		return true, nil
	}
	free, err := w.store.TurnIsFree(ctx)
	if err == nil && !free && j.pause == 0 {
		_, j.needed, j.others, err = w.store.OtherWorkers(ctx, inc.member.ID)
	}
	return err == nil && j.answered(free), err
}

// answered says whether the worker joins, now that it has asked whether the turn is free.
func (j *joining) answered(free bool) bool {
	switch {
	case j.pause == 0 && free || j.needed:
		*j = joining{had: j.had, drains: j.drains, usual: j.usual, needed: j.needed}
		return true
	case j.pause == 0:
		j.away, j.taken, j.after, j.frees, j.pause = clock.Start(), clock.Start(), 0, 0, joinMin
		return false
	case free:
		j.frees++
		if j.after == 0 {
			j.after = joinSoonest + rand.N(joinSpread*time.Duration(max(1, j.others))<<j.left)
		}
	default:
		if j.frees > 0 {
			j.taken = clock.Start()
		}
		j.frees, j.pause = 0, min(2*j.pause, joinMost)
	}
	due := j.after > 0 && j.away.Elapsed() >= j.after
	stuck := j.frees == 0 && j.taken.Elapsed() >= joinAfter
	if j.frees < joinFrees && !due && !stuck {
		return false
	}
	// It shows its turn from the first one on: others drain the backlog, too.
	*j = joining{left: j.left, usual: j.usual, drains: clock.Start()}
	return true
}

// rest is about how long the worker waits until it asks again, while it stays away.
func (j *joining) rest() time.Duration {
	if j.frees > 0 {
		return joinAsk
	}
	return j.pause
}

// turnTook is how long a worker waited for its turn, how long its poll kept it, and how long the claim took then, of
// joining.usual without rowClaim of each execution.
type turnTook struct{ waited, kept, claim time.Duration }

// won notes a turn that won n executions where there was room for most. Where the worker waited for it longer than it
// kept it, others stood in line, too: the turns are what bounds the drain. So a worker that has just joined asks next
// whether others drain the backlog, and one that had a turn in time does so now and then, so that not all of them leave
// together. Where claims are slow, others have time for their turns meanwhile: it shows no turn then and does not leave.
func (j *joining) won(n, most int, took turnTook) {
	if n == 0 {
		return
	}
	took.claim -= time.Duration(n) * rowClaim
	slow := j.slow(took)
	if n > most/2 && !slow {
		j.drains = clock.Start()
	}
	late := took.waited > took.kept && !slow
	if late && (!j.leads || rand.N(leaveChance) == 0) {
		j.had, j.leads, j.left = clock.Mark{}, false, min(j.left+1, maxLeft)
		return
	}
	j.had, j.leads = clock.Start(), j.leads || !late
}

// slow notes how long a poll and its claim took, and says whether claims are slow.
func (j *joining) slow(took turnTook) bool {
	if j.usual == (turnTook{}) {
		j.usual = took
	}
	j.usual.kept += (took.kept - j.usual.kept) / 4
	j.usual.claim += (took.claim - j.usual.claim) / 4
	return j.slowly()
}

// slowly says whether claims are slow.
func (j *joining) slowly() bool {
	return j.usual.claim > slowClaim && j.usual.claim > j.usual.kept*3/2
}

// hasRoomSoon says whether at least half of the worker's slots are free, or will be once the outcomes of runs that have
// ended are written.
func (w *Worker) hasRoomSoon() bool {
	return w.slots.taken()-w.ending() <= w.slots.all()/2
}

// hasRoom says whether at least half of the worker's slots are free.
func (w *Worker) hasRoom() bool { return w.slots.taken() <= w.slots.all()/2 }
