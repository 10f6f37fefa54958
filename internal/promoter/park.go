package promoter

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/audit"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/job/schedules"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// badJob is a job that cannot be promoted, and why.
type badJob struct {
	job  *dueJob
	kind string // for the metric: refused, slow, schedule or panic
	what string // for its owner
}

// reason is what the job's status says to its owner.
func (k badJob) reason() string {
	return fmt.Sprintf("parked, because %s. Its scheduled times from %s on have not run. Once the cause is mended, resume the job "+
		"(POST /api/v1/scheduler/jobs/{id}/resume): they are then treated as after a pause, and none is lost", k.what, k.job.due.Format(time.RFC3339))
}

// maxRefusal bounds what is shown of the database's words.
const maxRefusal = 300

// refusal is what the database said of a row: the rule that it breaks, and not the
// row.
func refusal(err error) string {
	var f *fault.Error
	if errors.As(err, &f) && f.Code == postgres.NoPartition {
		return "there is no table for the executions of its month, which an operator has removed"
	}
	said := strings.ToValidUTF8(err.Error(), "")
	if len(said) > maxRefusal {
		said = strings.ToValidUTF8(said[:maxRefusal], "") + "…"
	}
	return "the database refuses its executions: " + said
}

// park makes jobs inactive that cannot be promoted, tenant by tenant, and says how
// many. The audit log shows it as the system's change. A job that cannot even be
// parked is left alone for a while.
func (p *Promoter) park(ctx context.Context, now time.Time, jobs []badJob) (parked int) {
	of := map[uuid.UUID][]badJob{}
	for _, k := range jobs {
		of[k.job.tenant] = append(of[k.job.tenant], k)
	}
	ctx = audit.With(ctx, audit.Call{Kind: "process", Actor: "system", Action: "parkJob"})
	for _, list := range of {
		done, err := p.store.park(ctx, now, list)
		if len(list) > 1 && postgres.Refused(err) {
			for _, k := range list {
				parked += p.park(ctx, now, []badJob{k})
			}
			continue
		}
		for _, k := range list {
			at := []any{"job_id", k.job.id, "tenant_id", k.job.tenant, "scheduled_at", k.job.due, "reason", k.what}
			switch {
			case err != nil:
				p.suspects.leave(k.job.id)
				p.c.Log.ErrorContext(ctx, "a job can neither be promoted nor parked, and is left alone for a minute", append(at, "error", err)...)
			case done[k.job.id]:
				parked++
				p.c.Metrics.JobParked(k.kind)
				p.c.Log.ErrorContext(ctx, "job parked: it cannot be promoted", at...)
			}
		}
	}
	return parked
}

// consider is dueTimesOf for a job whose schedule may be unreadable, and for defects of
// our own: one job's panic must not stop all others.
func (p *Promoter) consider(j *dueJob, named schedules.Calendars, at time.Time) (o dueTimes, bad *badJob) {
	defer func() {
		if v := recover(); v != nil {
			p.c.Log.Error("a job's schedule made the promoter panic", "job_id", j.id, "tenant_id", j.tenant, "panic", v, "stack", string(debug.Stack()))
			bad = &badJob{job: j, kind: "panic", what: "of a defect of the scheduler, which its operator finds in the log"}
		}
	}()
	s, err := p.scheduleOf(j, named)
	if err != nil {
		return dueTimes{}, &badJob{job: j, kind: "schedule", what: "its schedule cannot be read any more: " + err.Error()}
	}
	return p.decideJob(j, s, at), nil
}

func (p *Promoter) scheduleOf(j *dueJob, named schedules.Calendars) (*schedule.Schedule, error) {
	if j.unreadable != nil {
		return nil, j.unreadable
	}
	return p.schedules.Of(j.compiled(), named)
}
