package wasm_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/devstack/leaktest"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/runner"
	"github.com/scheduler-service/scheduler/internal/executor/runner/wasmtest"
	"github.com/scheduler-service/scheduler/internal/executor/sandbox"
	"github.com/scheduler-service/scheduler/internal/executor/wasm"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/function"
)

func TestMain(m *testing.M) {
	if code, done := sandbox.Main(os.Args, runner.Entries()); done {
		os.Exit(code)
	}
	os.Exit(leaktest.Main(m))
}

// uploaded are functions by name.
type uploaded map[string][]byte

func digest(code []byte) string {
	sum := sha256.Sum256(code)
	return hex.EncodeToString(sum[:])
}

func (u uploaded) Find(_ context.Context, _ uuid.UUID, name string, version int32) (function.Module, error) {
	code, ok := u[name]
	if !ok || version > 1 {
		return function.Module{}, function.NotFound()
	}
	return function.Module{Version: 1, Digest: digest(code)}, nil
}

func (u uploaded) Load(_ context.Context, _ uuid.UUID, module function.Module) ([]byte, error) {
	for _, code := range u {
		if digest(code) == module.Digest {
			return code, nil
		}
	}
	return nil, function.NotFound()
}

func newExecutor(t *testing.T, source wasm.Source) *wasm.Executor {
	t.Helper()
	pool := runner.New(runner.Config{Memory: 1 << 30, CacheDir: t.TempDir(), StartTime: ample, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	t.Cleanup(func() { _ = pool.Close() })
	return wasm.New(pool, source)
}

// ample is how long a run, or a start, may take on a busy machine.
const ample = 4 * time.Minute

func TestExecute(t *testing.T) {
	t.Parallel()
	types := executor.NewRegistry(map[string]executor.Executor{"wasm": newExecutor(t, uploaded{
		"echo": wasmtest.Echo(), "text": wasmtest.Says("done"), "three": wasmtest.Exits(3), "later": wasmtest.Exits(75), "trap": wasmtest.Traps(), "loop": wasmtest.Loops(),
	})})
	for _, test := range []struct {
		config  string
		want    executor.ErrorType
		message string
	}{
		{`{"function":"echo","parameters":{"a":1,"b":2}}`, "", ""},
		{`{"function":"echo","version":1,"parameters":{"a":1}}`, "", ""},
		{`{"function":"echo","version":2}`, executor.ValidationError, `there is no function "echo", or not this version of it`},
		{`{"function":"none"}`, executor.ValidationError, `there is no function "none", or not this version of it`},
		{`{"function":"text"}`, executor.UserError, "standard output is not JSON: write the result there and all other text to standard error"},
		{`{"function":"three"}`, executor.UserError, "the module ended with exit code 3"},
		{`{"function":"later"}`, executor.SystemError, "the module ended with exit code 75 (try again later)"},
		{`{"function":"trap"}`, executor.UserError, "the code was stopped: wasm error: unreachable"},
		{`{"function":"loop","timeout":1}`, executor.Timeout, "timed out after 1s"},
	} {
		t.Run(test.config, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), ample)
			defer cancel()
			run := func(config string) executor.Outcome {
				return types.Execute(ctx, "wasm", executor.Run{Attempt: 1, Config: json.RawMessage(config), Parameters: json.RawMessage(`{"b":3}`), Timeout: ample})
			}
			out := run(test.config)
			// On a busy machine the second may be up before a runner has started: then it gets more.
			for _, more := range []string{"5", "25"} {
				if out.Err != nil && strings.HasPrefix(out.Err.Message, "no runner was free within") {
					out = run(strings.Replace(test.config, `"timeout":1`, `"timeout":`+more, 1))
					test.message = "timed out after " + more + "s"
				}
			}
			switch {
			case test.want == "" && (out.Err != nil || !strings.HasPrefix(string(out.Result), `{"parameters":{"a":1,"b":3},"executionId":"`)):
				t.Errorf("the outcome is %s, %v", out.Result, out.Err)
			case test.want != "" && (out.Err == nil || out.Err.Type != test.want || out.Err.Message != test.message):
				t.Errorf("it ended with %v, want %s: %s", out.Err, test.want, test.message)
			}
		})
	}
}

func TestCheckModule(t *testing.T) {
	t.Parallel()
	e := newExecutor(t, nil)
	for _, test := range []struct {
		name, want string
		code       []byte
	}{
		{"good", "", wasmtest.Echo()},
		{"text", "is not a WebAssembly module in the binary form", []byte("(module)")},
		{"component", "is a component (WASI preview 2); recompile it as a core module for WASI preview 1, wasip1", wasmtest.Component()},
		{"another version", "is not of version 1 of WebAssembly", []byte("\x00asm\x02\x00\x00\x00")},
		{"cut", "cannot be run: ", wasmtest.Echo()[:150]},
		{"library", "cannot be run: it exports no function _start; build a WASI command (wasip1), not a library", wasmtest.Without()},
		{"large", "cannot be run: section memory: min 8000 pages", wasmtest.Large()},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), ample)
			defer cancel()
			got, err := e.CheckModule(ctx, uuid.UUID{1}, digest(test.code), test.code)
			// A check may take 10 s, and a busy machine may stand still for as long.
			for try := 1; try < 4 && errors.Is(err, context.DeadlineExceeded); try++ {
				got, err = e.CheckModule(ctx, uuid.UUID{1}, digest(test.code), test.code)
			}
			if err != nil || !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") {
				t.Errorf("it %s, %v; want %s", got, err, test.want)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	e := newExecutor(t, nil)
	for config, want := range map[string]string{
		`{"function":"a","version":3,"timeout":1,"parameters":{}}`: "",
		`{"function":"a b"}`:               "config.function pattern",
		`{"function":"a","version":0}`:     "config.version range",
		`{"function":"a","version":1.5}`:   "config.version type",
		`{"function":"a","parameters":[]}`: "config.parameters type",
		`{"name":"a"}`:                     "config.name unknown, config.function required",
	} {
		var got []string
		for _, f := range e.Validate(json.RawMessage(config)) {
			got = append(got, f.Path+" "+f.Rule)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %v, want %s", config, got, want)
		}
	}
	if faults := e.ValidateParameters(json.RawMessage(`{"function":"a"}`), json.RawMessage(`3`)); len(faults) != 1 || faults[0] != (fault.Field{Path: "parameters", Rule: "type", Message: "must be an object"}) {
		t.Errorf("overrides that are no object: %v", faults)
	}
}
