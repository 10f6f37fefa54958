package derive

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/notification"
	"github.com/scheduler-service/scheduler/internal/postgres/divide"
)

const (
	// deadlineRows is how many jobs a pass checks, in turns of their tenants, and
	// deadlineRecords how many records of one job.
	deadlineRows, deadlineRecords = 500, 1000
	// A job is checked again at the next deadline, and not before leastCheck has passed; one
	// that was told of not before toldCheck, so that a job of each minute is not told of
	// each minute; one that somebody paused or stopped after idleCheck, and one without anything to come
	// after farCheck.
	leastCheck, idleCheck, toldCheck, farCheck = 15 * time.Second, 5 * time.Minute, 30 * time.Minute, time.Hour
	// refusedCheck is how long a job waits whose event the database refuses.
	refusedCheck = time.Hour
)

// deadline is what the records say of one job at a check.
type deadline struct {
	job, tenant uuid.UUID
	name        string
	tags        []string
	watched     bool // nobody paused or stopped it
	within      time.Duration
	times       int64 // scheduled times that were not completed in time
	first       uuid.UUID
	firstAt     time.Time
	lastAt      time.Time
	status      string    // of the first
	to          time.Time // scheduled times up to it are checked
	next        time.Time // the first scheduled time after that
}

// wanted is a job to check, and since when its tenant wants to be told.
type wanted struct {
	job   uuid.UUID
	since time.Time
}

// CheckDeadlines tells of jobs with completeWithin that were not completed in time, each
// scheduled time once. It is fenced by the lease. A job whose event the database refuses
// stays alone: it is checked again an hour later, and the others are told.
func (d *Deriver) CheckDeadlines(ctx context.Context, held lease.Lease) (total Report, err error) {
	if settled, err := d.deadlines.Settle(ctx); err != nil || !settled {
		total.More = d.deadlines.Waiting()
		return total, err
	}
	until := d.deadlines.Until()
	due, err := d.store.dueDeadlines(ctx, until)
	if err != nil {
		return total, err
	}
	err = divide.Items[wanted]{
		Send: func(jobs []wanted) error {
			one, err := d.store.checkDeadlines(ctx, held, jobs, until)
			if err == nil {
				total.Told, total.Dropped = total.Told+one.Told, total.Dropped+one.Dropped
			}
			return err
		},
		Alone: func(one wanted, why error) error {
			total.Dropped++
			d.log.ErrorContext(ctx, "not told that a job was not completed in time: the database refuses it", "job_id", one.job, "error", why)
			return d.store.postponeDeadline(ctx, held, one, until)
		},
	}.All(due)
	d.metrics.EventsTold(total.Told, total.Dropped)
	if err == nil {
		total.More = len(due) == deadlineRows
		d.deadlines.Reached()
	}
	return total, err
}

// event tells that scheduled times were not completed in time; without any it is nil.
func (l *deadline) event() []happening {
	if l.times == 0 {
		return nil
	}
	first, by := l.firstAt, l.firstAt.Add(l.within)
	e := notification.Event{
		ID: eventID("job.not_run_by", l.job, first), Type: "job.not_run_by", At: l.lastAt.Add(l.within), JobID: &l.job, JobName: l.name,
		ScheduledAt: &first, ExpectedBy: &by, MissedCount: l.times, Reason: reasons[l.status],
	}
	if l.first != uuid.Nil {
		e.ExecutionID = &l.first
	}
	if last := l.lastAt; last.After(first) {
		e.MissedUntil = &last
	}
	return []happening{{tenant: l.tenant, tags: l.tags, Event: e}}
}

// reasons say of the state of an execution why it was not completed in time.
var reasons = map[string]string{
	"unpromoted": "it has not become an execution yet",
	"pending":    "it waits",
	"retrying":   "it waits for another attempt",
	"running":    "it still runs",
	"parked":     "its end could not be stored yet",
	"completed":  "it was completed later",
	"failed":     "it failed",
	"cancelled":  "it was cancelled",
	"skipped":    "it was skipped",
	"missed":     "it was missed",
}

// again is when the job is to be checked next, after a check that knew everything up to a
// time.
func (l *deadline) again(until time.Time) time.Time {
	rest := leastCheck
	switch {
	case !l.watched:
		return until.Add(idleCheck)
	case l.times > 0:
		rest = toldCheck
	}
	at := until.Add(farCheck)
	if l.next.Before(never) {
		at = l.next.Add(l.within)
	}
	if least := until.Add(rest); at.Before(least) {
		at = least
	}
	return at
}
