package promoter

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/schedule"
)

// Autopilot changes the status of jobs where nobody has to be asked: a pause
// that has run its time ends, and a job that failed as often in a row as it
// allows is stopped. Both leave the record that a person's change leaves, by
// "system". A zero now means the database's clock.
func (p *Promoter) Autopilot(ctx context.Context, now time.Time) (resumed, stopped int, err error) {
	if resumed, err = p.store.resumePaused(ctx, now); err != nil {
		return 0, 0, err
	}
	if stopped, err = p.store.stopFailing(ctx, now); err != nil {
		return resumed, 0, err
	}
	if resumed+stopped > 0 {
		p.Log.InfoContext(ctx, "jobs resumed or stopped by themselves", "resumed", resumed, "stopped", stopped)
	}
	return resumed, stopped, nil
}

// Audit recounts, for a sample of jobs, the due instants of the last hour
// against the rows that stand for them, and records the difference on the job,
// in the log and in a metric. It takes the sample from a random id on, so that
// each job's turn comes. A zero now means the database's clock.
func (p *Promoter) Audit(ctx context.Context, now time.Time, from uuid.UUID) (AuditReport, error) {
	jobs, err := p.store.toAudit(ctx, now, from)
	if err != nil {
		return AuditReport{}, err
	}
	var report AuditReport
	var found []auditFinding
	for _, j := range jobs {
		window, ok := j.window()
		if !ok {
			continue
		}
		s, err := p.auditedSchedule(&j)
		if err != nil {
			// Promotion parks it; the others are counted all the same.
			p.Log.WarnContext(ctx, "a job's schedule cannot be read", "job_id", j.id, "tenant_id", j.tenant, "error", err)
			continue
		}
		rows, missed, err := p.store.countOutcomes(ctx, j.id, window)
		if err != nil {
			return report, err
		}
		for _, m := range missed {
			rows += s.Between(later(m.from.Add(-time.Microsecond), window.from), earlier(m.to, window.to), 0).Count
		}
		owed := s.Between(window.from, window.to, 0)
		difference := int64(rows - owed.Count)
		report.Jobs, report.Instants = report.Jobs+1, report.Instants+owed.Count
		if difference != 0 {
			report.Differing++
			p.Log.ErrorContext(ctx, "the rows of a job are not those of its due instants", "job_id", j.id, "tenant_id", j.tenant,
				"from", window.from, "to", window.to, "due", owed.Count, "rows", rows)
		}
		found = append(found, auditFinding{job: j.id, difference: difference})
	}
	p.Metrics.Audited(report.Jobs, report.Differing)
	return report, p.store.recordAudit(ctx, now, found)
}

func (p *Promoter) auditedSchedule(j *auditJob) (*schedule.Schedule, error) {
	if j.unreadable != nil {
		return nil, j.unreadable
	}
	sets, versions, err := j.calendars.of(&j.dueJob)
	if err != nil {
		return nil, err
	}
	return p.audited.of(&j.dueJob, sets, versions)
}

// AuditReport is what an audit found.
type AuditReport struct {
	Jobs      int // recounted
	Instants  int // due instants among them
	Differing int // jobs whose rows are more or fewer than their instants
}

// auditSample is how many jobs one audit recounts, and auditEvery how often.
const (
	auditSample = 100
	auditEvery  = time.Minute
	// auditSpan is how far an audit looks back, auditLag how far it stays
	// behind now: what was due a moment ago may still be on its way.
	auditSpan = time.Hour
	auditLag  = 10 * time.Second
)

// auditJob is a job with the times between which it was left alone.
type auditJob struct {
	dueJob
	calendars calendars
	quiet     time.Time // when somebody last changed it
	at        time.Time
}

// auditFinding is what an audit writes on a job.
type auditFinding struct {
	job        uuid.UUID
	difference int64
}

// window is a stretch of time: from excluded, to included.
type window struct{ from, to time.Time }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// window is the part of the last hour in which the job's instants follow from
// its definition alone, and are promoted: up to its next instant. It begins
// with the first instant after the change, because what was due before it was
// decided by the definition of that time.
func (j auditJob) window() (w window, ok bool) {
	w = window{from: j.at.Add(-auditSpan), to: j.at.Add(-auditLag)}
	if j.quiet.After(w.from) {
		w.from = j.quiet
	}
	if !j.due.After(w.to) {
		w.to = j.due.Add(-time.Microsecond) // late: the promotion is on its way
	}
	return w, w.to.After(w.from)
}

func (p *Promoter) auditNow(ctx context.Context) error {
	_, err := p.Audit(ctx, time.Time{}, uuid.New())
	return err
}

func (p *Promoter) autopilotNow(ctx context.Context) error {
	_, _, err := p.Autopilot(ctx, time.Time{})
	return err
}
