package promoter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/backfill"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/job/schedules"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/divide"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

const (
	backfillEvery = time.Second
	// backfillBatch is how many backfills one transaction takes.
	backfillBatch = 20
	// backfillRounds bounds how many of them a pass does.
	backfillRounds = 20
	// maxBackfillWaiting bounds how many executions of one backfill wait for a
	// worker or for a place of their job: more would only be hinted in vain.
	// A backfill makes no more than its job can run.
	maxBackfillWaiting = 200
	// maxBackfillDebt is how much of its rate a backfill makes up for at once
	// when no promoter looked at it for longer.
	maxBackfillDebt = 5 * time.Second
)

// BackfillReport is what a pass over the backfills did.
type BackfillReport struct {
	Claimed  int // backfills taken
	Created  int // executions made
	Finished int // backfills that are finished
	Held     int // backfills that failed alone and wait
}

// Backfill makes the executions that running backfills are due at now, as many
// as their rates allow; a zero now means the database's clock. One transaction
// inserts the executions and moves the cursors, and the ids are arithmetic, so
// any number of promoters make each time once, whenever one of them stops.
// Where some fail, they are divided until each that fails is alone: that one is
// held, with the reason, and the others go on.
func (p *Promoter) Backfill(ctx context.Context, now time.Time) (report BackfillReport, err error) {
	which := dueBackfills{now: now}
	for range backfillRounds {
		claimed, failed := p.backfillSome(ctx, which, &report)
		if failed != nil && passesByItself(failed) {
			return report, failed
		}
		if failed != nil {
			d := divide.Items[uuid.UUID]{
				Refused: func(err error) bool { return !passesByItself(err) },
				Send: func(ids []uuid.UUID) error {
					_, err := p.backfillSome(ctx, dueBackfills{now: now, ids: ids}, &report)
					return err
				},
				Alone: func(id uuid.UUID, why error) error {
					report.Held++
					which.passedOver = append(which.passedOver, id)
					p.c.Log.ErrorContext(ctx, "a backfill fails and is held", "backfill_id", id, "error", why)
					return p.store.holdBackfill(ctx, now, id, "it fails: "+reasonOf(why))
				},
			}
			err = errors.Join(err, d.All(claimed))
		}
		if len(claimed) < backfillBatch {
			break
		}
	}
	if report.Claimed > 0 {
		p.c.Metrics.Batch("backfill", report.Created)
	}
	return report, err
}

// passesByItself says that an error is none of what was written or read.
func passesByItself(err error) bool {
	return fault.KindOf(err) == fault.Unavailable || errors.Is(err, context.Canceled)
}

// reasonOf is what a tenant may know of an error.
func reasonOf(err error) string {
	if postgres.Refused(err) {
		return postgres.Why(err)
	}
	return "something that it is made of cannot be read; the log says what"
}

// backfillSome advances one batch, and answers which backfills it claimed also
// where it failed.
func (p *Promoter) backfillSome(ctx context.Context, which dueBackfills, report *BackfillReport) (claimed []uuid.UUID, err error) {
	made, claimed, err := p.store.advanceBackfills(ctx, which, p.decideBackfills)
	if err != nil {
		return claimed, err
	}
	var hints []dispatch.Waiting
	pooled := false
	for _, b := range made {
		report.Created += len(b.times)
		if b.status != backfill.Running {
			report.Finished++
		}
		for _, at := range b.times {
			if b.gate == 0 && b.job.policy.ConcurrencyKey == "" {
				pooled = true
				continue
			}
			hints = append(hints, dispatch.Waiting{ID: execution.BackfillID(b.id, at), Priority: b.job.policy.Priority})
		}
	}
	p.hints.Send(ctx, hints)
	if pooled {
		p.c.CallWorkers(ctx)
	}
	report.Claimed += len(made)
	return claimed, nil
}

// runningBackfill is a backfill that is due, and what it must know to go on.
type runningBackfill struct {
	id       uuid.UUID
	job      dueJob // the version that it runs; where it counts an interval from
	cursor   time.Time
	to       time.Time
	due      time.Time     // when its next execution may be made
	distance time.Duration // between two executions
	share    int           // of the executions of a day, in percent; see backfill.Request
	gate     int           // how many runs the job may have at once now; 0: any number
	deleted  bool          // the job is
	key      string        // the concurrency key of its runs; empty: none
	active   int           // executions that are not over
	waiting  int           // of these, those that do not run

	unreadable error // why its definition cannot be read; nil: it can
}

