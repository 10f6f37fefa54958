package maintenance

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/job/schedules"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

const (
	// sampleSize is how many jobs one pass of ReconcileSchedules takes.
	sampleSize = 100
	// sampleSpan is how far it looks back, and sampleLag how far it stays behind
	// now: what was due a moment ago may still be on its way.
	sampleSpan = time.Hour
	sampleLag  = 10 * time.Second
)

// SchedulesReport is what ReconcileSchedules found.
type SchedulesReport struct {
	Jobs      int // compared
	Times     int // scheduled times among them
	Differing int // jobs with more or fewer rows than scheduled times
}

// ReconcileSchedules compares, for a sample of jobs, the scheduled times of the
// last hour with the rows that stand for them, and records the difference on
// the job, in the log and in a metric. It takes the sample from an id on, a
// random one in production, so that each job's turn comes. A zero now means the
// database's clock.
func (m *Maintainer) ReconcileSchedules(ctx context.Context, now time.Time, from uuid.UUID) (SchedulesReport, error) {
	jobs, err := m.store.sample(ctx, now, from)
	if err != nil {
		return SchedulesReport{}, err
	}
	var report SchedulesReport
	var found []difference
	for _, j := range jobs {
		span, ok := j.settled()
		if !ok {
			continue
		}
		s, err := m.scheduleOf(j)
		if err != nil {
			// Promotion parks it; the others are compared all the same.
			m.c.Log.WarnContext(ctx, "a job's schedule cannot be read", "job_id", j.id, "tenant_id", j.tenant, "error", err)
			continue
		}
		rows, err := m.countRows(ctx, j.id, s, span)
		if err != nil {
			return report, err
		}
		times := s.Between(span.from, span.to, 0).Count
		report.Jobs, report.Times = report.Jobs+1, report.Times+times
		if rows != times {
			report.Differing++
			m.c.Log.ErrorContext(ctx, "a job has more or fewer rows than scheduled times", "job_id", j.id, "tenant_id", j.tenant,
				"from", span.from, "to", span.to, "scheduled", times, "rows", rows)
		}
		found = append(found, difference{job: j.id, rows: int64(rows - times)})
	}
	m.c.Metrics.Reconciled(report.Jobs, report.Differing)
	return report, m.store.recordDifferences(ctx, now, found)
}

// countRows counts the scheduled times in a span that have a row.
func (m *Maintainer) countRows(ctx context.Context, job uuid.UUID, s *schedule.Schedule, in span) (int, error) {
	rows, missed, err := m.store.countOutcomes(ctx, job, in)
	if err != nil {
		return 0, err
	}
	for _, r := range missed {
		rows += s.Between(clock.Later(r.from.Add(-time.Microsecond), in.from), clock.Earlier(r.to, in.to), 0).Count
	}
	return rows, nil
}

func (m *Maintainer) scheduleOf(j sampledJob) (*schedule.Schedule, error) {
	if j.unreadable != nil {
		return nil, j.unreadable
	}
	return m.schedules.Of(schedules.Job{ID: j.id, Version: j.version, Anchor: j.anchor, Policy: &j.policy}, j.calendars)
}

// sampledJob is a job with the times between which nobody changed it.
type sampledJob struct {
	id, tenant uuid.UUID
	version    int
	anchor     time.Time
	policy     job.Policy
	calendars  schedules.Calendars
	unreadable error     // why its row cannot be read; nil: it can
	due        time.Time // next_execution_at
	changed    time.Time // when somebody last changed it
	at         time.Time
}

// difference is what ReconcileSchedules writes on a job.
type difference struct {
	job  uuid.UUID
	rows int64 // too many; negative: too few
}

// span is from a time, excluded, to a time, included.
type span struct{ from, to time.Time }

// settled is the part of the last hour in which the job's scheduled times follow
// from its definition alone and are promoted: up to its next scheduled time. It
// begins after the last change, because the definition of that time decided what
// was due before it.
func (j sampledJob) settled() (s span, ok bool) {
	s = span{from: clock.Later(j.at.Add(-sampleSpan), j.changed), to: j.at.Add(-sampleLag)}
	if !j.due.After(s.to) {
		s.to = j.due.Add(-time.Microsecond) // late: the promotion is on its way
	}
	return s, s.to.After(s.from)
}
