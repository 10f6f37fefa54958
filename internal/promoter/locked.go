package promoter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/job/schedules"
	"github.com/scheduler-service/scheduler/internal/loop"
)

const (
	// lockedFor is how late a job is that is waited for where a scan found it locked. An
	// ordinary transaction has ended by then, and a scan finds the job.
	lockedFor = 250 * time.Millisecond
	// awaitTime is how long a statement may wait for the lock that keeps a job back. One of
	// a request may for 5 s. So all who stood in the line before have had the lock or given
	// up before the promoter would.
	awaitTime = 6 * time.Second
	// awaitedAtOnce is how many parts are waited for at once, with a connection each. The
	// promoter has six.
	awaitedAtOnce = 2
	// maxLocked bounds the jobs that are waited for. Scans see the others.
	maxLocked = 1000
)

// locked are jobs that are due and that somebody else's lock keeps from being promoted: a
// job that is triggered without end is hardly ever free for a scan, which skips it. No batch
// holds them. Another goroutine waits for the locks, so that nothing else waits for it.
type locked struct {
	mu     sync.Mutex
	waits  suspects      // parts that are tried next
	trying []part        // parts that are tried now
	since  time.Time     // when the oldest of those that were tried was due; zero: none since the last scan
	called chan struct{} // calls for PromoteLocked
}

// add has a part waited for, unless there are too many.
func (l *locked) add(one part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ids, _ := l.all().kept(); len(ids)+len(one.jobs) > maxLocked {
		return
	}
	one.awaits = true
	l.waits.parts = append(l.waits.parts, one)
	call(l.called)
}

// kept are the jobs that no batch holds meanwhile, and the tenants with many of them.
func (l *locked) kept() (ids, tenants []uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all().kept()
}

func (l *locked) all() *suspects { return &suspects{parts: slices.Concat(l.waits.parts, l.trying)} }

// take begins to try some parts, tenants in turns.
func (l *locked) take() []part {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.waits.parts) > 0 && len(l.trying) < awaitedAtOnce {
		l.trying = append(l.trying, l.waits.pop())
	}
	return l.trying
}

// settle ends the trials, and waits again for those that are left. The next scan looks for the others.
func (l *locked) settle(left []part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.trying {
		if l.since.IsZero() || one.due.Before(l.since) {
			l.since = one.due
		}
	}
	l.trying, l.waits.parts = nil, append(l.waits.parts, left...)
}

// seenFrom lowers the bound of the next scan, so that it sees the jobs that are not waited
// for any more.
func (l *locked) seenFrom(bound time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	since := l.since
	if l.since = (time.Time{}); !since.IsZero() && since.Before(bound) {
		return since
	}
	return bound
}

// any says whether something is waited for.
func (l *locked) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waits.parts) > 0
}

// awaitLocked has a job waited for that a pass found locked although it is late.
func (p *Promoter) awaitLocked(made plan, c claim, d due) {
	left := made.left
	switch {
	case left.at.IsZero() || made.at.Sub(left.at) < lockedFor:
	case len(c.jobs) >= d.batch && !left.at.Before(made.oldest): // the batch did not come to it
	case slices.ContainsFunc(c.jobs, func(j dueJob) bool { return j.id == left.id }): // the plan did not
	default:
		p.locked.add(part{jobs: []suspect{left.suspect}, rows: d.rows, due: left.at})
	}
}

// kept are the jobs that no ordinary batch holds, and the tenants with so many of
// them that their other jobs wait too.
func (p *Promoter) kept() (ids, tenants []uuid.UUID) {
	ids, tenants = p.suspects.kept()
	awaited, of := p.locked.kept()
	return append(ids, awaited...), append(tenants, of...)
}

// PromoteLocked waits for the locks that keep due jobs back, of a few at a time, and promotes
// each job when its turn comes. It goes on beside Pass, which waits for nobody. A
// zero now means the database's clock.
func (p *Promoter) PromoteLocked(ctx context.Context, now time.Time) (report Report, err error) {
	parts := p.locked.take()
	if len(parts) == 0 {
		return Report{}, nil
	}
	seen := p.seeLanes(ctx)
	reports, failures, alone := make([]Report, len(parts)), make([]error, len(parts)), make([]*Promoter, len(parts))
	var trials sync.WaitGroup
	for i, one := range parts {
		alone[i] = p.beside(one)
		trials.Go(func() { reports[i], failures[i] = alone[i].tryParts(ctx, now, seen) })
	}
	trials.Wait()
	var left []part
	for i, r := range reports {
		left = append(left, alone[i].suspects.parts...)
		report.Claimed, report.Promoted = report.Claimed+r.Claimed, report.Promoted+r.Promoted
		report.Missed, report.Parked, report.Mended = report.Missed+r.Missed, report.Parked+r.Parked, report.Mended+r.Mended
	}
	p.locked.settle(left)
	p.Wake()
	return report, errors.Join(failures...)
}

// beside is a promoter for the trial of one part, while others pass.
func (p *Promoter) beside(one part) *Promoter {
	return &Promoter{
		c: p.c, store: p.store, hints: p.hints, schedules: schedules.NewCache(), late: p.late, locked: p.locked,
		suspects: suspects{parts: []part{one}}, decideJob: p.decideJob, watch: p.watch,
	}
}

// promoteLocked runs a pass over what is locked while there is any.
func (p *Promoter) promoteLocked(ctx context.Context, turn *loop.Turn) error {
	report, err := p.PromoteLocked(ctx, time.Time{})
	p.warnMissed(ctx, report)
	switch {
	case err != nil: // no batch holds these jobs, so they must not wait for the rest of a failure
		turn.Again(pauseAfterError)
		return err
	case (report.Claimed > 0 || report.Mended > 0) && p.locked.any():
		turn.Again(0)
	case p.locked.any():
		turn.Again(lockedFor) // between two trials others may have the rows that the promoter needs
	}
	return nil
}

func (p *Promoter) warnMissed(ctx context.Context, r Report) {
	if r.Missed > 0 {
		p.c.Log.WarnContext(ctx, "scheduled times were missed", "missed", r.Missed, "promoted", r.Promoted)
	}
}
