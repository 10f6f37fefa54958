package derive

import (
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/notification"
)

// happening is an event, and the job that it is about.
type happening struct {
	notification.Event

	tenant uuid.UUID
	tags   []string
}

// outcome is an execution that ended, or scheduled times that did not run.
type outcome struct {
	tenant, job, id uuid.UUID
	name            string
	tags            []string
	status          string
	scheduledAt, at time.Time
	attempt         int
	duration        time.Duration
	errorType       string
	errorMessage    string
	missedCount     int64
	missedUntil     *time.Time
	reason          string
}

// failure is a row of failed executions of a job.
type failure struct {
	tenant, first uuid.UUID
	since         time.Time
	failures      int64
}

// failing is what is known of the jobs whose last execution failed, and which of it
// changed.
type failing struct {
	rows    map[uuid.UUID]failure // by job
	changed map[uuid.UUID]bool
}

// fold makes events of an outcome, and keeps it.
func (f *failing) fold(o outcome) []happening {
	row, fails := f.rows[o.job]
	switch {
	case o.status == "missed":
		e := o.event("execution.missed")
		e.MissedCount, e.MissedUntil, e.Reason = max(o.missedCount, 1), o.missedUntil, o.reason
		return []happening{e}
	case o.status == "skipped":
		e := o.event("execution.skipped")
		e.Reason = o.reason
		return []happening{e}
	case o.status == "failed":
		if !fails {
			row = failure{tenant: o.tenant, first: o.id, since: o.at}
		}
		row.failures++
		f.rows[o.job], f.changed[o.job] = row, true
		made := []happening{o.ended("execution.failed", row)}
		if !fails {
			made = append(made, o.ended("job.failed", row))
		}
		return made
	case o.status == "completed" && fails:
		delete(f.rows, o.job)
		f.changed[o.job] = true
		return []happening{o.ended("job.recovered", row)}
	}
	return nil
}

// event is an event about an outcome.
func (o *outcome) event(kind string) happening {
	return happening{tenant: o.tenant, tags: o.tags, Event: notification.Event{
		ID: eventID(kind, o.id, o.scheduledAt), Type: kind, At: o.at, JobID: &o.job, JobName: o.name, ExecutionID: &o.id, ScheduledAt: &o.scheduledAt,
	}}
}

// ended is an event about an execution that ran, and the row of failures that it belongs
// to or ends.
func (o *outcome) ended(kind string, row failure) happening {
	e := o.event(kind)
	e.Attempt, e.DurationMS, e.ErrorType, e.ErrorMessage = o.attempt, o.duration.Milliseconds(), o.errorType, o.errorMessage
	e.Failures, e.FailingSince = row.failures, &row.since
	return e
}

// eventID is the same for the same event, however often it is made.
func eventID(kind string, subject uuid.UUID, at time.Time) uuid.UUID {
	return uuid.NewSHA1(subject, []byte(kind+"|"+at.UTC().Format(time.RFC3339Nano)))
}

// maxListed is how many events a message lists; the others are counted.
const maxListed = 50

// message is what one notification tells at once.
type message struct {
	delivery     uuid.UUID // Nil: it is not stored yet
	notification uuid.UUID
	events       []notification.Event
	count        int
	at           time.Time // when it may be sent
	grew         bool
}

func (m *message) add(e notification.Event) {
	if m.grew, m.count = true, m.count+1; len(m.events) < maxListed {
		m.events = append(m.events, e)
	}
}

// history is what notifications told before, by their ids.
type history struct {
	collecting map[uuid.UUID]*message  // the message that waits for more
	last       map[uuid.UUID]time.Time // the last message
}

// plan says which notification tells which event, and when, as far as a tenant has room for
// more messages that wait, and how many events each dropped.
func plan(wanted []notification.Notification, happened []happening, before history, room map[uuid.UUID]int, now time.Time) (messages []*message, dropped map[uuid.UUID]int) {
	dropped = map[uuid.UUID]int{}
	of := map[uuid.UUID][]*notification.Notification{}
	for i := range wanted {
		of[wanted[i].TenantID] = append(of[wanted[i].TenantID], &wanted[i])
	}
	for i := range happened {
		h := &happened[i]
		for _, n := range of[h.tenant] {
			collects := before.collecting[n.ID]
			switch {
			case !n.Tells(&h.Event, h.tags):
			case collects != nil:
				collects.add(h.Event)
			case room[h.tenant] <= 0:
				dropped[n.ID]++
			default:
				room[h.tenant]--
				m := &message{notification: n.ID, at: n.Release(now, before.last[n.ID])}
				m.add(h.Event)
				if messages = append(messages, m); m.at.After(now) {
					before.collecting[n.ID] = m
				}
				before.last[n.ID] = m.at
			}
		}
	}
	for _, m := range before.collecting {
		if m.grew && m.delivery != uuid.Nil {
			messages = append(messages, m)
		}
	}
	return messages, dropped
}
