// Package command runs jobs of type command: a program with arguments, without a
// shell.
//
// It owns what such a job may say, how a program is kept apart from the worker and
// from others (levels sandbox and unsafe), how its whole tree of processes ends, and
// what of its output and use of the machine is kept. It refuses to run anything where
// the operator did not name a level, and to fall back to a weaker one by itself.
package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/sandbox"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/trace"
)

// Type is the job type.
const Type = "command"

// Level says how programs are kept apart.
type Level string

// The levels, as COMMAND_JOBS names them.
const (
	Off     Level = "off"
	Sandbox Level = "sandbox" // namespaces of bubblewrap, Landlock and limits
	Unsafe  Level = "unsafe"  // limits and Landlock: for a worker in a container of its own
)

// Config is what the operator says.
type Config struct {
	Level Level
	// Memory is the most that one job may ask for, in MiB; Network admits jobs that ask
	// for the network. The API checks jobs with the same.
	Memory  int
	Network bool
	// Paths are files and directories that programs may read beside those of the
	// system; Dir is where the level unsafe makes working directories.
	Paths []string
	Dir   string
}

// Executor runs and checks jobs of type command.
type Executor struct {
	c   Config
	box *box // nil where it only checks
}

var _ executor.Checker = (*Executor)(nil)

// NewChecker makes an executor that only checks jobs.
func NewChecker(c Config) *Executor { return &Executor{c: c} }