// backfillStep is what becomes of one backfill in a pass.
type backfillStep struct {
	runningBackfill

	times  []time.Time
	status backfill.Status
	next   time.Time // when to look at it again
	from   time.Time // where its cursor was
	heldBy string    // the limit because of which it makes less than it could; empty: none
}

// heldFor is when to look again, at the latest, whether a backfill that is held
// may go on: the limit may have been raised, what is broken mended.
const heldFor = time.Minute

// hold leaves the last n times for later, and says why.
func (s *backfillStep) hold(n int, by string, next time.Time) {
	s.times = s.times[:len(s.times)-n]
	s.cursor = s.from
	if kept := len(s.times); kept > 0 {
		s.cursor = s.times[kept-1]
	}
	s.status, s.heldBy, s.next = backfill.Running, by, next
}

// nextDay is when to look again for what used up the day's executions.
func nextDay(at time.Time) time.Time {
	next := at.Add(heldFor)
	if tomorrow := at.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour); tomorrow.Before(next) {
		return tomorrow
	}
	return next
}

// decideBackfills plans a batch.
func (p *Promoter) decideBackfills(ctx context.Context, due []runningBackfill, sets schedules.Calendars, at time.Time) []backfillStep {
	steps := make([]backfillStep, len(due))
	for i, b := range due {
		if b.unreadable != nil {
			p.c.Log.ErrorContext(ctx, "a backfill is held: its definition cannot be read", "backfill_id", b.id, "job_id", b.job.id,
				"tenant_id", b.job.tenant, "error", b.unreadable)
			steps[i] = backfillStep{runningBackfill: b, status: backfill.Running, heldBy: "its definition cannot be read", next: at.Add(heldFor)}
			continue
		}
		s, err := p.backfilled.Of(b.job.compiled(), sets)
		if err != nil {
			p.c.Log.ErrorContext(ctx, "backfill cancelled: its schedule cannot be read any more", "backfill_id", b.id, "job_id", b.job.id,
				"tenant_id", b.job.tenant, "error", fmt.Errorf("compile: %w", err))
			steps[i] = backfillStep{runningBackfill: b, status: backfill.Cancelled, next: at}
			continue
		}
		steps[i] = b.step(s, at)
	}
	return steps
}

// step plans one backfill's batch at a time.
func (b runningBackfill) step(s *schedule.Schedule, at time.Time) backfillStep {
	out := backfillStep{runningBackfill: b, status: backfill.Running, from: b.cursor}
	if b.deleted {
		out.status, out.next = backfill.Cancelled, at
		return out
	}
	allowed, next := b.allowance(at)
	out.next = next
	more := true
	for {
		following, ok := s.Next(out.cursor)
		if more = ok && following.Before(b.to); !more || len(out.times) == allowed {
			break
		}
		out.times = append(out.times, following)
		out.cursor = following
	}
	if more {
		return out
	}
	// Every time has its execution: what is left is to see them end.
	out.next = at.Add(backfillEvery)
	if b.active+len(out.times) == 0 {
		out.status = backfill.Completed
	}
	return out
}

// allowance is how many executions the rate lets the backfill make at an
// time that it is due at, and when the next may follow. The places follow
// one another at the rate's distance, so that no pass, early or late, shifts
// the rate.
func (b runningBackfill) allowance(at time.Time) (count int, next time.Time) {
	behind := at.Sub(b.due)
	if behind < 0 {
		behind = 0
	}
	if count = 1 + int(behind/b.distance); behind > maxBackfillDebt {
		count, next = 1+int(maxBackfillDebt/b.distance), at.Add(b.distance)
	} else {
		next = b.due.Add(time.Duration(count) * b.distance)
	}
	if room := max(0, maxBackfillWaiting-b.waiting); count > room {
		count, next = room, at.Add(max(b.distance, backfillEvery))
	}
	return count, next
}

// backfillDue runs a pass over the backfills. While nothing is due it sends nothing: a
// poll calls it.
func (p *Promoter) backfillDue(ctx context.Context, _ *loop.Turn) error {
	if p.idle.Load() {
		return nil
	}
	report, err := p.Backfill(ctx, time.Time{})
	if report.Finished > 0 {
		p.c.Log.InfoContext(ctx, "backfills finished", "backfills", report.Finished)
	}
	return err
}
