package simulation

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// Requests of tenants, and the leases of workers.

// Why a request is refused.
const (
	notFound = "not found"
	conflict = "conflict"
)

func (o createJob) do(t *tables, at time.Time) answer {
	compiled, err := schedule.Compile(o.Spec.Definition(o.Job.String(), at, nil))
	if err != nil {
		return answer{Refused: err.Error()}
	}
	next, _ := compiled.Next(at)
	t.jobs = append(t.jobs, jobRow{ID: o.Job, tenant: o.Tenant, Status: job.Active, Next: next, spec: o.Spec, schedule: compiled})
	slices.SortFunc(t.jobs, func(a, b jobRow) int { return compareIDs(a.ID, b.ID) })
	return answer{}
}

func (o setLimits) do(t *tables, _ time.Time) answer {
	t.tenant(o.Tenant).Most = o.Most
	return answer{}
}

// live is the tenant's job unless it is deleted.
func (t *tables) live(tenant, id uuid.UUID) *jobRow {
	if j := t.job(id); j != nil && !j.Deleted && (j.tenant == tenant || t.bug == crossesTenants) {
		return j
	}
	return nil
}

func (o pauseJob) do(t *tables, _ time.Time) answer {
	j := t.live(o.Tenant, o.Job)
	switch {
	case j == nil:
		return answer{Refused: notFound}
	case j.Status == job.Inactive:
		return answer{Refused: conflict}
	}
	j.Status, j.Until, j.Resume = job.Paused, o.Until, ""
	return answer{}
}

func (o resumeJob) do(t *tables, at time.Time) answer {
	j := t.live(o.Tenant, o.Job)
	switch {
	case j == nil:
		return answer{Refused: notFound}
	case j.Status == job.Active:
		return answer{}
	case j.Status == job.Paused && !j.Next.IsZero() && !j.Next.After(at):
		j.Resume = j.spec.Misfire.Policy
		if o.Missed != "" {
			j.Resume = o.Missed
		}
		j.Status, j.Until = job.Active, time.Time{}
		return answer{}
	}
	next, more := j.schedule.Next(at)
	if !more {
		return answer{Refused: conflict}
	}
	j.Status, j.Until, j.Resume, j.Next = job.Active, time.Time{}, "", next
	return answer{}
}

func (o deleteJob) do(t *tables, at time.Time) answer {
	j := t.live(o.Tenant, o.Job)
	if j == nil {
		return answer{Refused: notFound}
	}
	j.Deleted, j.Status, j.Next = true, job.Inactive, time.Time{}
	if t.bug != deletesOnly {
		const reason = "the job was deleted"
		t.cancelWaiting(o.Job, at, reason)
		t.requestCancel(o.Job, at, reason)
	}
	return answer{}
}

func (o triggerJob) do(t *tables, at time.Time) answer {
	j := t.live(o.Tenant, o.Job)
	if j == nil {
		return answer{Refused: notFound}
	}
	a := j.spec.AdmitTrigger(t.places(o.Job))
	if !a.Run {
		return answer{Refused: conflict}
	}
	r := newRow(j.tenant, o.Job, j.spec, o.ID, at, at)
	r.Trigger = execution.Manual
	if a.Gated {
		r.SlotLimit = j.spec.MaxConcurrent
	} else if !r.bound() {
		r.pool()
	}
	t.insert(r)
	j.Last = at
	return answer{IDs: []uuid.UUID{o.ID}}
}

func (o resumePausedJobs) do(t *tables, at time.Time) (a answer) {
	for i := range t.jobs {
		j := &t.jobs[i]
		if j.Status != job.Paused || j.Until.IsZero() || j.Until.After(at) || j.lock != 0 || o.Locked.holds(j.ID) {
			continue
		}
		j.Status, j.Until, j.Resume = job.Active, time.Time{}, ""
		if !j.Next.IsZero() && !j.Next.After(at) {
			j.Resume = j.spec.Misfire.Policy
		}
		a.IDs = append(a.IDs, j.ID)
	}
	return a
}

func (o registerWorker) do(t *tables, at time.Time) answer {
	t.workers = append(t.workers, workerRow{ID: o.Worker, ExpiresAt: at.Add(o.Lease), Types: o.Types})
	slices.SortFunc(t.workers, func(a, b workerRow) int { return compareIDs(a.ID, b.ID) })
	return answer{}
}

func (o renewWorker) do(t *tables, at time.Time) (a answer) {
	if w := t.worker(o.Worker); w != nil && !w.Dead && w.ExpiresAt.After(at) {
		w.ExpiresAt = at.Add(o.Lease)
		a.Stands = true
	}
	return a
}

func (o retireWorker) do(t *tables, _ time.Time) answer {
	if w := t.worker(o.Worker); w != nil {
		w.Dead = true
	}
	return answer{}
}

func (markDeadWorkers) do(t *tables, at time.Time) (a answer) {
	for i := range t.workers {
		if w := &t.workers[i]; !w.Dead && w.ExpiresAt.Before(at.Add(-time.Second/2)) {
			w.Dead = true
			a.IDs = append(a.IDs, w.ID)
		}
	}
	return a
}
