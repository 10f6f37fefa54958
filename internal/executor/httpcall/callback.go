package httpcall

import (
	"net/http"
	"slices"
	"time"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/fault/suggest"
)

// How a call completes: with the target's answer, or with a callback after it.
const (
	byResponse = "response"
	byCallback = "callback"
)

// leastHeartbeat is the shortest time that a target may be silent.
const leastHeartbeat = time.Second

// noCallbacks says why no job can complete by callback here.
const noCallbacks = "cannot be callback here: the operator has not set PUBLIC_URL and SECRETS_KEYS"

// WithCallbacks is the same executor where targets reach the API, so that calls may
// complete by callback.
func (e *Executor) WithCallbacks() *Executor {
	with := *e
	with.callbacks = true
	return &with
}

// readCompletion reads how the call completes, and how long its target may be silent.
func (c *call) readCompletion(object *executor.Object) {
	completion, ways := byResponse, []string{byResponse, byCallback}
	if object.Read("completion", &completion, "a text") && !slices.Contains(ways, completion) {
		object.Fault("completion", "enum", suggest.OneOf(completion, ways))
	}
	c.callback = completion == byCallback
	c.heartbeat = object.Seconds("heartbeatTimeout")
	switch {
	case c.heartbeat > 0 && !c.callback:
		object.Fault("heartbeatTimeout", "conflict", `needs "completion": "callback"`)
	case c.heartbeat > 0 && c.heartbeat < leastHeartbeat:
		object.Fault("heartbeatTimeout", "range", "must be at least 1")
	}
}

// addCallback tells the target where to report, before the call is signed.
func (c *call) addCallback(req *http.Request, run executor.Run) *executor.Error {
	if !c.callback {
		return nil
	}
	if run.Callback == nil {
		return &executor.Error{Type: executor.ValidationError, Message: "config.completion: " + noCallbacks}
	}
	address, err := run.Callback()
	if err != nil {
		return &executor.Error{Type: executor.SystemError, Message: "no callback address could be made"}
	}
	req.Header["X-Callback-Url"] = []string{address}
	return nil
}

// awaits tells whether the target took the call and reports the end later.
func (c *call) awaits(status int) bool { return c.callback && status == http.StatusAccepted }
