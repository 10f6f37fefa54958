// Package execution is one run of a job: its identity, its states, its
// attempts and its outcome.
//
// It owns the words for them, the arithmetic that gives a run its id, the table
// of allowed state changes, and the store through which a tenant reads runs and
// asks for one or for its end. It refuses to decide when a job is due (package
// schedule), to promote (package promoter) and to run anything (package
// worker).
package execution

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Status is where an execution stands.
type Status string

// The states. The first three are in active_executions and change; the others
// are in job_executions, which is append-only, and never change.
const (
	Pending   Status = "pending"   // waits for a worker
	Running   Status = "running"   // a worker holds its lease
	Retrying  Status = "retrying"  // an attempt failed; waits for the next one
	Completed Status = "completed" // an attempt succeeded
	Failed    Status = "failed"    // attempts are used up, or the error is not retried
	Cancelled Status = "cancelled" // somebody asked for its end before it finished
	Skipped   Status = "skipped"   // the overlap policy said not to run it
	Missed    Status = "missed"    // the misfire policy said not to run it any more
)

// parked is the status of an execution whose outcome the database refuses to
// store, see package parking. Readers see it as pending, and what it waits for.
const parked Status = "parked"

// Terminal reports whether an execution in this state is over for good.
func (s Status) Terminal() bool {
	switch s {
	case Completed, Failed, Cancelled, Skipped, Missed:
		return true
	default:
		return false
	}
}

// Trigger is what made an execution.
type Trigger string

// The triggers.
const (
	Scheduled Trigger = "scheduled"
	Manual    Trigger = "manual"
	Retry     Trigger = "retry"
	Backfill  Trigger = "backfill"
)

// Failure is why an attempt, or the execution, did not succeed.
type Failure struct {
	Type    string `json:"type"`            // one of the error types of package executor
	Message string `json:"message"`         // for the tenant; capped
	Stack   string `json:"stack,omitempty"` // of a panic; capped
}

// Attempt is one try of an execution. The last one is read from the execution's
// row, the others from its attempts.
type Attempt struct {
	Number     int        `json:"number"`           // from 1
	Status     Status     `json:"status,omitempty"` // Running, Completed, Failed or Cancelled
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	EndedAt    *time.Time `json:"endedAt,omitempty"` // nil while it runs
	DurationUS *int64     `json:"durationUs,omitempty"`
	WorkerID   *uuid.UUID `json:"workerId,omitempty"`
	Error      *Failure   `json:"error,omitempty"` // of one that failed
}

// Execution is one run of a job as a reader sees it.
type Execution struct {
	ID          uuid.UUID
	TenantID    uuid.UUID
	JobID       uuid.UUID
	JobVersion  int
	JobName     string // as it is now
	JobType     string
	Trigger     Trigger
	TriggeredBy string
	Priority    int
	Parameters  json.RawMessage // overrides of a manual run; nil when none
	Status      Status
	Reason      string // why it was skipped, missed or cancelled; of one that is to end, why
	CancelledBy string // who asked for its end: a subject, "system" or "platform"; empty where nobody did
	MissedCount int64  // of a missed row that stands for a range: how many scheduled times
	MissedUntil *time.Time
	Progress    int    // 0 to 100
	Doing       string // the message of the last progress; empty in lists
	ScheduledAt time.Time
	StartedAt   *time.Time // of the first attempt
	CompletedAt *time.Time
	DurationUS  *int64 // microseconds that the last attempt took
	Result      json.RawMessage
	Error       *Failure // of one that failed
	Attempt     int      // the number of the current or last attempt; 0 before the first
	MaxAttempts int
	Attempts    []Attempt  // oldest first, with the one that runs
	AvailableAt *time.Time // when a pending or retrying execution may start
	Cancelling  bool       // its end was asked for and it still runs
	WorkerID    *uuid.UUID
	CreatedAt   time.Time
	BackfillID  *uuid.UUID // the backfill that made it
	RetryOf     *uuid.UUID // the execution that it repeats
	RetriedAs   *uuid.UUID // the newest execution that repeats it
	WaitingOn   *Wait      // why it does not run; nil where it does not wait, or was not asked for
}

// Retries is how many attempts were made beyond the first.
func (e Execution) Retries() int { return max(0, e.Attempt-1) }