// New makes an executor. It starts a program to find out whether the level can be
// reached here, and fails where it cannot.
func New(ctx context.Context, c Config) (*Executor, error) {
	b, err := open(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Executor{c: c, box: b}, nil
}

// Runs tells whether programs run here, or jobs are only checked.
func (e *Executor) Runs() bool { return e.box != nil }

// Isolation says in words what keeps programs apart here.
func (e *Executor) Isolation() string { return e.box.about }

// Close removes what the executor made on this machine.
func (e *Executor) Close() {
	if e.box != nil {
		e.box.close()
	}
}

// Validate lists every fault of a job's configuration.
func (e *Executor) Validate(config json.RawMessage) []fault.Field {
	if e.c.Level == Off {
		return []fault.Field{{
			Path: "jobType", Rule: "off",
			Message: "command jobs are off in this installation; its operator turns them on with COMMAND_JOBS, for the API and for some workers, or use the type http or function",
		}}
	}
	_, faults := e.parse(config)
	return faults
}

// ValidateParameters lists every fault of a manual trigger's overrides: args replaces
// the arguments, environment sets single variables.
func (e *Executor) ValidateParameters(config, parameters json.RawMessage) []fault.Field {
	s, faults := e.parse(config)
	if len(faults) > 0 {
		return faults
	}
	// Arguments and variables decide what becomes of a secret, and who may trigger a job
	// may not always use its secrets.
	if absent := len(parameters) == 0 || string(parameters) == "null"; !absent && holdsSecrets(config) {
		return []fault.Field{{Path: "parameters", Rule: "secret", Message: "must be absent, because the job's environment holds a secret: make a job of its own for other arguments"}}
	}
	return s.override(parameters)
}

// holdsSecrets tells whether a configuration as it is stored refers to a secret, or has a
// credential, which stands in it masked.
func holdsSecrets(config json.RawMessage) bool {
	return bytes.Contains(config, []byte("{{secret:")) || bytes.Contains(config, []byte(`"***"`))
}

// The pace of an end: a program has politeness to end by itself after SIGTERM, and then
// its keeper has haste to end the tree and to say what it used.
const (
	politeness = time.Second
	haste      = 500 * time.Millisecond
)

// Execute runs the program to its end.
func (e *Executor) Execute(ctx context.Context, run executor.Run) executor.Outcome {
	s, faults := e.parse(run.Config)
	if len(faults) == 0 {
		faults = s.override(run.Parameters)
	}
	if len(faults) > 0 {
		return failed(executor.ValidationError, (&fault.Error{Message: "the configuration cannot be run", Fields: faults}).Error())
	}
	ctx, limit, stop := run.Within(ctx, s.timeout)
	defer stop()
	out, err := newOutput(run.Report)
	if err != nil {
		return failed(executor.SystemError, err.Error())
	}
	tree, err := e.box.start(ctx, s.order(ctx, run, limit), out)
	if err != nil {
		out.drop()
		return refused(ctx, err, limit)
	}
	end := tree.wait(ctx)
	out.finish(tree.lost)
	return s.outcome(ctx, end, out, limit)
}

// refused is the outcome of a program that did not start.
func refused(ctx context.Context, err error, limit time.Duration) executor.Outcome {
	var missing *missingError
	switch {
	case errors.As(err, &missing):
		return failed(executor.ValidationError, missing.Error())
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return failed(executor.Timeout, fmt.Sprintf("timed out after %s, before the program started", limit))
	case ctx.Err() != nil:
		return failed(executor.SystemError, "the command was cancelled before it started")
	}
	return failed(executor.SystemError, "the program cannot be started here: "+err.Error())
}

// missingError is a program that is not on the worker, or cannot be run.
type missingError struct{ problem string }

func (e *missingError) Error() string { return e.problem }

func failed(kind executor.ErrorType, message string) executor.Outcome {
	return executor.Outcome{Err: &executor.Error{Type: kind, Message: message}}
}

// outcome says how the program ended.
func (s *settings) outcome(ctx context.Context, end ending, out *output, limit time.Duration) executor.Outcome {
	result := executor.Outcome{
		Result: out.result(end), CPUTime: end.cpu(), MemoryPeakMB: float64(end.MemoryBytes) / (1 << 20),
	}
	switch {
	case end.Ended && errors.Is(ctx.Err(), context.DeadlineExceeded):
		result.Err = &executor.Error{Type: executor.Timeout, Message: fmt.Sprintf("timed out after %s", limit)}
	case end.Ended:
		result.Err = &executor.Error{Type: executor.SystemError, Message: "the command was cancelled"}
	case end.Problem != "":
		result.Result = nil
		result.Err = &executor.Error{Type: executor.SystemError, Message: end.Problem}
	case end.Signal != "" || end.ExitCode != 0:
		result.Err = s.failure(end, out)
	}
	return result
}

// failure says why a program failed by itself.
func (s *settings) failure(end ending, out *output) *executor.Error {
	e := &executor.Error{Type: executor.UserError}
	switch {
	case end.OutOfMemory:
		e.Message = fmt.Sprintf("used more than its %d MiB of memory", s.limits.MemoryMB)
	case end.Signal == "SIGXCPU", end.Signal == "SIGKILL" && s.limits.CPUSeconds > 0 && end.cpu() >= time.Duration(s.limits.CPUSeconds)*time.Second:
		e.Message = fmt.Sprintf("used its %d s of CPU time", s.limits.CPUSeconds)
	case end.Signal == "SIGXFSZ":
		e.Message = fmt.Sprintf("wrote a file of more than %d MiB", s.limits.FileSizeMB)
	case end.Signal != "":
		e.Message = "was ended by " + end.Signal
	default:
		e.Message = "ended with exit code " + strconv.Itoa(end.ExitCode)
		if again := slices.Contains(s.retryOn, end.ExitCode); again {
			e.Retry = &again
		}
	}
	if last := out.stderr.lastLine(); last != "" {
		e.Message += ": " + last
	}
	return e
}

// order is what the keeper is told to run.
func (s *settings) order(ctx context.Context, run executor.Run, limit time.Duration) order {
	cpu := s.limits.CPUSeconds
	if cpu == 0 {
		cpu = int(limit/time.Second) + 1
	}
	return order{
		Command: s.command, Args: s.args, Env: s.environ(ctx, run), Dir: s.dir, Network: s.network,
		Limits: sandbox.Limits{
			Memory: uint64(s.limits.MemoryMB) << 20, CPU: time.Duration(cpu) * time.Second, Processes: uint64(s.limits.Processes),
			FileSize: uint64(s.limits.FileSizeMB) << 20, OpenFiles: uint64(s.limits.OpenFiles),
		},
	}
}

// environ is the whole environment of the program, without what depends on the place.
func (s *settings) environ(ctx context.Context, run executor.Run) []string {
	env := map[string]string{
		"PATH": searchPath, "LANG": "C.UTF-8",
		"SCHEDULER_EXECUTION_ID": run.ExecutionID.String(), "SCHEDULER_JOB_ID": run.JobID.String(), "SCHEDULER_TENANT_ID": run.TenantID.String(),
		"SCHEDULER_ATTEMPT": strconv.Itoa(run.Attempt), "SCHEDULER_SCHEDULED_AT": run.ScheduledAt.UTC().Format(time.RFC3339Nano),
	}
	if parent := trace.Parent(ctx); parent != "" {
		env["TRACEPARENT"] = parent
	}
	for name, value := range s.environment {
		env[name] = value
	}
	var all []string
	for name, value := range env {
		all = append(all, name+"="+value)
	}
	slices.Sort(all)
	return all
}

// searchPath is where a program without a directory in its name is looked for.
const searchPath = "/usr/local/bin:/usr/bin:/bin"

// ending is how a program ended, as its keeper says.
type ending struct {
	Problem     string // the keeper could not tell
	ExitCode    int
	Signal      string // that ended it; empty where it ended by itself
	CPUMicros   int64  // of the whole tree
	MemoryBytes int64  // the peak
	OutOfMemory bool
	Ended       bool // by us, because its time was up or it was cancelled
}

func (e ending) cpu() time.Duration { return time.Duration(e.CPUMicros) * time.Microsecond }

// order is what a keeper is told to run.
type order struct {
	Command string
	Args    []string
	Env     []string
	Root    string // the private directory
	Dir     string // relative to Root
	Network bool
	Remove  bool // Root is the keeper's to remove
	Limits  sandbox.Limits
	Read    []string
	Write   []string
}

// lookup finds the program. It runs where the program will: in the sandbox the system
// may look otherwise.
func lookup(name string) (string, error) {
	places := []string{name}
	if !path.IsAbs(name) {
		places = nil
		for dir := range strings.SplitSeq(searchPath, ":") {
			places = append(places, path.Join(dir, name))
		}
	}
	for _, place := range places {
		about, err := os.Stat(place)
		switch {
		case err != nil:
			continue
		case about.IsDir() || about.Mode()&0o111 == 0:
			return "", &missingError{fmt.Sprintf("%s is not a program that can be run", place)}
		}
		return place, nil
	}
	if path.IsAbs(name) {
		return "", &missingError{fmt.Sprintf("there is no program %s where this job runs", name)}
	}
	return "", &missingError{fmt.Sprintf("there is no program %q in %s where this job runs", name, searchPath)}
}

// drain reads a stream to its end, and tells done.
func drain(from io.ReadCloser, into io.Writer, done *sync.WaitGroup) {
	defer done.Done()
	defer from.Close()
	chunk := make([]byte, 16<<10)
	for {
		n, err := from.Read(chunk)
		if n > 0 {
			_, _ = into.Write(chunk[:n]) // it never fails
		}
		if err != nil {
			return
		}
	}
}
