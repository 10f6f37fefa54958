// Package remote is jobs of type remote: a function that a worker of the tenant's own runs,
// outside our processes.
//
// It owns what such a job may say (functionName, parameters). It refuses to run anything: our
// workers leave the type to others, and package remote hands its executions out.
package remote

import (
	"context"
	"encoding/json"
	"regexp"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/parameters"
	"github.com/scheduler-service/scheduler/internal/fault"
)

// Type is the job type.
const Type = "remote"

// saneName is what a function may be called: a word of the tenant's program, and a path of one.
var saneName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}$`)

// SaneName reports whether a function may have this name.
func SaneName(name string) bool { return saneName.MatchString(name) }

// Executor checks jobs of the type.
type Executor struct{}

var _ executor.Checker = Executor{}

// Settings is a job's configuration.
type Settings struct {
	Function   string          `json:"functionName"`
	Parameters json.RawMessage `json:"parameters"`
}

// Parse reads a configuration and lists what is wrong with it.
func Parse(config json.RawMessage) (Settings, []fault.Field) {
	object := executor.ReadObject("config", config, "functionName", "parameters")
	var s Settings
	if object.Require("functionName", &s.Function, "a text") && !SaneName(s.Function) {
		object.Fault("functionName", "pattern", "must have 1 to 200 letters, digits, _, ., / and -, the first of them a letter, a digit or _")
	}
	if object.Read("parameters", &s.Parameters, "an object") {
		object.Add(parameters.Check("config.parameters", s.Parameters)...)
	}
	return s, object.Faults()
}

// Validate lists every fault of a job's configuration. Whether a worker has the function is
// asked where the tenant is known.
func (Executor) Validate(config json.RawMessage) []fault.Field {
	_, faults := Parse(config)
	return faults
}

// ValidateParameters lists every fault of a manual trigger's overrides: they are set over
// the job's parameters by name.
func (Executor) ValidateParameters(config, over json.RawMessage) []fault.Field {
	s, faults := Parse(config)
	if len(faults) > 0 {
		return faults
	}
	return parameters.CheckOver(s.Parameters, over)
}

// Execute fails: an execution of the type is none of ours to run.
func (Executor) Execute(context.Context, executor.Run) executor.Outcome {
	return executor.Outcome{Err: &executor.Error{Type: executor.SystemError, Message: "only a worker that registered through the API runs jobs of type remote"}}
}
