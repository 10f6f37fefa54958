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

// A promoter follows once another one was quicker: it lets that one go first, and looks by a poll
// of one statement whether something was left. Without it all promoters send passes for one job
// and lock each other out. It takes over what is late, so a promoter that ended, or that has
// more to do than it can, costs no more than these times.
const (
	// yieldFor is how long it lets the others go first, and how late a job is that they left,
	// unless they have taken one since its last look.
	yieldFor = 25 * time.Millisecond
	// tooLate is how late a job is that the others left although they go on: they are too few.
	tooLate = 250 * time.Millisecond
	// mostBehind is after how many looks that found nothing left it looks no more seldom: every
	// 50 ms. Every 100 ms saves little more, and a promoter that takes over has to plan its
	// statements first.
	mostBehind = 2
)

// quiet is the time in which nothing is due, as far as a pass or poll saw. A job that is
// created meanwhile may be due earlier: polls find it, of one statement each, where a
// pass has five.
type quiet struct {
	began  clock.Mark    // of the last pass
	lasts  time.Duration // zero: there is none
	next   time.Time     // when a job is due at its end; zero: it ends for another reason
	behind int           // how often others were quicker, one after the other; zero: it does not follow
	seen   time.Time     // when the job was due that was next at its last look
}

// after notes what a pass found that began so.
func (q *quiet) after(began clock.Mark, r Report) {
	switch {
	case r.Claimed > 0 && !r.besideOthers():
		q.behind = 0
	case r.Claimed > 0 || q.expired(r.At):
		q.fallBehind()
	}
	q.began = began
	q.over()
	switch {
	case r.Next.After(r.At):
		q.endsWith(r.Next, r.At, 0)
	case q.behind > 0:
		q.lasts, q.next = q.yield(), r.Next // another one holds it
	}
}

// besideOthers says whether another promoter had a pass meanwhile: a job was due that this one
// could not take. One that is too late is held by somebody else for a long time.
func (r Report) besideOthers() bool {
	return !r.Next.IsZero() && !r.Next.After(r.At) && r.At.Sub(r.Next) < tooLate
}

// leaves notes which job is next as of a time, and says whether to leave it to the others although it is due:
// a promoter that follows takes only what is late, and while the others go on what is too late.
func (q *quiet) leaves(next, at time.Time) bool {
	late, goOn := at.Sub(next), next.After(q.seen)
	q.seen = next
	return q.behind > 0 && (late < yieldFor || goOn && late < tooLate)
}

// outdone notes that a promoter that follows looked when something was due, and found nothing late.
func (q *quiet) outdone(at time.Time) {
	if q.behind > 0 && q.expired(at) {
		q.fallBehind()
	}
}

func (q *quiet) fallBehind() { q.behind = min(q.behind+1, mostBehind) }

// yield is how long it lets the others go first.
func (q *quiet) yield() time.Duration {
	if q.behind == 0 {
		return 0
	}
	return yieldFor << (q.behind - 1)
}

// expired says whether it ended because a job became due, as of a time.
func (q *quiet) expired(at time.Time) bool { return !q.next.IsZero() && !at.Before(q.next) }

// endsWith notes that the next job is due then. That was seen at a time, and asked so long
// after the last pass began. Where no job is due at all, next is in the year 9999. Its distance
// is the longest duration there is, and the sum of that and any other would be negative.
func (q *quiet) endsWith(next, at time.Time, asked time.Duration) {
	q.lasts, q.next = asked+min(max(next.Sub(at), 0), quietFor)+q.yield(), next
	if q.lasts >= quietFor {
		q.lasts, q.next = quietFor, time.Time{}
	}
}

// lastsStill says whether a poll is enough.
func (q *quiet) lastsStill() bool { return q.began.Elapsed() < q.lasts }

// polls says whether a poll comes before a pass.
func (q *quiet) polls() bool { return q.lastsStill() || q.behind > 0 && !q.next.IsZero() }

// over ends it.
func (q *quiet) over() { q.lasts, q.next = 0, time.Time{} }

// left is how long it goes on.
func (q *quiet) left() time.Duration { return max(q.lasts-q.began.Elapsed(), 0) }

// poll asks when the next job is due, has a pass follow then, and the next poll before
// that if it is long.
func (p *Promoter) poll(ctx context.Context, turn *loop.Turn) error {
	since, mark, asked := p.lowerBound(), clock.Start(), p.quiet.began.Elapsed()
	d := due{since: since}
	d.exceptIDs, d.exceptTenants = p.kept()
	found, err := p.store.pollDue(ctx, d)
	if err == nil {
		p.noteScan(since, mark.Elapsed())
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
	if !found.NextAt.After(found.At) && !p.quiet.leaves(found.NextAt, found.At) {
		p.quiet.over()
		p.since = since // what a poll without a bound found, a pass with one would not
		turn.Again(0)
		return nil
	}
	p.quiet.outdone(found.At)
	p.quiet.endsWith(found.NextAt, found.At, asked)
	turn.Await(min(p.quiet.left(), p.pollEvery()))
	return nil
}
