package function

import (
	"context"
	"encoding/json"
	"time"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/fault"
)

// builtin is the module that every worker has. Its functions do no work: they
// are for trying out a schedule and for measuring the scheduler itself.
func builtin() Module {
	return Module{
		"noop":  {Run: func(context.Context, Call) (any, error) { return nil, nil }},
		"sleep": {Run: sleep, Check: checkSleep},
	}
}

const maxSleepMs = 3_600_000

// nap is the parameters of sleep: {"durationMs": 0..3600000}.
type nap struct {
	DurationMs int64 `json:"durationMs"`
}

func checkSleep(path string, parameters json.RawMessage) []fault.Field {
	if len(parameters) == 0 {
		parameters = json.RawMessage(`{}`)
	}
	object := executor.ReadObject(path, parameters, "durationMs")
	var n nap
	if object.Require("durationMs", &n.DurationMs, "a whole number of milliseconds") && (n.DurationMs < 0 || n.DurationMs > maxSleepMs) {
		object.Fault("durationMs", "range", "must be from 0 to 3600000 milliseconds")
	}
	return object.Faults()
}

// sleep waits; it has no result.
func sleep(ctx context.Context, call Call) (any, error) {
	var n nap
	if err := json.Unmarshal(call.Parameters, &n); err != nil {
		return nil, err
	}
	timer := time.NewTimer(time.Duration(n.DurationMs) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
