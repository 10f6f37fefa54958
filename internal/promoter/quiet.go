package promoter

import (
	"context"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/loop"
)

// pollEvery is the distance between two polls while nothing is due.
func (p *Promoter) pollEvery() time.Duration {
	if p.c.Called() {
		return maxCalledSleep
	}
	return maxSleep
}

// quietFor is for how long nothing but polls follow a pass, while nothing is due.
const quietFor = time.Minute

// yieldFor is how long a promoter lets another one go first that was quicker the last time. The
// other has mostly committed by then, and a poll of one statement finds that nothing is left to
// do. Without it all promoters send passes for one job and lock each other out.
const yieldFor = 25 * time.Millisecond

// quiet is the time in which nothing is due, as far as a pass or poll saw. A job that is
// created meanwhile may be due earlier: polls find it, of one statement each, where a
// pass has five.
type quiet struct {
	began  clock.Mark    // of the last pass
	lasts  time.Duration // zero: there is none
	next   time.Time     // when a job is due at its end; zero: it ends for another reason
	yields bool          // another promoter took what was due at the end of the last one
}

// after notes what a pass found that began so.
func (q *quiet) after(began clock.Mark, r Report) {
	switch {
	case r.Claimed > 0:
		q.yields = false
	case q.expired(r.At):
		q.yields = true
	}
	q.began = began
	q.over()
	if r.Next.After(r.At) {
		q.endsWith(r.Next, r.At, 0)
	}
}

// expired says whether it ended because a job became due, as of a time.
func (q *quiet) expired(at time.Time) bool { return !q.next.IsZero() && !at.Before(q.next) }

// endsWith notes that the next job is due then. That was seen at a time, and asked so long
// after the last pass began.
func (q *quiet) endsWith(next, at time.Time, asked time.Duration) {
	q.lasts, q.next = asked+next.Sub(at), next
	if q.yields {
		q.lasts += yieldFor
	}
	if q.lasts > quietFor {
		q.lasts, q.next = quietFor, time.Time{}
	}
}

// lastsStill says whether a poll is enough.
func (q *quiet) lastsStill() bool { return q.began.Elapsed() < q.lasts }

// polls says whether a poll comes before a pass.
func (q *quiet) polls() bool { return q.lastsStill() || q.yields && !q.next.IsZero() }

// over ends it.
func (q *quiet) over() { q.lasts, q.next = 0, time.Time{} }

// left is how long it goes on.
func (q *quiet) left() time.Duration { return max(q.lasts-q.began.Elapsed(), 0) }

// poll asks when the next job is due, has a pass follow then, and the next poll before
// that if it is long.
func (p *Promoter) poll(ctx context.Context, turn *loop.Turn) error {
	since, mark, asked := p.lowerBound(), clock.Start(), p.quiet.began.Elapsed()
	found, err := p.store.pollDue(ctx, since)
	p.noteScan(since, mark)
	if err == nil {
		err = p.checkClock(found.At)
	}
	p.became(err)
	if err != nil {
		turn.Again(pauseAfterError)
		return err
	}
	p.idle.Store(!found.BackfillDue)
	if found.BackfillDue {
		call(p.backfills)
	}
	if !found.NextAt.After(found.At) {
		p.quiet.over()
		p.since = since // what a poll without a bound found, a pass with one would not
		turn.Again(0)
		return nil
	}
	p.quiet.endsWith(found.NextAt, found.At, asked)
	turn.Await(min(p.quiet.left(), p.pollEvery()))
	return nil
}
