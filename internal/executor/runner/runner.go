// Package runner runs tenants' code in processes that can be killed.
//
// It owns the runner processes of a worker: this binary, started again in a sandbox, each
// with one program (JavaScript, or one WebAssembly module) for as long as it lives and
// one run at a time, which gets a new instance. It owns how many there are, which is a
// question of memory, whose turn it is when all are busy, the cache of compiled code,
// and the end: what does not end by itself is killed soon after its deadline. It refuses
// to believe a runner: frames, output and calls are bounded on this side too. It knows
// no jobs; what a run says and calls goes to a Host.
package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/runner/guest"
	"github.com/scheduler-service/scheduler/internal/executor/runner/wire"
	"github.com/scheduler-service/scheduler/internal/executor/sandbox"
)

const (
	// killAfter is how long a run may be late: its own clock ends it at the deadline if
	// it can.
	killAfter = 200 * time.Millisecond
	// startTime is how long a runner may take to start, and code to compile: seconds on
	// a machine whose processors are busy. compileCPU bounds what it works meanwhile.
	startTime = time.Minute
	// overhead is what a runner takes beside the linear memory of its run, and headroom
	// what it may write to at most: compiled code, and Go's own heap.
	overhead = 32 << 20
	headroom = 256 << 20
	maxRuns  = 1000 // then it is replaced
	maxTail  = 8 << 10
	maxSaid  = 4 << 20 // bytes of output of one run, twice what an honest runner sends
	together = 6       // calls of one run at the same time
)

// entryName is the runner among the entries of package sandbox.
const entryName = "runner"

// Entries are the entries that this binary has to hand to sandbox.Main.
func Entries() map[string]sandbox.Entry {
	return map[string]sandbox.Entry{entryName: func([]*os.File) int {
		if err := guest.Serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}}
}

// Host is where a run's words and calls go.
type Host interface {
	executor.Reporter
	// Fetch makes a call. It ends soon after ctx does, and answers the error in the
	// response.
	Fetch(ctx context.Context, request wire.Request) wire.Response
}

// process is one runner.
type process struct {
	key     string
	tenant  uuid.UUID // of its last run
	last    bool      // it gets what others leave of the processors
	need    int64
	sandbox *sandbox.Process
	in, out *os.File
	writes  sync.Mutex // on in
	tail    *tail
	runs    int
	cpu     time.Duration // that it may use in its life; 0 is any
	expiry  *time.Timer   // while it is idle
}

// tail keeps the last words of a process.
type tail struct {
	mu   sync.Mutex
	text []byte
	done chan struct{}
}

