package functions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/function"
)

// heard is a reporter that keeps what it hears.
type heard struct {
	mu   sync.Mutex
	said []string
}

func (h *heard) Output(stream executor.Stream, text []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, rest, _ := strings.Cut(string(text), "level=") // without the time
	h.said = append(h.said, string(stream)+" "+rest)
}

func (h *heard) Progress(percent int, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, fmt.Sprint(percent, " ", message))
}

type order struct {
	Name string `json:"name"`
	Size int    `json:"size,omitempty"`
}

// run runs a function as a worker does.
func run(t *testing.T, f Function, parameters string) (executor.Outcome, []string) {
	t.Helper()
	modules, err := collect([]Module{{Path: "m", Functions: []Function{f}}})
	if err != nil {
		t.Fatal(err)
	}
	h := &heard{}
	config := `{"modulePath":"m","functionName":"f"}`
	if parameters != "" {
		config = `{"modulePath":"m","functionName":"f","parameters":` + parameters + `}`
	}
	out := executor.NewRegistry(map[string]executor.Executor{"function": function.New(modules)}).Execute(t.Context(), "function", executor.Run{
		ExecutionID: uuid.Max, Attempt: 2, Timeout: time.Minute, Config: json.RawMessage(config), Report: h,
	})
	return out, h.said
}

func TestFunctionIsTypedAndHeard(t *testing.T) {
	t.Parallel()
	f := Define("f", "does", func(ctx context.Context, call Call, o order) (map[string]any, error) {
		call.Log.InfoContext(ctx, "begins", "name", o.Name)
		call.Progress(50, "half")
		call.Heartbeat() // does nothing here
		return map[string]any{"name": o.Name, "size": o.Size, "key": call.IdempotencyKey, "attempt": call.Attempt}, nil
	})
	out, said := run(t, f, `{"name":"a","size":3}`)
	if out.Err != nil || string(out.Result) != `{"attempt":2,"key":"`+uuid.Max.String()+`","name":"a","size":3}` {
		t.Errorf("ended with %s %v", out.Result, out.Err)
	}
	if fmt.Sprint(said) != "[log INFO msg=begins name=a\n 50 half]" {
		t.Errorf("said %q", said)
	}
	if out, _ := run(t, f, `{"size":"x"}`); out.Err == nil || out.Err.Type != executor.ValidationError || !strings.Contains(out.Err.Message, "parameters.name") {
		t.Errorf("wrong parameters ended with %v", out.Err)
	}
}

func TestErrorsOfFunctions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		err   error
		kind  executor.ErrorType
		retry bool
		after time.Duration
	}{
		{"its own fault", errors.New("no"), executor.UserError, false, 0},
		{"may pass", Retry(errors.New("busy"), time.Minute), executor.SystemError, true, time.Minute},
		{"wrapped", fmt.Errorf("later: %w", Retry(errors.New("busy"), 0)), executor.SystemError, true, 0},
	} {
		out, _ := run(t, Define("f", "", func(context.Context, Call, struct{}) (any, error) { return nil, test.err }), "")
		if e := out.Err; e == nil || e.Type != test.kind || (e.Retry != nil && *e.Retry) != test.retry || e.RetryAfter != test.after {
			t.Errorf("%s: ended with %+v", test.name, e)
		}
	}
}

func TestSilentFunctionIsEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		beats := 0
		f := Define("f", "", func(ctx context.Context, call Call, _ struct{}) (any, error) {
			tick := time.NewTicker(900 * time.Millisecond)
			defer tick.Stop()
			for range 5 {
				<-tick.C
				beats++
				call.Heartbeat()
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}, HeartbeatWithin(time.Second))
		out, _ := run(t, f, "")
		if out.Err == nil || out.Err.Type != executor.Timeout || !strings.Contains(out.Err.Message, "no sign of life for 1s") || beats != 5 {
			t.Errorf("ended with %v after %d beats", out.Err, beats)
		}
	})
}

func TestModulesThatHideSomethingAreRefused(t *testing.T) {
	t.Parallel()
	f := Define("f", "", func(context.Context, Call, struct{}) (any, error) { return nil, nil })
	bad := Define("g", "", func(context.Context, Call, chan int) (any, error) { return nil, nil })
	list := Define("h", "", func(context.Context, Call, []int) (any, error) { return nil, nil })
	for name, modules := range map[string][]Module{
		"ours": {{Path: "builtin"}}, "empty": {{}}, "twice": {{Path: "a"}, {Path: "a"}},
		"a function twice": {{Path: "a", Functions: []Function{f, f}}}, "no parameters": {{Path: "a", Functions: []Function{bad}}}, "no object": {{Path: "a", Functions: []Function{list}}},
	} {
		err := Run(t.Context(), func(string) (string, bool) { return "", false }, slog.New(slog.DiscardHandler), modules...)
		if err == nil || strings.Contains(err.Error(), "DATABASE_URL") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Run(t.Context(), func(string) (string, bool) { return "", false }, slog.New(slog.DiscardHandler), Module{Path: "a", Functions: []Function{f}}); err == nil || !strings.Contains(err.Error(), "DATABASE_URL") {
		t.Errorf("without a configuration: %v", err)
	}
}
