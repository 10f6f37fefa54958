package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/runner/wire"
)

// temporary is the exit code by which a module says that another attempt may succeed:
// EX_TEMPFAIL of sysexits.h.
const temporary = 75

// Input is what code is told about its run, as JSON.
func Input(run executor.Run, parameters json.RawMessage) (json.RawMessage, error) {
	if parameters == nil {
		parameters = json.RawMessage(`{}`)
	}
	return json.Marshal(struct {
		Parameters     json.RawMessage `json:"parameters"`
		ExecutionID    string          `json:"executionId"`
		JobID          string          `json:"jobId"`
		Attempt        int             `json:"attempt"`
		ScheduledAt    string          `json:"scheduledAt"`
		IdempotencyKey string          `json:"idempotencyKey"`
	}{
		parameters, run.ExecutionID.String(), run.JobID.String(), run.Attempt,
		run.ScheduledAt.UTC().Format(time.RFC3339Nano), run.ExecutionID.String(),
	})
}

// Outcome is how an attempt ended whose code ended so. limit is the time that it had.
func Outcome(end wire.End, err error, limit time.Duration) executor.Outcome {
	out := executor.Outcome{Result: end.Result, MemoryPeakMB: float64(end.Memory) / (1 << 20), CPUTime: time.Duration(end.CPU)}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		out.Err = &executor.Error{Type: executor.Timeout, Message: fmt.Sprintf("no runner was free within %s", limit)}
	case errors.Is(err, context.Canceled):
		out.Err = &executor.Error{Type: executor.SystemError, Message: "the run was cancelled"}
	case err != nil:
		out.Err = &executor.Error{Type: executor.SystemError, Message: "no runner could run the code: " + err.Error()}
	case end.Failure != nil:
		out.Err = failed(*end.Failure, limit)
	}
	return out
}

// failed is a failure by its kind.
func failed(f wire.Failure, limit time.Duration) *executor.Error {
	user := func(message string) *executor.Error {
		return &executor.Error{Type: executor.UserError, Message: message, Stack: f.Stack}
	}
	switch f.Reason {
	case wire.Deadline:
		return &executor.Error{Type: executor.Timeout, Message: fmt.Sprintf("timed out after %s", limit)}
	case wire.Memory:
		return user("the code wanted more memory than a run may have")
	case wire.Exit:
		if f.Code == temporary {
			return &executor.Error{Type: executor.SystemError, Message: "the module ended with exit code 75 (try again later)"}
		}
		return user(fmt.Sprintf("the module ended with exit code %d", f.Code))
	case wire.Trap:
		return user("the code was stopped: " + f.Message)
	default:
		return user(f.Message)
	}
}