func follow(r *os.File) *tail {
	t := &tail{done: make(chan struct{})}
	go func() {
		defer close(t.done)
		defer r.Close()
		buffer := make([]byte, 4096)
		for {
			n, err := r.Read(buffer)
			t.mu.Lock()
			// The first words of a crash say why.
			t.text = append(t.text, buffer[:min(n, maxTail-len(t.text))]...)
			t.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return t
}

// start starts a process and waits until it can run its program. The failure says what is
// wrong with a tenant's module. One that comes last gets what others leave of the processors.
// One that is not ready within the limit, or when ctx ends, is an error: the machine was
// busy, and the code has done nothing yet.
func start(ctx context.Context, limit time.Duration, setup wire.Program, module []byte, last bool) (p *process, failure *wire.Failure, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w within %s", errSlow, limit))
	defer cancel()
	p, err = launch(ctx, setup, last)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, p.sandbox.Kill)
	defer stop()
	failure, err = p.ready(setup, module)
	p.lower() // the threads that it has begun meanwhile
	if err != nil {
		failure, err = p.died(ctx, err)
		p.end()
		return nil, failure, err
	}
	if failure != nil || setup.Compile {
		p.end()
		return nil, failure, nil
	}
	return p, nil, nil
}

// errSlow ends a start that takes too long.
var errSlow = errors.New("the runner did not start")

// launch starts the process itself.
func launch(ctx context.Context, setup wire.Program, last bool) (*process, error) {
	threads := "GOMAXPROCS=2"
	if last {
		threads = "GOMAXPROCS=1"
	}
	var files []*os.File
	closeAll := func() {
		for _, file := range files {
			_ = file.Close() // nobody else has it
		}
	}
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll()
			return nil, fmt.Errorf("make a pipe to a runner: %w", err)
		}
		files = append(files, r, w)
	}
	spec := sandbox.Spec{
		Entry: entryName, Env: []string{threads, "GOTRACEBACK=none"},
		Stdin: files[0], Stdout: files[3], Stderr: files[5],
		Limits: sandbox.Limits{Memory: setup.Memory + headroom, OpenFiles: 64},
	}
	if setup.CacheDir != "" {
		spec.Read = []string{setup.CacheDir}
	}
	if setup.Compile {
		spec.Read, spec.Write = nil, []string{setup.CacheDir}
		spec.Limits = sandbox.Limits{Memory: compileMemory, CPU: compileCPU, OpenFiles: 64, FileSize: maxArtefact}
	}
	started, err := sandbox.Start(ctx, spec)
	if err != nil {
		closeAll()
		return nil, fmt.Errorf("start a runner: %w", err)
	}
	for _, theirs := range []int{0, 3, 5} {
		_ = files[theirs].Close() // the process has its own
	}
	spare(started.PID())
	p := &process{last: last, sandbox: started, in: files[1], out: files[2], tail: follow(files[4]), cpu: spec.Limits.CPU}
	p.lower()
	return p, nil
}

// spent is the processor time of a process that has ended.
func (p *process) spent() time.Duration {
	state := p.sandbox.Wait()
	if state == nil {
		return 0
	}
	return state.UserTime() + state.SystemTime()
}

// spare has the kernel end a runner, rather than anything else here, where memory is short.
func spare(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0) // it may be gone already
}

func (p *process) ready(setup wire.Program, module []byte) (*wire.Failure, error) {
	if err := wire.WriteJSON(p.in, wire.Setup, setup); err != nil {
		return nil, err
	}
	if !setup.Script {
		if err := wire.Write(p.in, wire.Module, module); err != nil {
			return nil, err
		}
	}
	kind, payload, err := wire.Read(p.out, wire.MaxFrame)
	if err != nil {
		return nil, err
	}
	var end wire.End
	if err := json.Unmarshal(payload, &end); err != nil || kind != wire.Ready {
		return nil, fmt.Errorf("a runner began with %q", kind)
	}
	return end.Failure, nil
}

// end ends the process and waits until nothing is left of it.
func (p *process) end() {
	p.sandbox.Kill()
	p.sandbox.Wait()
	_, _ = p.in.Close(), p.out.Close() // nothing is on its way any more
	<-p.tail.done
}

// crashes are the words with which Go's runtime ends where the kernel gives it no more
// memory: which ones depends on what asked for some.
var crashes = []string{"out of memory", "cannot allocate memory", "segmentation violation", "pthread_create failed"}

// died says why a process is gone, or may as well be. The failure is the code's own
// fault; the error is ctx's where that has ended.
func (p *process) died(ctx context.Context, err error) (*wire.Failure, error) {
	p.sandbox.Kill()
	state := p.sandbox.Wait()
	<-p.tail.done
	text := string(p.tail.text)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case slices.ContainsFunc(crashes, func(sign string) bool { return strings.Contains(text, sign) }):
		return &wire.Failure{Reason: wire.Memory}, nil
	case p.cpu > 0 && state != nil && state.UserTime()+state.SystemTime() >= p.cpu:
		return &wire.Failure{Reason: wire.Deadline}, nil
	}
	return nil, fmt.Errorf("the runner ended (%s): %w: %.300q", state, err, bytes.TrimSpace(p.tail.text))
}

