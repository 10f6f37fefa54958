package chaos

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/function"
)

// deafFor is how long a function that does not listen goes on: longer than its
// time and the grace after it, and not for ever, because what is given up is
// counted.
const deafFor = 8 * time.Second

// Modules are the functions that the harness's own API and workers know beside
// the product's: the program of the harness runs both, see cmd/chaos.
func Modules() map[string]function.Module {
	return map[string]function.Module{"chaos": {"call": {Run: callTarget}}}
}

// errand is the parameters of call.
type errand struct {
	URL  string `json:"url"`
	Then string `json:"then"` // when the target answers that it failed: panic, deaf, or fail
}

// callTarget tells a target of this attempt as a job of type http does, so that
// the target's log is the truth about functions too. Each call has a connection
// of its own: what is repeated on a kept one is not ours.
func callTarget(ctx context.Context, call function.Call) (any, error) {
	var e errand
	if err := json.Unmarshal(call.Parameters, &e); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, http.NoBody)
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{
		"X-Execution-Id": call.ExecutionID.String(), "X-Job-Id": call.JobID.String(), "X-Attempt": strconv.Itoa(call.Attempt),
		"X-Scheduled-At": call.ScheduledAt.UTC().Format(time.RFC3339Nano), "Idempotency-Key": call.ExecutionID.String(),
	} {
		request.Header.Set(name, value)
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return nil, &executor.Error{Type: executor.NetworkError, Message: "the target was not reached"}
	}
	_, err = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close() // it was only read
	if err == nil && answer.StatusCode == http.StatusOK {
		return map[string]int{"status": answer.StatusCode}, nil
	}
	switch e.Then {
	case "panic":
		panic("as it was asked to")
	case "deaf":
		clock.Sleep(context.WithoutCancel(ctx), deafFor)
	}
	return nil, &executor.Error{Type: executor.SystemError, Message: "the target failed"}
}
