// Package function runs jobs of type function: a Go function that is compiled
// into the worker, found by module and name.
//
// It owns the registry of those functions, what a job of the type may say
// (modulePath, functionName, parameters, timeout), and the module builtin. It
// refuses functions that it does not know when the job is created, and again
// when it runs, since the worker may be another build than the API. It does
// not stop a function that ignores its context: what is compiled in is trusted
// to honour it.
package function

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/parameters"
	"github.com/scheduler-service/scheduler/internal/fault"
)

// Call is what a function is told.
type Call struct {
	ExecutionID, JobID, TenantID uuid.UUID
	// Attempt counts from 1.
	Attempt int
	// ScheduledAt is the scheduled time, the same in every attempt.
	ScheduledAt time.Time
	// Parameters is the job's JSON object, with those of a manual trigger set
	// over it by name; nil where there are none.
	Parameters json.RawMessage
	// Report takes what the function says while it runs.
	Report executor.Reporter
}

// Function does the work. It returns soon after ctx ends and leaves nothing
// running behind. The value is kept as JSON of at most executor.MaxResult
// bytes; nil is no result. An error counts as the job's own fault and is not
// retried, unless it is an *executor.Error, which says itself what it is.
type Function func(ctx context.Context, call Call) (any, error)

// Definition is a function and what it can be asked.
type Definition struct {
	Run Function
	// Check lists what is wrong with the parameters, at paths below path; nil
	// takes any object. It is asked when a job is created and before each run.
	Check func(path string, parameters json.RawMessage) []fault.Field
	// Description and Parameters are what workers publish of a function. Parameters
	// are checked, too.
	Description string
	Parameters  *parameters.Schema
}

// Module is the functions of one module by name.
type Module map[string]Definition

// Executor runs and checks jobs of type function.
type Executor struct {
	modules   map[string]Module
	published published // nil where only what is compiled in counts
}

// published is what an API knows of the functions of workers, which are other builds.
type published interface {
	Modules() []string
	Functions(module string) []string
	Parameters(module, name string) (schema *parameters.Schema, known bool)
}

var _ executor.Checker = (*Executor)(nil)

// New makes an executor of the given modules, by path, and of the module
// builtin, which is always there and always ours.
func New(modules map[string]Module) *Executor {
	all := map[string]Module{}
	maps.Copy(all, modules)
	all["builtin"] = builtin()
	return &Executor{modules: all}
}

// NewChecker is New for a process that checks jobs of workers of other builds, too.
func NewChecker(modules map[string]Module, p published) *Executor {
	e := New(modules)
	e.published = p
	return e
}

// Validate lists every fault of a job's configuration.
func (e *Executor) Validate(config json.RawMessage) []fault.Field {
	_, faults := e.parse(config)
	return faults
}

// ValidateParameters lists every fault of a manual trigger's overrides: they
// are set over the job's parameters by name, and checked together with them.
func (e *Executor) ValidateParameters(config, over json.RawMessage) []fault.Field {
	s, faults := e.parse(config)
	if len(faults) == 0 {
		faults = parameters.Check("parameters", over)
	}
	if len(faults) > 0 {
		return faults
	}
	merged, err := parameters.Merge(s.Parameters, over)
	if err != nil {
		return notObject("parameters")
	}
	return s.definition.check("parameters", merged)
}

// Execute calls the function. It is found again for each attempt, without the
// strictness of Validate, which costs more than a small function does.
func (e *Executor) Execute(ctx context.Context, run executor.Run) executor.Outcome {
	var s settings
	if err := json.Unmarshal(run.Config, &s); err != nil {
		return failed(executor.ValidationError, "the configuration is not that of a function")
	}
	definition, ok := e.modules[s.ModulePath][s.FunctionName]
	if !ok {
		return failed(executor.ValidationError, fmt.Sprintf("this worker has no function %q in module %q", s.FunctionName, s.ModulePath))
	}
	merged, err := parameters.Merge(s.Parameters, run.Parameters)
	if err != nil {
		return failed(executor.ValidationError, "parameters: must be an object")
	}
	if faults := definition.check("parameters", merged); len(faults) > 0 {
		return failed(executor.ValidationError, (&fault.Error{Message: "the parameters do not fit", Fields: faults}).Error())
	}
	ctx, limit, stop := run.Within(ctx, time.Duration(s.Timeout*float64(time.Second)))
	defer stop()
	value, err := definition.Run(ctx, Call{
		ExecutionID: run.ExecutionID, JobID: run.JobID, TenantID: run.TenantID,
		Attempt: run.Attempt, ScheduledAt: run.ScheduledAt, Report: run.Report, Parameters: merged,
	})
	if err != nil {
		return executor.Outcome{Err: failure(ctx, err, limit)}
	}
	return outcome(value)
}

// outcome is the outcome of a function that succeeded with a value.
func outcome(value any) executor.Outcome {
	switch value := value.(type) {
	case nil:
		return executor.Outcome{}
	case json.RawMessage:
		return executor.Outcome{Result: value}
	}
	result, err := json.Marshal(value)
	if err != nil {
		return failed(executor.UserError, "the function's result cannot be written as JSON: "+err.Error())
	}
	return executor.Outcome{Result: result}
}

// failure classes a function's error.
func failure(ctx context.Context, err error, limit time.Duration) *executor.Error {
	var own *executor.Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && errors.Is(err, context.DeadlineExceeded):
		return &executor.Error{Type: executor.Timeout, Message: fmt.Sprintf("timed out after %s", limit)}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &executor.Error{Type: executor.Timeout, Message: fmt.Sprintf("timed out after %s: %s", limit, err)}
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return &executor.Error{Type: executor.SystemError, Message: "the function was cancelled"}
	default:
		return &executor.Error{Type: executor.UserError, Message: err.Error()}
	}
}

func failed(kind executor.ErrorType, message string) executor.Outcome {
	return executor.Outcome{Err: &executor.Error{Type: kind, Message: message}}
}
