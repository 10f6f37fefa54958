// Package wasm runs jobs of type wasm: a WebAssembly module that the tenant uploaded.
//
// It owns what such a job may say (function, version, parameters, timeout) and what a
// module has to be: a core module for WASI preview 1, which is compiled before it is
// stored. The module gets its input on standard input and answers on standard output;
// standard error is its log. It runs in a runner process (package runner), which can be
// killed, and reaches neither files nor the network.
package wasm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/parameters"
	"github.com/scheduler-service/scheduler/internal/executor/runner"
	"github.com/scheduler-service/scheduler/internal/executor/runner/wire"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/function"
)

const (
	// memory is what a module may have.
	memory = 128 << 20
	// checkTime bounds the check of a module, beside the processor time that it gets.
	checkTime = 10 * time.Second
)

// Source finds and loads modules.
type Source interface {
	Find(ctx context.Context, tenant uuid.UUID, name string, version int32) (function.Module, error)
	Load(ctx context.Context, tenant uuid.UUID, module function.Module) ([]byte, error)
}

// Executor runs and checks jobs of type wasm.
type Executor struct {
	pool   *runner.Pool
	source Source
}

var _ executor.Checker = (*Executor)(nil)

// New makes an executor that runs modules in the pool. Without a source it only checks.
func New(pool *runner.Pool, source Source) *Executor { return &Executor{pool: pool, source: source} }

// Settings is a job's configuration.
type Settings struct {
	Function   string          `json:"function"`
	Version    int32           `json:"version"` // 0 is the newest at the time of the run
	Parameters json.RawMessage `json:"parameters"`
	Timeout    float64         `json:"timeout"` // seconds
}

// Validate lists every fault of a job's configuration. Whether the function is there
// is asked where the tenant is known.
func (e *Executor) Validate(config json.RawMessage) []fault.Field {
	_, faults := Parse(config)
	return faults
}

// ValidateParameters lists every fault of a manual trigger's overrides: they are set over
// the job's parameters by name.
func (e *Executor) ValidateParameters(config, over json.RawMessage) []fault.Field {
	s, faults := Parse(config)
	if len(faults) > 0 {
		return faults
	}
	return parameters.CheckOver(s.Parameters, over)
}

// Parse reads a configuration and lists what is wrong with it.
func Parse(config json.RawMessage) (Settings, []fault.Field) {
	object := executor.ReadObject("config", config, "function", "version", "parameters", "timeout")
	var s Settings
	if object.Require("function", &s.Function, "a text") && !function.SaneName(s.Function) {
		object.Fault("function", "pattern", "must have 1 to 64 letters, digits, _, . and -, the first of them none of . and -")
	}
	if object.Read("version", &s.Version, "a whole number") && s.Version < 1 {
		object.Fault("version", "range", "must be 1 or more")
	}
	if object.Read("parameters", &s.Parameters, "an object") {
		object.Add(parameters.Check("config.parameters", s.Parameters)...)
	}
	object.Seconds("timeout")
	return s, object.Faults()
}

// The first eight bytes of a module: magic, version, and layer, which is 1 for the
// component model.
var (
	core      = []byte("\x00asm\x01\x00\x00\x00")
	component = []byte("\x01\x00") // after magic and version
)

// CheckModule says what is wrong with a module; the text is empty where nothing is. It
// is compiled in a runner, within bounds. The error says that this could not be found out.
func (e *Executor) CheckModule(ctx context.Context, tenant uuid.UUID, digest string, code []byte) (string, error) {
	switch {
	case !bytes.HasPrefix(code, core[:4]):
		return "is not a WebAssembly module in the binary form", nil
	case len(code) >= 8 && bytes.Equal(code[6:8], component):
		return "is a component (WASI preview 2); recompile it as a core module for WASI preview 1, wasip1", nil
	case !bytes.HasPrefix(code, core):
		return "is not of version 1 of WebAssembly", nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	failure, err := e.pool.Check(ctx, tenant, runner.Program{
		Key: digest, Memory: memory, Module: func(context.Context) ([]byte, error) { return code, nil },
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("check a module: %w", err)
	case failure == nil:
		return "", nil
	case failure.Reason == wire.Memory:
		return "needs more than 512 MiB of memory to be compiled", nil
	case failure.Reason == wire.Deadline:
		return "needs more than 5 s of processor time to be compiled", nil
	}
	return "cannot be run: " + failure.Message, nil
}

// Execute runs the module once.
func (e *Executor) Execute(ctx context.Context, run executor.Run) executor.Outcome {
	var s Settings
	if err := json.Unmarshal(run.Config, &s); err != nil || s.Function == "" {
		return failed(executor.ValidationError, "the configuration is not that of a module")
	}
	merged, err := parameters.Merge(s.Parameters, run.Parameters)
	if err != nil {
		return failed(executor.ValidationError, "parameters: must be an object")
	}
	input, err := runner.Input(run, merged)
	if err != nil {
		return failed(executor.ValidationError, "parameters: must be an object")
	}
	ctx, limit, stop := run.Within(ctx, time.Duration(s.Timeout*float64(time.Second)))
	defer stop()
	module, err := e.source.Find(ctx, run.TenantID, s.Function, s.Version)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return failed(executor.ValidationError, fmt.Sprintf("there is no function %q, or not this version of it", s.Function))
	case err != nil && ctx.Err() == nil:
		return failed(executor.SystemError, "the function could not be read")
	}
	end, err := e.pool.Run(ctx, run.TenantID, runner.Program{
		Key: module.Digest, Memory: memory,
		Module: func(ctx context.Context) ([]byte, error) { return e.source.Load(ctx, run.TenantID, module) },
	}, wire.Task{Input: input}, host{run.Report})
	return runner.Outcome(end, err, limit)
}

func failed(kind executor.ErrorType, message string) executor.Outcome {
	return executor.Outcome{Err: &executor.Error{Type: kind, Message: message}}
}

// host is that of a module, which calls nobody.
type host struct{ executor.Reporter }

// Fetch refuses.
func (host) Fetch(context.Context, wire.Request) wire.Response {
	return wire.Response{Error: "a module makes no calls"}
}
