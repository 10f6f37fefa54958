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

// quietFor is for how long nothing but polls follow a pass that found nothing due.
const quietFor = time.Minute

// quiet is the time in which nothing is due, as far as a pass or poll saw. A job that is
// created meanwhile may be due earlier: polls find it, of one statement each, where a
// pass has five.
type quiet struct {
	began clock.Mark
	lasts time.Duration // zero: there is none
}

// after notes what a pass found that began so.
func (q *quiet) after(began clock.Mark, r Report) {
	q.began, q.lasts = began, 0
	if r.Claimed == 0 && r.Next.After(r.At) {
		q.lasts = min(r.Next.Sub(r.At), quietFor)
	}
}

// endsWithin notes that the next job is due in so long.
func (q *quiet) endsWithin(next time.Duration) { q.lasts = min(q.lasts, q.began.Elapsed()+next) }

// lastsStill says whether a poll is enough.
func (q *quiet) lastsStill() bool { return q.began.Elapsed() < q.lasts }

// left is how long it goes on.
func (q *quiet) left() time.Duration { return max(q.lasts-q.began.Elapsed(), 0) }

// poll asks when the next job is due, has a pass follow then, and the next poll before
// that if it is long.
func (p *Promoter) poll(ctx context.Context, turn *loop.Turn) error {
	since, mark := p.lowerBound(), clock.Start()
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
	next := found.NextAt.Sub(found.At)
	if next <= 0 {
		p.quiet, p.since = quiet{}, since // what a poll without a bound found, a pass with one would not
		turn.Again(0)
		return nil
	}
	p.quiet.endsWithin(next - mark.Elapsed())
	turn.Await(min(p.quiet.left(), p.pollEvery()))
	return nil
}
