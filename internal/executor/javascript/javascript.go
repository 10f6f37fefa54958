// Package javascript runs jobs of type javascript: a script that stands in the job.
//
// It owns what such a job may say (source, parameters, timeout) and how a script calls
// out: fetch goes through the guarded client of package egress, on this side of the
// pipe. It refuses scripts that cannot be read when the job is saved. The script itself
// runs in a runner process (package runner), which can be killed.
package javascript

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/egress"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/parameters"
	"github.com/scheduler-service/scheduler/internal/executor/runner"
	"github.com/scheduler-service/scheduler/internal/executor/runner/wire"
	"github.com/scheduler-service/scheduler/internal/fault"
)

const (
	maxSource = 64 << 10
	// memory is what a script may have.
	memory = 64 << 20
	// checkTime bounds reading a script when a job is saved. A script is read in milliseconds,
	// the worst that was tried (200 brackets around 60 kB) in 0.9 s; the first one on a machine
	// waits for the engine, which is compiled.
	checkTime = 10 * time.Second
)

// Executor runs and checks jobs of type javascript.
type Executor struct {
	pool   *runner.Pool
	client *egress.Client
	log    *slog.Logger
}

var _ executor.Checker = (*Executor)(nil)

// New makes an executor that runs scripts in the pool and calls out through client.
func New(pool *runner.Pool, client *egress.Client, log *slog.Logger) *Executor {
	return &Executor{pool: pool, client: client, log: log}
}

// settings is a job's configuration.
type settings struct {
	Source     string          `json:"source"`
	Parameters json.RawMessage `json:"parameters"`
	Timeout    float64         `json:"timeout"` // seconds
}

// Validate lists every fault of a job's configuration.
func (e *Executor) Validate(config json.RawMessage) []fault.Field {
	s, faults := parse(config)
	if len(faults) > 0 {
		return faults
	}
	return e.check(s.Source)
}

// ValidateParameters lists every fault of a manual trigger's overrides: they are set
// over the job's parameters by name.
func (e *Executor) ValidateParameters(config, over json.RawMessage) []fault.Field {
	s, faults := parse(config)
	if len(faults) > 0 {
		return faults
	}
	return parameters.CheckOver(s.Parameters, over)
}

// parse reads a configuration and lists what is wrong with it, but for the script.
func parse(config json.RawMessage) (settings, []fault.Field) {
	object := executor.ReadObject("config", config, "source", "parameters", "timeout")
	var s settings
	if object.Require("source", &s.Source, "a text") {
		switch {
		case strings.TrimSpace(s.Source) == "":
			object.Fault("source", "required", "is empty")
		case len(s.Source) > maxSource:
			object.Fault("source", "length", "must have at most 65536 bytes")
		}
	}
	if object.Read("parameters", &s.Parameters, "an object") {
		object.Add(parameters.Check("config.parameters", s.Parameters)...)
	}
	object.Seconds("timeout")
	return s, object.Faults()
}

// check lists what is wrong with a script. Where no runner can say so in time, as on a
// machine that is very busy, the run will.
func (e *Executor) check(source string) []fault.Field {
	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	end, err := e.pool.Run(ctx, uuid.Nil, program(), wire.Task{Source: source, Check: true}, silent{})
	f := end.Failure
	if f != nil && f.Reason == wire.Deadline {
		err = context.DeadlineExceeded
	}
	if err != nil {
		e.log.WarnContext(ctx, "a script was saved without a check", "error", err)
		return nil
	}
	if f == nil {
		return nil
	}
	problem := fault.Field{Path: "config.source", Rule: "syntax", Message: f.Message}
	switch {
	case f.Reason == wire.Syntax && f.Line > 0:
		problem.Message = fmt.Sprintf("line %d, column %d: %s", f.Line, f.Column, f.Message)
	case f.Reason == wire.Memory:
		problem.Message = "needs more memory to be read than a script may have"
	}
	return []fault.Field{problem}
}

func program() runner.Program { return runner.Program{Memory: memory} }

// Execute runs the script. The result is what its default export answers.
func (e *Executor) Execute(ctx context.Context, run executor.Run) executor.Outcome {
	var s settings
	if err := json.Unmarshal(run.Config, &s); err != nil || s.Source == "" {
		return invalid("the configuration is not that of a script")
	}
	merged, err := parameters.Merge(s.Parameters, run.Parameters)
	if err != nil {
		return invalid("parameters: must be an object")
	}
	input, err := runner.Input(run, merged)
	if err != nil {
		return invalid("parameters: must be an object")
	}
	ctx, limit, stop := run.Within(ctx, time.Duration(s.Timeout*float64(time.Second)))
	defer stop()
	end, err := e.pool.Run(ctx, run.TenantID, program(), wire.Task{Source: s.Source, Input: input}, &caller{Reporter: run.Report, client: e.client, run: run})
	return runner.Outcome(end, err, limit)
}

func invalid(message string) executor.Outcome {
	return executor.Outcome{Err: &executor.Error{Type: executor.ValidationError, Message: message}}
}

// silent is the host of a check, in which nothing runs.
type silent struct{}

func (silent) Output(executor.Stream, []byte) {}
func (silent) Progress(int, string)           {}
func (silent) Fetch(context.Context, wire.Request) wire.Response {
	return wire.Response{Error: "a check calls nobody"}
}
