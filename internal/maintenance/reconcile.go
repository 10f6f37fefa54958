package maintenance

import (
	"context"
	"encoding/binary"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/job/schedules"
	"github.com/scheduler-service/scheduler/internal/postgres/divide"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

const (
	// sampleSize is how many jobs one pass of ReconcileSchedules takes.
	sampleSize = 100
	// timesTogether is how many rows one statement is expected to count: those of twenty
	// jobs that are due each second, or of all that are due each minute.
	timesTogether = 72_000
	// sampleSpan is how far it looks back, and sampleLag how far it stays behind
	// now: what was due a moment ago may still be on its way.
	sampleSpan = time.Hour
	sampleLag  = 10 * time.Second
)

// SchedulesReport is what ReconcileSchedules found.
type SchedulesReport struct {
	Jobs      int       // compared
	Times     int       // scheduled times among them
	Differing int       // jobs with more or fewer rows than scheduled times
	Next      uuid.UUID // where the next sample goes on
}

// ReconcileSchedules compares, for a sample of jobs, the scheduled times of the
// last hour with the rows that stand for them, and records the difference on
// the job, in the log and in a metric. It takes the sample from an id on: that of the report
// before, so that each job's turn comes. A zero now means the database's clock.
func (m *Maintainer) ReconcileSchedules(ctx context.Context, now time.Time, from uuid.UUID) (SchedulesReport, error) {
	jobs, err := m.store.sample(ctx, now, from)
	if err != nil {
		return SchedulesReport{Next: from}, err
	}
	report := SchedulesReport{Next: from}
	if len(jobs) > 0 {
		report.Next = jobs[len(jobs)-1].id
	}
	var found []difference
	for some := range pieces(m.comparable(ctx, jobs)) {
		differing, err := m.compare(ctx, some, &report)
		if err != nil {
			return report, err
		}
		found = append(found, differing...)
	}
	m.c.Metrics.Reconciled(report.Jobs, report.Differing)
	return report, divide.Items[difference]{
		Send: func(some []difference) error { return m.store.recordDifferences(ctx, now, some) },
		Alone: func(d difference, err error) error {
			m.c.Log.ErrorContext(ctx, "what was reconciled of a job is not recorded: the database refuses it", "job_id", d.job, "difference", d.rows, "error", err)
			return nil
		},
	}.All(found)
}

// anyID is where the samples of a process begin: the id of a job that was made at some moment of
// the last year. An id begins with its time, so a wholly random one lies behind all of them.
func anyID(now time.Time) uuid.UUID {
	const year = 365 * 24 * time.Hour
	id := uuid.New()
	var made [8]byte
	binary.BigEndian.PutUint64(made[:], uint64(now.Add(-rand.N(year)).UnixMilli())<<16)
	copy(id[:6], made[:])
	return id
}

// comparison is a job whose rows can be counted.
type comparison struct {
	job      sampledJob
	in       span
	schedule *schedule.Schedule
	times    int // scheduled times in the span
}

func (m *Maintainer) comparable(ctx context.Context, jobs []sampledJob) (all []comparison) {
	for _, j := range jobs {
		in, ok := j.settled()
		if !ok {
			continue
		}
		s, err := m.scheduleOf(j)
		if err != nil {
			// Promotion parks it; the others are compared all the same.
			m.c.Log.WarnContext(ctx, "a job's schedule cannot be read", "job_id", j.id, "tenant_id", j.tenant, "error", err)
			continue
		}
		all = append(all, comparison{j, in, s, s.Between(in.from, in.to, 0).Count})
	}
	return all
}

// pieces are comparisons that come to at most timesTogether rows, or are a single one.
func pieces(all []comparison) iter.Seq[[]comparison] {
	return func(yield func([]comparison) bool) {
		for len(all) > 0 {
			n, times := 1, all[0].times
			for n < len(all) && times+all[n].times <= timesTogether {
				times += all[n].times
				n++
			}
			if !yield(all[:n]) {
				return
			}
			all = all[n:]
		}
	}
}

// compare compares the scheduled times of some jobs with their rows.
func (m *Maintainer) compare(ctx context.Context, some []comparison, report *SchedulesReport) (found []difference, err error) {
	spans := map[uuid.UUID]span{}
	for _, c := range some {
		spans[c.job.id] = c.in
	}
	counted, missed, err := m.store.countOutcomes(ctx, spans)
	if err != nil {
		return nil, err
	}
	for _, c := range some {
		rows := counted[c.job.id]
		for _, r := range missed[c.job.id] {
			rows += c.schedule.Between(clock.Later(r.from.Add(-time.Microsecond), c.in.from), clock.Earlier(r.to, c.in.to), 0).Count
		}
		report.Jobs, report.Times = report.Jobs+1, report.Times+c.times
		if rows != c.times {
			report.Differing++
			m.c.Log.ErrorContext(ctx, "a job has more or fewer rows than scheduled times", "job_id", c.job.id, "tenant_id", c.job.tenant,
				"from", c.in.from, "to", c.in.to, "scheduled", c.times, "rows", rows)
		}
		found = append(found, difference{job: c.job.id, rows: int64(rows - c.times)})
	}
	return found, nil
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
