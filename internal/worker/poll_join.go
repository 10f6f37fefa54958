package worker

import (
	"context"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

const (
	// turnKept is how long after a turn that won something a worker takes the next one
	// without asking whether it is free.
	turnKept = 100 * time.Millisecond
	// joinMin is how long a worker that finds the turn taken polls no backlog. Each time that
	// it finds it taken again it is twice as long, up to joinMost. After joinAfter it joins in
	// any case: a session whose worker is cut off may hold the turn as long.
	joinMin   = 50 * time.Millisecond
	joinMost  = time.Second
	joinAfter = 5 * time.Second
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
	had    clock.Mark    // the last turn that won something
	drains clock.Mark    // the last turn that won more than half of what there was room for
	pause  time.Duration // for which it stays away; zero where the turn was not found taken
	taken  clock.Mark    // when the turn was first found taken
	needed bool          // it serves types that others do not, so it does not stay away
}

// joins says whether the worker takes its turn with those who drain the backlog.
//
// A few workers with room drain it as fast as a whole fleet, because one poll runs at a time.
// Each further one costs the others: its sessions make plans of their own, and take memory and
// processors. So a worker with room that had its turn just now goes on, and while it wins much
// it shows that it has the turn. Another one with room joins where nobody shows that. Where runs
// take long nobody has room for long, and all poll for what their slots leave.
func (w *Worker) joins(ctx context.Context, inc *incarnation) (bool, error) {
	j := &w.join
	if !w.hasRoomSoon() || j.had.Elapsed() < turnKept {
		j.pause = 0
		return true, nil
	}
	free, err := w.store.TurnIsFree(ctx)
	if err == nil && !free && j.pause == 0 {
		_, j.needed, _, err = w.store.OtherWorkers(ctx, inc.member.ID)
	}
	return err == nil && j.answered(free), err
}

// answered says whether the worker joins, now that it has asked whether the turn is free.
func (j *joining) answered(free bool) bool {
	if !free && j.pause == 0 {
		j.taken = clock.Start()
	}
	if free || j.needed || j.taken.Elapsed() >= joinAfter {
		j.pause = 0
		return true
	}
	j.pause = min(max(2*j.pause, joinMin), joinMost)
	return false
}

// won notes that a turn won n executions where there was room for most.
func (j *joining) won(n, most int) {
	if n > 0 {
		j.had = clock.Start()
	}
	if n > most/2 {
		j.drains = clock.Start()
	}
}

// hasRoomSoon says whether at least half of the worker's slots are free, or will be once the outcomes of runs that have
// ended are written.
func (w *Worker) hasRoomSoon() bool {
	return w.slots.taken()-int(w.ending.Load()) <= w.slots.all()/2
}

// hasRoom says whether at least half of the worker's slots are free.
func (w *Worker) hasRoom() bool { return w.slots.taken() <= w.slots.all()/2 }
