package executor_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/fault"
)

// runs is an Executor made of a function.
type runs func(ctx context.Context, run executor.Run) executor.Outcome

func (f runs) Execute(ctx context.Context, run executor.Run) executor.Outcome { return f(ctx, run) }

// picky is a Checker that refuses everything.
type picky struct{ runs }

func (picky) Validate(json.RawMessage) []fault.Field {
	return []fault.Field{{Path: "config", Rule: "never"}}
}

func (picky) ValidateParameters(_, _ json.RawMessage) []fault.Field {
	return []fault.Field{{Path: "parameters", Rule: "never"}}
}

func fails(failure *executor.Error) runs {
	return func(context.Context, executor.Run) executor.Outcome { return executor.Outcome{Err: failure} }
}

func execute(t *testing.T, ctx context.Context, e executor.Executor) executor.Outcome {
	t.Helper()
	registry := executor.NewRegistry(map[string]executor.Executor{"test": e})
	return registry.Execute(ctx, "test", executor.Run{Timeout: 5 * time.Second})
}

func TestExecuteSurvivesAPanic(t *testing.T) {
	t.Parallel()
	got := execute(t, t.Context(), runs(func(context.Context, executor.Run) executor.Outcome {
		panic("boom\x00" + strings.Repeat("é", 10_000))
	}))
	if got.Err == nil || got.Err.Type != executor.SystemError {
		t.Fatalf("a panic ended as %+v, want a SYSTEM_ERROR", got.Err)
	}
	if !strings.HasPrefix(got.Err.Message, "panic: boom\uFFFDé") || len(got.Err.Message) > 4<<10 {
		t.Errorf("message of %d bytes begins %.40q", len(got.Err.Message), got.Err.Message)
	}
	if !utf8.ValidString(got.Err.Message) {
		t.Error("the cut message is not valid UTF-8")
	}
	if !strings.Contains(got.Err.Stack, "TestExecuteSurvivesAPanic") || len(got.Err.Stack) > 16<<10 {
		t.Errorf("stack of %d bytes does not name the culprit", len(got.Err.Stack))
	}
}

func TestExecuteNilPanic(t *testing.T) {
	t.Parallel()
	got := execute(t, t.Context(), runs(func(context.Context, executor.Run) executor.Outcome { panic(error(nil)) }))
	if got.Err == nil || got.Err.Type != executor.SystemError {
		t.Errorf("panic(nil) ended as %+v, want a SYSTEM_ERROR", got.Err)
	}
}

func TestExecuteHearsARunThatNobodyListensTo(t *testing.T) {
	t.Parallel()
	got := execute(t, t.Context(), runs(func(_ context.Context, run executor.Run) executor.Outcome {
		run.Report.Output(executor.Stdout, []byte("hello"))
		run.Report.Progress(50, "half")
		return executor.Outcome{}
	}))
	if got.Err != nil {
		t.Errorf("a run that speaks ended as %+v", got.Err)
	}
}

func TestExecuteUnknownType(t *testing.T) {
	t.Parallel()
	registry := executor.NewRegistry(map[string]executor.Executor{"http": fails(nil)})
	got := registry.Execute(t.Context(), "carrier-pigeon", executor.Run{})
	if got.Err == nil || got.Err.Type != executor.ValidationError || !strings.Contains(got.Err.Message, `"carrier-pigeon"`) {
		t.Errorf("an unknown type ended as %+v, want a VALIDATION_ERROR that names it", got.Err)
	}
}

func TestExecuteNamesTimeouts(t *testing.T) {
	t.Parallel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	cancelled, stop := context.WithCancel(t.Context())
	stop()
	failure := func(kind executor.ErrorType) *executor.Error {
		return &executor.Error{Type: kind, Message: "went wrong"}
	}
	for _, test := range []struct {
		name string
		ctx  context.Context
		err  *executor.Error
		want executor.ErrorType
	}{
		{"user error after the deadline", late, failure(executor.UserError), executor.Timeout},
		{"network error after the deadline", late, failure(executor.NetworkError), executor.Timeout},
		{"system error after the deadline", late, failure(executor.SystemError), executor.Timeout},
		{"validation error stays", late, failure(executor.ValidationError), executor.ValidationError},
		{"cancelled is no time-out", cancelled, failure(executor.SystemError), executor.SystemError},
		{"before the deadline", t.Context(), failure(executor.UserError), executor.UserError},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := execute(t, test.ctx, fails(test.err))
			if got.Err == nil || got.Err.Type != test.want {
				t.Fatalf("got %+v, want %s", got.Err, test.want)
			}
			if test.err.Message != "went wrong" {
				t.Error("the executor's own error was written to")
			}
			if test.want == executor.Timeout && got.Err.Message != "timed out after 5s: went wrong" {
				t.Errorf("message = %q", got.Err.Message)
			}
		})
	}
	t.Run("success after the deadline stays success", func(t *testing.T) {
		t.Parallel()
		if got := execute(t, late, fails(nil)); got.Err != nil {
			t.Errorf("got %v, want success", got.Err)
		}
	})
}

func TestExecuteKeepsWhatTheWorkerDecidesOn(t *testing.T) {
	t.Parallel()
	yes := true
	want := executor.Outcome{
		Result:       json.RawMessage(`{"a":1}`),
		Err:          &executor.Error{Type: executor.UserError, Message: "m", RetryAfter: time.Minute, Retry: &yes},
		MemoryPeakMB: 1.5, CPUTime: time.Second,
	}
	got := execute(t, t.Context(), runs(func(context.Context, executor.Run) executor.Outcome { return want }))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the outcome changed (-want +got):\n%s", diff)
	}
}