// run runs a task. The process is good for another run if it answers so.
func (p *process) run(ctx context.Context, task wire.Task, host Host) (end wire.End, good bool, err error) {
	p.runs++
	life, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(life, func() { p.kill(life) })
	calls := &calls{process: p, host: host, ctx: life, turns: make(chan struct{}, together)}
	defer calls.running.Wait() // after cancel
	defer cancel()
	p.writes.Lock()
	err = wire.WriteJSON(p.in, wire.Run, task)
	p.writes.Unlock()
	if err == nil {
		end, err = p.listen(calls)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx) // it is about to be killed
	}
	if err != nil {
		failure, err := p.died(ctx, err)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) { // it had the time, and went on
			failure, err = &wire.Failure{Reason: wire.Deadline}, nil
		}
		return wire.End{Failure: failure}, false, err
	}
	return end, p.runs < maxRuns && calls.open() == 0 && reusable(end.Failure), nil
}

// reusable tells whether a process goes on after a failure: not where something ran
// against a wall.
func reusable(failure *wire.Failure) bool {
	return failure == nil || failure.Reason == wire.Thrown || failure.Reason == wire.Syntax || failure.Reason == wire.Exit
}

// kill ends the process: at once if the run was cancelled, and otherwise when it is late.
func (p *process) kill(life context.Context) {
	if !errors.Is(life.Err(), context.DeadlineExceeded) {
		p.sandbox.Kill()
		return
	}
	late := time.NewTimer(killAfter)
	defer late.Stop()
	select {
	case <-late.C:
		p.sandbox.Kill()
	case <-p.sandbox.Done():
	}
}

// listen hands on what the process says until the run has ended.
func (p *process) listen(calls *calls) (end wire.End, err error) {
	said := 0
	for {
		kind, payload, err := wire.Read(p.out, wire.MaxFrame)
		if err != nil {
			return end, err
		}
		if said += len(payload); said > maxSaid && kind != wire.Ended {
			return end, errors.New("it said more than a run can")
		}
		switch kind {
		case wire.Output:
			if len(payload) > 0 {
				calls.host.Output(stream(payload[0]), payload[1:])
			}
		case wire.Progress:
			var step wire.Step
			if err = json.Unmarshal(payload, &step); err == nil {
				calls.host.Progress(step.Percent, step.Message)
			}
		case wire.Fetch:
			var request wire.Request
			if err = json.Unmarshal(payload, &request); err == nil {
				err = calls.make(request)
			}
		case wire.Ended:
			return end, json.Unmarshal(payload, &end)
		default:
			err = fmt.Errorf("it sent %q", kind)
		}
		if err != nil {
			return end, err
		}
	}
}

// stream is the stream of output that a runner names by its first letter.
func stream(letter byte) executor.Stream {
	if letter == executor.Log[0] {
		return executor.Log
	}
	return executor.Stderr
}

// calls are the calls that a run makes.
type calls struct {
	process *process
	host    Host
	ctx     context.Context // of the run
	turns   chan struct{}
	running sync.WaitGroup

	mu          sync.Mutex
	made, ended int
}

// make begins a call; its answer goes to the process.
func (c *calls) make(request wire.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made++; c.made > guest.MaxFetches {
		return errors.New("it asked for more calls than a run can")
	}
	c.running.Go(func() {
		select {
		case c.turns <- struct{}{}:
			defer func() { <-c.turns }()
		case <-c.ctx.Done():
			return
		}
		answer := c.host.Fetch(c.ctx, request)
		answer.ID = request.ID
		c.process.writes.Lock()
		defer c.process.writes.Unlock()
		if c.ctx.Err() == nil && wire.WriteJSON(c.process.in, wire.Fetched, answer) == nil {
			c.mu.Lock()
			c.ended++
			c.mu.Unlock()
		}
	})
	return nil
}

// open is how many calls have not been answered.
func (c *calls) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made - c.ended
}

var _ io.Closer = (*Pool)(nil)
