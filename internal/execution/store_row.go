package execution

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
)

// Rows stop here: nulls, enumerations and JSON columns become domain values.

func fromRow(r db.GetExecutionRow) (Execution, error) {
	e := Execution{
		ID: r.ID, TenantID: r.TenantID, JobID: r.JobID, JobVersion: int(r.JobVersion), JobName: r.JobName, JobType: r.JobType,
		Trigger: Trigger(r.TriggerType), TriggeredBy: r.TriggeredBy, Priority: int(r.Priority), Parameters: r.Parameters,
		Status: Status(r.Status), Reason: r.Reason, MissedUntil: columns.UTC(r.MissedUntil), Progress: int(r.Progress),
		ScheduledAt: r.ScheduledAt.UTC(), StartedAt: columns.UTC(r.StartedAt), CompletedAt: columns.UTC(r.CompletedAt), DurationUS: r.DurationUs,
		Result: r.Result, Attempt: int(r.Attempt), MaxAttempts: int(r.MaxAttempts), AvailableAt: columns.UTC(r.AvailableAt),
		Cancelling: r.CancelRequestedAt != nil, WorkerID: r.WorkerID, CreatedAt: r.CreatedAt.UTC(), BackfillID: r.BackfillID,
		CancelledBy: r.CancelledBy, RetryOf: idOrNil(r.RetryOf), RetriedAs: idOrNil(r.RetriedAs), Doing: r.ProgressMessage,
	}
	if r.MissedCount != nil {
		e.MissedCount = *r.MissedCount
	}
	if r.ErrorType != nil {
		e.Error = &Failure{Type: *r.ErrorType, Message: textOf(r.ErrorMessage), Stack: textOf(r.ErrorStack)}
	}
	if err := json.Unmarshal(r.Attempts, &e.Attempts); err != nil {
		return Execution{}, fmt.Errorf("read the attempts of execution %s: %w", r.ID, err)
	}
	for i := range e.Attempts {
		e.Attempts[i].complete()
	}
	if last := lastAttempt(e, columns.UTC(r.AttemptStartedAt)); last != nil {
		e.Attempts = append(e.Attempts, *last)
	}
	return e, nil
}

// complete fills in what rows of earlier versions do not say of an attempt that
// failed.
func (a *Attempt) complete() {
	a.Status, a.StartedAt, a.EndedAt = Failed, columns.UTC(a.StartedAt), columns.UTC(a.EndedAt)
	if a.DurationUS == nil && a.StartedAt != nil && a.EndedAt != nil {
		took := a.EndedAt.Sub(*a.StartedAt).Microseconds()
		a.DurationUS = &took
	}
}

// lastAttempt is the attempt that runs, or that ended the execution; nil for one
// that waits, or was cancelled while it waited.
func lastAttempt(e Execution, startedAt *time.Time) *Attempt {
	if n := len(e.Attempts); e.WorkerID == nil || e.Attempt == 0 || n > 0 && e.Attempts[n-1].Number >= e.Attempt {
		return nil
	}
	switch last := (Attempt{Number: e.Attempt, Status: e.Status, StartedAt: startedAt, WorkerID: e.WorkerID}); e.Status {
	case Running:
		return &last
	case Completed, Failed, Cancelled:
		last.EndedAt, last.DurationUS, last.Error = e.CompletedAt, e.DurationUS, e.Error
		return &last
	}
	return nil
}

func idOrNil(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

// fromListed leaves out what a list says of its reading.
func fromListed(r *db.ListExecutionsRow) (Execution, error) {
	return fromRow(db.GetExecutionRow{
		ID: r.ID, ScheduledAt: r.ScheduledAt, TenantID: r.TenantID, JobID: r.JobID, JobVersion: r.JobVersion, TriggerType: r.TriggerType,
		TriggeredBy: r.TriggeredBy, JobType: r.JobType, Priority: r.Priority, Parameters: r.Parameters, Status: r.Status, Reason: r.Reason,
		MissedCount: r.MissedCount, MissedUntil: r.MissedUntil, Attempt: r.Attempt, MaxAttempts: r.MaxAttempts, Progress: r.Progress,
		Attempts: r.Attempts, WorkerID: r.WorkerID, StartedAt: r.StartedAt, CompletedAt: r.CompletedAt, DurationUs: r.DurationUs,
		Result: r.Result, ErrorType: r.ErrorType, ErrorMessage: r.ErrorMessage, ErrorStack: r.ErrorStack, MemoryPeakMb: r.MemoryPeakMb,
		CpuTimeMs: r.CpuTimeMs, CreatedAt: r.CreatedAt, AvailableAt: r.AvailableAt, CancelRequestedAt: r.CancelRequestedAt,
		BackfillID: r.BackfillID, CancelledBy: r.CancelledBy,
		AttemptStartedAt: r.AttemptStartedAt, JobName: r.JobName, RetryOf: r.RetryOf, RetriedAs: r.RetriedAs,
	})
}

func textOf(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
