package function_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/devstack/leaktest"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/function"
	"github.com/scheduler-service/scheduler/internal/fault"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// with makes an executor with one function test.f.
func with(f function.Function) *function.Executor {
	return function.New(map[string]function.Module{"test": {"f": {Run: f}}})
}

// call runs a job as a worker does, through the registry.
func call(ctx context.Context, e *function.Executor, config, parameters string) executor.Outcome {
	registry := executor.NewRegistry(map[string]executor.Executor{"function": e})
	return registry.Execute(ctx, "function", executor.Run{
		ExecutionID: uuid.Max, Attempt: 2, Timeout: time.Minute,
		Config: json.RawMessage(config), Parameters: json.RawMessage(parameters),
	})
}

const testF = `{"modulePath":"test","functionName":"f"}`

func TestFunctionIsTold(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, config, over, want string }{
		{"nothing", "", "", ""},
		{"null", "null", "null", ""},
		{"the job's", `{"a":1}`, "", `{"a":1}`},
		{"the trigger's", "", `{"a":1}`, `{"a":1}`},
		{"both, by name", `{"a":1,"b":{"c":1}}`, `{"b":{"d":2}}`, `{"a":1,"b":{"d":2}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got function.Call
			e := with(func(_ context.Context, c function.Call) (any, error) {
				got = c
				got.Report = nil // everybody has one
				return nil, nil
			})
			config := testF
			if test.config != "" {
				config = strings.TrimSuffix(testF, "}") + `,"parameters":` + test.config + `}`
			}
			if out := call(t.Context(), e, config, test.over); out.Err != nil {
				t.Fatal(out.Err)
			}
			want := function.Call{ExecutionID: uuid.Max, Attempt: 2}
			if test.want != "" {
				want.Parameters = json.RawMessage(test.want)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the call differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		value any
		want  string
	}{
		{"nothing", nil, ""},
		{"a value", map[string]int{"rows": 3}, `{"rows":3}`},
		{"JSON as it is", json.RawMessage(`[1, 2]`), `[1, 2]`},
		{"not JSON", json.RawMessage(`{`), `{"omitted":"the result is not valid JSON"}`},
		{"a text with NUL", "a\x00b", `"a\ufffdb"`},
		{"invalid UTF-8", "a\xffb", `"a\ufffdb"`},
		{"too much", strings.Repeat("a", 300_000), `{"omitted":"the result is larger than 262144 bytes","sizeBytes":300002}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out := call(t.Context(), with(func(context.Context, function.Call) (any, error) { return test.value, nil }), testF, "")
			if out.Err != nil || string(out.Result) != test.want {
				t.Errorf("result %.100s, error %v; want %s", out.Result, out.Err, test.want)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	own := &executor.Error{Type: executor.NetworkError, Message: "the database is away", RetryAfter: time.Second}
	gives := func(value any, err error) function.Function {
		return func(context.Context, function.Call) (any, error) { return value, err }
	}
	const longSleep = `{"modulePath":"builtin","functionName":"sleep","parameters":{"durationMs":3600001}}`
	for _, test := range []struct {
		name   string
		run    function.Function
		config string
		want   executor.Error
	}{
		{
			"its own fault", gives(nil, errors.New("no such customer")), testF,
			executor.Error{Type: executor.UserError, Message: "no such customer"},
		},
		{"says what it is", gives(nil, own), testF, *own},
		{"says what it is, wrapped", gives(nil, fmt.Errorf("f: %w", own)), testF, *own},
		{
			"no JSON", gives(math.NaN(), nil), testF,
			executor.Error{Type: executor.UserError, Message: "the function's result cannot be written as JSON: json: unsupported value: NaN"},
		},
		{
			"NUL in the message", gives(nil, errors.New("a\x00b")), testF,
			executor.Error{Type: executor.UserError, Message: "a\uFFFDb"},
		},
		{
			"unknown function", gives(nil, nil), `{"modulePath":"test","functionName":"g"}`,
			executor.Error{Type: executor.ValidationError, Message: `this worker has no function "g" in module "test"`},
		},
		{
			"unknown module", gives(nil, nil), `{"modulePath":"x","functionName":"f"}`,
			executor.Error{Type: executor.ValidationError, Message: `this worker has no function "f" in module "x"`},
		},
		{
			"no configuration", gives(nil, nil), ``,
			executor.Error{Type: executor.ValidationError, Message: "the configuration is not that of a function"},
		},
		{
			"parameters of a list", gives(nil, nil), `{"modulePath":"test","functionName":"f","parameters":[]}`,
			executor.Error{Type: executor.ValidationError, Message: "the parameters do not fit; parameters must be an object"},
		},
		{
			"too long a sleep", gives(nil, nil), longSleep,
			executor.Error{Type: executor.ValidationError, Message: "the parameters do not fit; parameters.durationMs must be from 0 to 3600000 milliseconds"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out := call(t.Context(), with(test.run), test.config, "")
			if diff := cmp.Diff(&test.want, out.Err); diff != "" {
				t.Errorf("error differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPanicIsCaught(t *testing.T) {
	t.Parallel()
	out := call(t.Context(), with(func(context.Context, function.Call) (any, error) {
		panic("defect")
	}), testF, "")
	if out.Err == nil || out.Err.Type != executor.SystemError || !strings.Contains(out.Err.Stack, "TestPanicIsCaught") {
		t.Errorf("error = %+v, want a SYSTEM_ERROR with the stack", out.Err)
	}
}

func TestSleepAndItsEnds(t *testing.T) {
	t.Parallel()
	sleep := func(ms int, rest string) string {
		return fmt.Sprintf(`{"modulePath":"builtin","functionName":"sleep","parameters":{"durationMs":%d}%s}`, ms, rest)
	}
	for _, test := range []struct {
		name, config string
		cancelled    bool
		took         time.Duration
		want         *executor.Error
	}{
		{"to the end", sleep(5000, ""), false, 5 * time.Second, nil},
		{
			"its own limit", sleep(5000, `,"timeout":0.25`), false, 250 * time.Millisecond,
			&executor.Error{Type: executor.Timeout, Message: "timed out after 250ms"},
		},
		{
			"the attempt's limit", sleep(90_000, `,"timeout":80`), false, time.Minute,
			&executor.Error{Type: executor.Timeout, Message: "timed out after 1m0s"},
		},
		{
			"cancelled", sleep(5000, ""), true, time.Second,
			&executor.Error{Type: executor.SystemError, Message: "the function was cancelled"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if test.cancelled {
					time.AfterFunc(time.Second, cancel)
				}
				reached := time.AfterFunc(test.took-time.Nanosecond, func() {})
				over := time.AfterFunc(test.took+time.Nanosecond, func() {})
				out := call(ctx, function.New(nil), test.config, "")
				if reached.Stop() || !over.Stop() {
					t.Errorf("it did not take %s", test.took)
				}
				if diff := cmp.Diff(test.want, out.Err); diff != "" {
					t.Errorf("error differs (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestBuiltinCannotBeReplaced(t *testing.T) {
	t.Parallel()
	fails := func(context.Context, function.Call) (any, error) { return nil, errors.New("replaced") }
	e := function.New(map[string]function.Module{"builtin": {"noop": {Run: fails}}})
	if out := call(t.Context(), e, `{"modulePath":"builtin","functionName":"noop"}`, ""); out.Err != nil || out.Result != nil {
		t.Errorf("noop gave %s, %v", out.Result, out.Err)
	}
}

// The scheduler itself is measured with noop at more than 10,000 runs a
// second, so noop must cost next to nothing of that.
func BenchmarkNoop(b *testing.B) {
	registry := executor.NewRegistry(map[string]executor.Executor{"function": function.New(nil)})
	run := executor.Run{Config: json.RawMessage(`{"modulePath":"builtin","functionName":"noop"}`)}
	b.ReportAllocs()
	for b.Loop() {
		if out := registry.Execute(b.Context(), "function", run); out.Err != nil {
			b.Fatal(out.Err)
		}
	}
}

// rules shortens faults to "path rule".
func rules(faults []fault.Field) []string {
	var short []string
	for _, f := range faults {
		short = append(short, f.Path+" "+f.Rule)
	}
	return short
}
