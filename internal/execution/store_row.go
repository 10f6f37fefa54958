package execution

import (
	"encoding/json"
	"fmt"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
)

// Rows stop here: nulls, enumerations and JSON columns become domain values.

func fromRow(r db.Execution) (Execution, error) {
	e := Execution{
		ID: r.ID, TenantID: r.TenantID, JobID: r.JobID, JobVersion: int(r.JobVersion), JobType: r.JobType,
		Trigger: Trigger(r.TriggerType), TriggeredBy: r.TriggeredBy, Priority: int(r.Priority), Parameters: r.Parameters,
		Status: Status(r.Status), Reason: r.Reason, MissedUntil: columns.UTC(r.MissedUntil), Progress: int(r.Progress),
		ScheduledAt: r.ScheduledAt.UTC(), StartedAt: columns.UTC(r.StartedAt), CompletedAt: columns.UTC(r.CompletedAt), DurationMS: r.DurationMs,
		Result: r.Result, Attempt: int(r.Attempt), MaxAttempts: int(r.MaxAttempts), AvailableAt: columns.UTC(r.AvailableAt),
		Cancelling: r.CancelRequestedAt != nil, WorkerID: r.WorkerID, CreatedAt: r.CreatedAt.UTC(), BackfillID: r.BackfillID,
		CancelledBy: r.CancelledBy,
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
	return e, nil
}

// fromListed leaves out what a list says of its reading.
func fromListed(r db.ListExecutionsByJobRow) (Execution, error) {
	return fromRow(db.Execution{
		ID: r.ID, ScheduledAt: r.ScheduledAt, TenantID: r.TenantID, JobID: r.JobID, JobVersion: r.JobVersion, TriggerType: r.TriggerType,
		TriggeredBy: r.TriggeredBy, JobType: r.JobType, Priority: r.Priority, Parameters: r.Parameters, Status: r.Status, Reason: r.Reason,
		MissedCount: r.MissedCount, MissedUntil: r.MissedUntil, Attempt: r.Attempt, MaxAttempts: r.MaxAttempts, Progress: r.Progress,
		Attempts: r.Attempts, WorkerID: r.WorkerID, StartedAt: r.StartedAt, CompletedAt: r.CompletedAt, DurationMs: r.DurationMs,
		Result: r.Result, ErrorType: r.ErrorType, ErrorMessage: r.ErrorMessage, ErrorStack: r.ErrorStack, MemoryPeakMb: r.MemoryPeakMb,
		CpuTimeMs: r.CpuTimeMs, CreatedAt: r.CreatedAt, AvailableAt: r.AvailableAt, CancelRequestedAt: r.CancelRequestedAt,
		BackfillID: r.BackfillID, CancelledBy: r.CancelledBy,
	})
}

func textOf(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
