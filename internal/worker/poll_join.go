package worker

import (
	"context"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

const (
	// turnKept is how long after a turn that found something a worker takes the next one
	// without asking whether it is free.
	turnKept = 100 * time.Millisecond
	// joinMin is how long a worker that finds the turn taken polls no backlog. Each time that
	// it finds it taken again it is twice as long, up to joinMost. After joinAfter it joins in
	// any case: a session whose worker is cut off may hold the turn as long.
	joinMin   = 50 * time.Millisecond
	joinMost  = time.Second
	joinAfter = 5 * time.Second
)

// joining is what a worker knows of the turns in which a backlog is drained. The polling
// goroutine owns it.
type joining struct {
	had    clock.Mark    // the last turn that found something
	pause  time.Duration // for which it stays away; zero where the turn was not found taken
	taken  clock.Mark    // when the turn was first found taken
	needed bool          // it serves types that others do not, so it does not stay away
}

// joins says whether the worker takes its turn with those who drain the backlog.
//
// A few workers drain it as fast as a whole fleet, because one poll runs at a time. Each
// further one costs the others: its sessions make plans of their own, and take memory and
// processors. So a worker that had its turn just now and has half of its slots free goes on,
// and another one joins where it finds the turn free. Where runs take long, the slots of those
// who drain fill, and the turn is free for the others.
func (w *Worker) joins(ctx context.Context, inc *incarnation) (bool, error) {
	j := &w.join
	if j.had.Elapsed() < turnKept && w.slots.taken() <= w.slots.all()/2 {
		j.pause = 0
		return true, nil
	}
	free, err := w.store.TurnIsFree(ctx)
	if err == nil && !free && j.pause == 0 {
		j.needed, err = w.store.OthersServeLess(ctx, inc.member.ID)
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
