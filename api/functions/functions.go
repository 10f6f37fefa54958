// Package functions is for a worker of your own: a program that runs jobs of type
// function with functions that you wrote in Go, and everything else that a worker runs.
//
//	func main() {
//		if code, done := functions.Inside(os.Args); done {
//			os.Exit(code)
//		}
//		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//		defer stop()
//		err := functions.Run(ctx, os.LookupEnv, slog.Default(), functions.Module{
//			Path: "billing", Functions: []functions.Function{functions.Define("invoice", "Writes the invoices of a month.", invoice)},
//		})
//		…
//
// It owns what such a function is told and how its parameters are described. Its
// configuration is that of cmd/worker, from the environment. A worker publishes its
// functions when it starts, so that the API checks the parameters of a job before it is
// stored. Every worker of an installation that runs the type function has to have the
// same modules: who keeps other workers, too, leaves the type to these
// (WORKER_JOB_TYPES).
package functions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/app"
	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/function"
	"github.com/scheduler-service/scheduler/internal/executor/parameters"
	"github.com/scheduler-service/scheduler/internal/executor/sandbox"
)

// Module is functions under one path, which jobs name as modulePath.
type Module struct {
	Path      string
	Functions []Function
}

// Function is one of a module; Define makes it.
type Function struct {
	name       string
	definition function.Definition
	err        error
}

// Call is what a function is told beside its parameters.
type Call struct {
	ExecutionID, JobID, TenantID uuid.UUID
	// Attempt counts from 1.
	Attempt int
	// ScheduledAt is the scheduled time, the same in every attempt.
	ScheduledAt time.Time
	// IdempotencyKey is the same in every attempt, and of this execution alone. An
	// attempt may be made again although its work was done: what must not happen twice
	// is done under this key.
	IdempotencyKey string
	// Log writes to the output of the execution.
	Log *slog.Logger

	report executor.Reporter
	beat   func()
}

// Progress says how far the run is, from 0 to 100, and with what it is busy.
func (c Call) Progress(percent int, message string) { c.report.Progress(percent, message) }

// Heartbeat says that the run goes on. It counts for a function that is defined with
// HeartbeatWithin. Progress does not.
func (c Call) Heartbeat() { c.beat() }

// Option is more about a function.
type Option func(*options)

type options struct{ heartbeat time.Duration }

// HeartbeatWithin ends the context of a run that does not call Heartbeat for so long.
func HeartbeatWithin(limit time.Duration) Option { return func(o *options) { o.heartbeat = limit } }

// errSilent is why the context of a run ends that gave no sign of life.
var errSilent = errors.New("the function gave no sign of life")

// Define makes a function. P is a struct, or a map with texts as keys: its type
// describes the parameters (package encoding/json's names; tag doc is a description,
// tag enum the texts that are taken; omitempty or a pointer may be left out). The value
// that run returns is the result, as JSON of at most 256 KiB. Run returns soon after ctx ends.
// An error of run is the job's own fault, and not retried, unless it is one of Retry.
func Define[P, R any](name, description string, run func(ctx context.Context, call Call, p P) (R, error), more ...Option) Function {
	var o options
	for _, option := range more {
		option(&o)
	}
	schema, err := parameters.SchemaOf(reflect.TypeFor[P]())
	if err == nil && schema.Type != "object" {
		err = fmt.Errorf("%s is no object", reflect.TypeFor[P]())
	}
	if err != nil {
		return Function{name: name, err: fmt.Errorf("function %s: %w", name, err)}
	}
	return Function{name: name, definition: function.Definition{
		Description: description, Parameters: schema,
		Run: func(ctx context.Context, given function.Call) (any, error) {
			var p P
			if len(given.Parameters) > 0 {
				if err := json.Unmarshal(given.Parameters, &p); err != nil {
					return nil, &executor.Error{Type: executor.ValidationError, Message: "the parameters do not fit: " + err.Error()}
				}
			}
			ctx, beat, done := watched(ctx, o.heartbeat)
			defer done()
			value, err := run(ctx, callOf(given, beat), p)
			if err != nil && errors.Is(context.Cause(ctx), errSilent) {
				return nil, &executor.Error{Type: executor.Timeout, Message: fmt.Sprintf("%s for %s: %s", errSilent, o.heartbeat, err)}
			}
			return value, err
		},
	}}
}

// watched ends a context that hears no beat for limit; zero is no limit.
func watched(ctx context.Context, limit time.Duration) (_ context.Context, beat, done func()) {
	if limit <= 0 {
		return ctx, func() {}, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { cancel(errSilent) })
	return ctx, func() { timer.Reset(limit) }, func() { timer.Stop(); cancel(nil) }
}

func callOf(given function.Call, beat func()) Call {
	return Call{
		ExecutionID: given.ExecutionID, JobID: given.JobID, TenantID: given.TenantID, Attempt: given.Attempt, ScheduledAt: given.ScheduledAt,
		IdempotencyKey: given.ExecutionID.String(), Log: slog.New(slog.NewTextHandler(lines{given.Report}, nil)), report: given.Report, beat: beat,
	}
}

// lines writes log lines to the output of a run.
type lines struct{ report executor.Reporter }

func (l lines) Write(line []byte) (int, error) {
	l.report.Output(executor.Log, bytes.Clone(line))
	return len(line), nil
}

// Retry is an error after which the attempt is made again, as far as the job's retries
// go, and not before after has passed.
func Retry(err error, after time.Duration) error {
	again := true
	return &executor.Error{Type: executor.SystemError, Message: err.Error(), RetryAfter: after, Retry: &again}
}

// Inside does what this program was started for inside a sandbox, if it was: then done
// is true, and code is its exit code. It stands first in main.
func Inside(args []string) (code int, done bool) { return sandbox.Main(args, app.Entries()) }

// Run runs a worker with these modules until ctx ends, and what it runs is finished or
// released. Lookup reads the variables that cmd/worker reads.
func Run(ctx context.Context, lookup func(name string) (string, bool), log *slog.Logger, modules ...Module) error {
	all, err := collect(modules)
	if err != nil {
		return err
	}
	c, err := config.Load[config.Worker](lookup)
	if err != nil {
		return err
	}
	return app.Worker(ctx, c, log, all)
}

// collect refuses what would hide something.
func collect(modules []Module) (map[string]function.Module, error) {
	all := map[string]function.Module{}
	for _, m := range modules {
		if m.Path == "" || m.Path == "builtin" || all[m.Path] != nil {
			return nil, fmt.Errorf("the module path %q is empty, taken or ours", m.Path)
		}
		all[m.Path] = function.Module{}
		for _, f := range m.Functions {
			if f.err != nil {
				return nil, fmt.Errorf("module %s: %w", m.Path, f.err)
			}
			if _, twice := all[m.Path][f.name]; twice || f.name == "" {
				return nil, fmt.Errorf("module %s: the function name %q is empty or taken", m.Path, f.name)
			}
			all[m.Path][f.name] = f.definition
		}
	}
	return all, nil
}
