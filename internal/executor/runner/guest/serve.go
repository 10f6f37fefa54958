// Package guest is the inside of a runner process: it compiles and runs tenants' code.
//
// It owns the engine (QuickJS for scripts, WebAssembly with WASI for modules), what the
// code finds around it, and the order of frames on this side of the pipe. It trusts
// nothing in here to end: the worker kills the process when a run does not. Each run
// gets a new instance with memory of its own, so nothing of one run reaches the next.
package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"syscall"

	"github.com/tetratelabs/wazero"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/runner/wire"
)

// MaxFetches is how many calls a run may make.
const MaxFetches = 50

// The other bounds of a run; the worker has bounds of its own.
const (
	maxOutput  = 2 << 20 // bytes of output, beyond which it is dropped
	maxRequest = 512 << 10
	maxModule  = 64 << 20 // a frame from the worker, which checked it
)

// program runs tasks, one after the other.
type program interface {
	execute(ctx context.Context, p *parent, task wire.Task) wire.End
}

// parent is the worker, at the other end of the pipe.
type parent struct {
	mu      sync.Mutex
	out     io.Writer
	said    int // bytes of output of this run
	answers chan []byte
	tasks   chan wire.Task
}

// Serve does what the worker at the other end asks, until it closes the pipe.
func Serve(in io.Reader, out io.Writer) error {
	ctx := context.Background()
	in = bufio.NewReader(in)
	var setup wire.Program
	if err := readJSON(in, wire.Setup, &setup); err != nil {
		return err
	}
	p := &parent{out: out, answers: make(chan []byte, MaxFetches), tasks: make(chan wire.Task, 1)}
	one, failure, err := load(ctx, in, setup)
	if err != nil {
		return err
	}
	p.send(wire.Ready, wire.End{Failure: failure})
	if setup.Compile || failure != nil {
		return nil
	}
	go p.listen(in)
	for task := range p.tasks {
		p.begin()
		before := cpu()
		end := one.execute(ctx, p, task)
		end.CPU = cpu() - before
		p.send(wire.Ended, end)
	}
	return nil
}

// begin forgets the run before: no answer to a call of one reaches another. All that
// the worker sent before this task has been taken from the pipe.
func (p *parent) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = 0
	for len(p.answers) > 0 {
		<-p.answers
	}
}

// load makes the program; the failure says why the tenant's module cannot be one.
func load(ctx context.Context, in io.Reader, setup wire.Program) (one program, failure *wire.Failure, err error) {
	cache, err := openCache(setup.CacheDir)
	if err != nil {
		return nil, nil, err
	}
	if setup.Script {
		one, err = newEngine(ctx, cache, setup.Memory)
		return one, nil, err
	}
	kind, code, err := wire.Read(in, maxModule)
	if err != nil || kind != wire.Module {
		return nil, nil, fmt.Errorf("read the module: %w", err)
	}
	made, failure, err := newModule(ctx, cache, code, setup.Memory)
	return made, failure, err
}

// openCache is the cache of compiled code in a folder; nil where there is none.
func openCache(dir string) (wazero.CompilationCache, error) {
	if dir == "" {
		return nil, nil
	}
	return wazero.NewCompilationCacheWithDir(dir)
}

func readJSON(in io.Reader, want wire.Kind, into any) error {
	kind, payload, err := wire.Read(in, wire.MaxFrame)
	if err != nil {
		return err
	}
	if kind != want {
		return fmt.Errorf("the worker sent %q instead of %q", kind, want)
	}
	return json.Unmarshal(payload, into)
}

// listen hands on what the worker sends until it closes the pipe.
func (p *parent) listen(in io.Reader) {
	defer close(p.tasks)
	defer close(p.answers)
	for {
		kind, payload, err := wire.Read(in, wire.MaxFrame)
		if err != nil {
			return
		}
		switch kind {
		case wire.Fetched:
			p.answers <- payload
		case wire.Run:
			var task wire.Task
			if json.Unmarshal(payload, &task) != nil {
				return
			}
			p.tasks <- task
		}
	}
}

// send sends a value. Where the worker is gone the pipe breaks, and listen ends.
func (p *parent) send(kind wire.Kind, value any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = wire.WriteJSON(p.out, kind, value)
}

// output hands on output, as far as a run may have some.
func (p *parent) output(stream executor.Stream, text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.said += len(text); p.said > maxOutput {
		return
	}
	_ = wire.Write(p.out, wire.Output, append([]byte{stream[0]}, text...))
}

// cpu is the processor time of this process, in nanoseconds.
func cpu() int64 {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return used.Utime.Nano() + used.Stime.Nano()
}
