// Package executor says how a job type is run and how its configuration is
// checked.
//
// It owns the words that all job types share: one attempt (Run), how it ended
// (Outcome), the registry from job type to Executor, and the promise that
// whatever an executor returns can be stored. It refuses to know of queues,
// tables, leases and retries: it runs one attempt, once, and says what came of
// it. The job types themselves are packages http and function below it. The
// worker calls Registry.Execute; the API calls Registry.Validate when a job is
// created.
package executor

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/fault"
)

// ErrorType says why an attempt failed. Time-outs, network and system errors
// are retried unless the job says otherwise; validation and user errors are
// not.
type ErrorType string

// The error types that an execution's record may hold.
const (
	Timeout         ErrorType = "TIMEOUT"          // the attempt exceeded its timeout
	NetworkError    ErrorType = "NETWORK_ERROR"    // the target was not reached, or the connection broke
	ValidationError ErrorType = "VALIDATION_ERROR" // the configuration cannot be run as it stands
	SystemError     ErrorType = "SYSTEM_ERROR"     // the target or this program is unwell; it may pass
	UserError       ErrorType = "USER_ERROR"       // the job itself is at fault; a repeat ends the same way
)

// Run is one attempt, and all that an executor may know of it.
type Run struct {
	ExecutionID, JobID, TenantID uuid.UUID
	// Attempt counts from 1.
	Attempt int
	// ScheduledAt is the scheduled time, the same in every attempt.
	ScheduledAt time.Time
	// Config is the job's configuration for its type.
	Config json.RawMessage
	// Parameters are the overrides of a manual trigger, or nil.
	Parameters json.RawMessage
	// Timeout is the time this attempt has. The caller has put it on the
	// context already; here it serves messages.
	Timeout time.Duration
	// Callback makes the address at which the target reports heartbeats, progress and the
	// end of this attempt, see Outcome.Await; nil where nobody has said where the API is
	// reached.
	Callback func() (string, error)
	// Report takes what the run says while it runs. An executor that is called
	// through a Registry always has one.
	Report Reporter
}

// Within is the time that the attempt has where the job's configuration bounds it to
// own, and a context that ends then; zero is no bound. The caller calls stop.
func (r Run) Within(ctx context.Context, own time.Duration) (limited context.Context, limit time.Duration, stop context.CancelFunc) {
	if own <= 0 || r.Timeout > 0 && r.Timeout <= own {
		return ctx, r.Timeout, func() {}
	}
	limited, stop = context.WithTimeout(ctx, own)
	return limited, own, stop
}

// Outcome is how an attempt ended.
type Outcome struct {
	// Result is valid JSON of at most MaxResult bytes that PostgreSQL stores
	// as it stands, or nil. A failed attempt may have one too.
	Result json.RawMessage
	// Err is nil where the attempt succeeded.
	Err *Error
	// Await says that the attempt has not ended: its target took it and reports the end
	// to Run.Callback, up to the job's timeout. Nothing else of the outcome counts then,
	// but Heartbeat: how long the target may be silent; zero: up to the timeout.
	Await     bool
	Heartbeat time.Duration
	// MemoryPeakMB and CPUTime are zero where they are not known.
	MemoryPeakMB float64
	CPUTime      time.Duration
}

// Error is why an attempt failed. Message and Stack are shown to the tenant:
// they hold no secret, no URL query and no inside address.
type Error struct {
	Type    ErrorType
	Message string
	Stack   string
	// RetryAfter is how long the target asked us to stay away; zero where it
	// did not ask.
	RetryAfter time.Duration
	// Retry overrides what Type says about retrying; nil leaves it to Type.
	Retry *bool
}

// Error is the message with its type.
func (e *Error) Error() string { return string(e.Type) + ": " + e.Message }

// Executor runs one job type. Execute blocks until the attempt has ended, ends
// soon after ctx does, and leaves nothing running behind.
type Executor interface {
	Execute(ctx context.Context, run Run) Outcome
}

// Checker is an Executor that can tell beforehand what is wrong with a job.
type Checker interface {
	Executor
	// Validate lists every fault of a job's configuration. Paths begin with
	// "config".
	Validate(config json.RawMessage) []fault.Field
	// ValidateParameters lists every fault of the overrides of a manual
	// trigger of a job with this configuration. Paths begin with "parameters".
	ValidateParameters(config, parameters json.RawMessage) []fault.Field
}
