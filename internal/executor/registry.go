package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/fault/suggest"
)

// Registry maps a job type to what runs it. It does not change once made, so
// any number of goroutines may use it.
type Registry struct {
	executors map[string]Executor
	left      []string
}

// NewRegistry makes a registry of the job types that this process runs or
// checks. Every executor that is also a Checker is asked before a job of its
// type is created.
func NewRegistry(executors map[string]Executor) *Registry {
	return &Registry{executors: maps.Clone(executors)}
}

// Only is the same registry for a worker that runs these types and leaves the
// others to other workers. It refuses types that the registry does not have.
func (r *Registry) Only(types ...string) (*Registry, error) {
	some := &Registry{executors: make(map[string]Executor, len(types)), left: slices.Clone(r.left)}
	for _, name := range types {
		executor, ok := r.executors[name]
		if !ok {
			return nil, fmt.Errorf("%q is not a job type; use some of: %s", name, strings.Join(r.Types(), ", "))
		}
		some.executors[name] = executor
	}
	for _, name := range r.Types() {
		if !slices.Contains(types, name) {
			some.left = append(some.left, name)
		}
	}
	return some, nil
}

// Types are the job types that it runs, in alphabetical order.
func (r *Registry) Types() []string { return slices.Sorted(maps.Keys(r.executors)) }

// LeftTypes are the job types that it leaves to other workers. An execution of a type
// that is in neither list can run nowhere: any worker may claim it, and it fails.
func (r *Registry) LeftTypes() []string { return r.left }

// Execute runs one attempt of a job type and blocks until it has ended. It never
// panics: a panic becomes a SYSTEM_ERROR with the stack, a job type that is
// not registered a VALIDATION_ERROR, and a failure after ctx's deadline a
// TIMEOUT, whatever the executor called it. The result can be stored.
func (r *Registry) Execute(ctx context.Context, jobType string, run Run) (out Outcome) {
	executor, ok := r.executors[jobType]
	if !ok {
		return Outcome{Err: &Error{Type: ValidationError, Message: fmt.Sprintf("this worker does not run jobs of type %q", text(jobType, 40))}}
	}
	defer func() {
		if cause := recover(); cause != nil {
			out = Outcome{Err: &Error{Type: SystemError, Message: fmt.Sprintf("panic: %v", cause), Stack: string(debug.Stack())}}
		}
		finish(ctx, run, &out)
	}()
	if run.Report == nil {
		run.Report = silent{}
	}
	return executor.Execute(ctx, run)
}

// finish makes an outcome storable and names a time-out as such.
func finish(ctx context.Context, run Run, out *Outcome) {
	if out.Result != nil {
		out.Result = storable(out.Result)
	}
	if out.Err == nil {
		return
	}
	failure := *out.Err // the executor may keep and share its own
	late := errors.Is(ctx.Err(), context.DeadlineExceeded)
	if late && failure.Type != ValidationError && failure.Type != Timeout {
		failure.Type = Timeout
		failure.Message = fmt.Sprintf("timed out after %s: %s", run.Timeout, failure.Message)
	}
	failure.Message = text(failure.Message, maxMessage)
	failure.Stack = text(failure.Stack, maxStack)
	out.Err = &failure
}

// Validate lists every fault of a job's configuration; none means that the job
// may be created. Paths begin with "config".
func (r *Registry) Validate(jobType string, config json.RawMessage) []fault.Field {
	executor, ok := r.executors[jobType]
	if !ok {
		return r.unknown(jobType)
	}
	if checker, ok := executor.(Checker); ok {
		return checker.Validate(config)
	}
	return nil
}

// ValidateParameters lists every fault of a manual trigger's overrides for a
// job of this type and configuration. Paths begin with "parameters".
func (r *Registry) ValidateParameters(jobType string, config, parameters json.RawMessage) []fault.Field {
	executor, ok := r.executors[jobType]
	if !ok {
		return r.unknown(jobType)
	}
	if checker, ok := executor.(Checker); ok && len(parameters) > 0 {
		return checker.ValidateParameters(config, parameters)
	}
	return nil
}

// HostOf is the host that a job of this type and configuration calls; empty where it
// names none, or leaves circuit breakers out.
func (r *Registry) HostOf(jobType string, config json.RawMessage) string {
	if one, ok := r.executors[jobType].(caller); ok {
		return one.Host(config)
	}
	return ""
}

// caller is an Executor whose jobs name the host that they call.
type caller interface {
	// Host is the host of a job's configuration; empty where it cannot be read, or where the job
	// leaves circuit breakers out.
	Host(config json.RawMessage) string
}

func (r *Registry) unknown(jobType string) []fault.Field {
	return []fault.Field{{
		Path: "jobType", Rule: "enum",
		Message: suggest.OneOf(jobType, r.Types()),
	}}
}