func TestExecuteMakesResultsStorable(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 65) + strings.Repeat("]", 65)
	for _, test := range []struct{ name, result, want string }{
		{"plain", `{"a":[1,"x",null,-1.5e10]}`, `{"a":[1,"x",null,-1.5e10]}`},
		{"none", "", ""},
		{"escaped NUL", `{"a":"x\u0000y"}`, `{"a":"x\ufffdy"}`},
		{"escaped NUL in a name", `{"\u0000":1}`, `{"\ufffd":1}`},
		{"an escaped backslash before u0000", `"\\u0000"`, `"\\u0000"`},
		{"surrogate pair", `"\ud83d\ude00"`, `"\ud83d\ude00"`},
		{"lone high surrogate", `"\ud83d"`, `"\ufffd"`},
		{"high surrogate before an escape", `"\ud83d\n\u0041"`, `"\ufffd\n\u0041"`},
		{"two high surrogates and a low one", `"\uD83D\uD83D\uDE00"`, `"\ufffd\uD83D\uDE00"`},
		{"lone low surrogate", `"\uDE00x"`, `"\ufffdx"`},
		{"invalid UTF-8", "\"a\xffb\"", "\"a\uFFFDb\""},
		{"not JSON", `{"a":`, `{"omitted":"the result is not valid JSON"}`},
		{"raw NUL is not JSON", "\"\x00\"", `{"omitted":"the result is not valid JSON"}`},
		{"huge exponent", `[1e200000]`, `{"omitted":"the result holds a number out of range"}`},
		{"tiny exponent", `1E-20000`, `{"omitted":"the result holds a number out of range"}`},
		{"overflowing exponent", `1e99999999999999999999`, `{"omitted":"the result holds a number out of range"}`},
		{"endless digits", "1" + strings.Repeat("0", 1000), `{"omitted":"the result holds a number out of range"}`},
		{"brackets and numbers in a string", `"[[[[1e99999"`, `"[[[[1e99999"`},
		{"64 levels", deep[1 : len(deep)-1], deep[1 : len(deep)-1]},
		{"65 levels", deep, `{"omitted":"the result is nested deeper than 64 levels"}`},
		{"256 KiB", `"` + strings.Repeat("a", 256<<10-2) + `"`, `"` + strings.Repeat("a", 256<<10-2) + `"`},
		{"one byte more", `"` + strings.Repeat("a", 256<<10-1) + `"`, `{"omitted":"the result is larger than 262144 bytes","sizeBytes":262145}`},
		{"grows beyond by mending", `"` + strings.Repeat("a\xff", 100<<10) + `"`, `{"omitted":"the result is larger than 262144 bytes","sizeBytes":409602}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			given := json.RawMessage(test.result)
			if test.result == "" {
				given = nil
			}
			got := execute(t, t.Context(), runs(func(context.Context, executor.Run) executor.Outcome {
				return executor.Outcome{Result: given}
			}))
			if string(got.Result) != test.want {
				t.Errorf("result = %.200s\nwant %.200s", got.Result, test.want)
			}
			if got.Err != nil {
				t.Errorf("an odd result failed the attempt: %v", got.Err)
			}
		})
	}
}

func TestValidateAsksTheExecutor(t *testing.T) {
	t.Parallel()
	registry := executor.NewRegistry(map[string]executor.Executor{"picky": picky{}, "easy": fails(nil)})
	for _, test := range []struct {
		name string
		got  []fault.Field
		want []string
	}{
		{"a checker is asked", registry.Validate("picky", json.RawMessage(`{}`)), []string{"config never"}},
		{"no checker, no fault", registry.Validate("easy", json.RawMessage(`{}`)), nil},
		{"unknown type", registry.Validate("pigeon", json.RawMessage(`{}`)), []string{"jobType enum"}},
		{"parameters are asked", registry.ValidateParameters("picky", nil, json.RawMessage(`{}`)), []string{"parameters never"}},
		{"no parameters, no fault", registry.ValidateParameters("picky", nil, nil), nil},
		{"parameters of an unknown type", registry.ValidateParameters("pigeon", nil, nil), []string{"jobType enum"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, rules(test.got)); diff != "" {
				t.Errorf("faults differ (-want +got):\n%s", diff)
			}
		})
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

// A worker for some types leaves the others to other workers, and nobody the types
// that it does not know.
func TestOnlySomeTypes(t *testing.T) {
	t.Parallel()
	e := fails(nil)
	all := executor.NewRegistry(map[string]executor.Executor{"http": e, "function": e, "wasm": e})
	if left := all.LeftTypes(); len(left) != 0 {
		t.Errorf("a worker for all types leaves %v", left)
	}
	some, err := all.Only("function")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]string{{"function"}, {"http", "wasm"}}, [][]string{some.Types(), some.LeftTypes()}); diff != "" {
		t.Errorf("runs and leaves (-want +got):\n%s", diff)
	}
	fewer, err := all.Only("function", "http")
	if err != nil {
		t.Fatal(err)
	}
	if fewer, err = fewer.Only("function"); err != nil || len(fewer.LeftTypes()) != 2 {
		t.Errorf("one that leaves more to others leaves %v, %v", fewer.LeftTypes(), err)
	}
	if _, err := all.Only("function", "shell"); err == nil || !strings.Contains(err.Error(), "function, http, wasm") {
		t.Errorf("a type that is not there: %v", err)
	}
}
