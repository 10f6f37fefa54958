package guest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/runner/wire"
)

// module is a tenant's WebAssembly module, compiled.
type module struct {
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	memory   uint64
}

// newModule compiles a module. The failure says what is wrong with it.
func newModule(ctx context.Context, cache wazero.CompilationCache, code []byte, memory uint64) (*module, *wire.Failure, error) {
	config := wazero.NewRuntimeConfigCompiler().WithMemoryLimitPages(uint32(memory / pageSize))
	if cache != nil {
		config = config.WithCompilationCache(cache)
	}
	m := &module{runtime: wazero.NewRuntimeWithConfig(ctx, config), memory: memory}
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, m.runtime); err != nil {
		return nil, nil, err
	}
	var err error
	if m.compiled, err = m.runtime.CompileModule(ctx, code); err != nil {
		return nil, &wire.Failure{Reason: wire.Syntax, Message: firstLine(err)}, nil
	}
	if problem := m.unfit(); problem != "" {
		return nil, &wire.Failure{Reason: wire.Syntax, Message: problem}, nil
	}
	return m, nil, nil
}

// unfit says what the module asks for or lacks, so that it cannot be run; empty is
// nothing.
func (m *module) unfit() string {
	if _, ok := m.compiled.ExportedFunctions()["_start"]; !ok {
		return "it exports no function _start; build a WASI command (wasip1), not a library"
	}
	for _, function := range m.compiled.ImportedFunctions() {
		from, name, _ := function.Import()
		if from != wasi_snapshot_preview1.ModuleName {
			return fmt.Sprintf("it imports %.60s.%.60s; only wasi_snapshot_preview1 is there", from, name)
		}
		offered := m.runtime.Module(from).ExportedFunctionDefinitions()[name]
		if offered == nil {
			return fmt.Sprintf("it imports %.60s.%.60s, which WASI preview 1 does not have", from, name)
		}
	}
	if len(m.compiled.ImportedMemories()) > 0 {
		return "it imports a memory; it has to define its own"
	}
	return ""
}

// execute runs the module once: standard input is what it is told, standard output its
// result, standard error its log. It sees no file and no environment.
func (m *module) execute(ctx context.Context, p *parent, task wire.Task) (end wire.End) {
	meter := &meter{limit: m.memory}
	defer func() {
		if cause := recover(); cause != nil { // the memory that it begins with was refused
			end = wire.End{Failure: &wire.Failure{Reason: wire.Memory}}
		}
		end.Memory = meter.peak
	}()
	result := &bounded{limit: executor.MaxResult + 1}
	config := wazero.NewModuleConfig().WithName("").WithArgs("function").
		WithStdin(bytes.NewReader(task.Input)).WithStdout(result).WithStderr(said{p}).
		WithSysWalltime().WithSysNanotime().WithSysNanosleep().WithRandSource(rand.Reader)
	instance, err := m.runtime.InstantiateModule(meter.on(ctx), m.compiled, config)
	if instance != nil {
		_ = instance.Close(ctx) // frees its memory
	}
	var exit *sys.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() != 0:
		return wire.End{Failure: &wire.Failure{Reason: wire.Exit, Code: int(exit.ExitCode())}}
	case err != nil && exit == nil && meter.refused:
		return wire.End{Failure: &wire.Failure{Reason: wire.Memory}}
	case err != nil && exit == nil:
		message, stack, _ := strings.Cut(err.Error(), "\n")
		message = strings.TrimPrefix(message, "module[] function[_start] failed: ") // which is all that was called
		return wire.End{Failure: &wire.Failure{Reason: wire.Trap, Message: message, Stack: stack}}
	}
	return result.end()
}

// bounded keeps the first bytes of what is written, and counts the rest.
type bounded struct {
	kept  []byte
	size  int
	limit int
}

// Write never fails: a module that writes more goes on.
func (b *bounded) Write(text []byte) (int, error) {
	b.size += len(text)
	b.kept = append(b.kept, text[:min(len(text), b.limit-len(b.kept))]...)
	return len(text), nil
}

// end is the end of a run that succeeded with this output.
func (b *bounded) end() wire.End {
	text := bytes.TrimSpace(b.kept)
	switch {
	case len(text) == 0:
		return wire.End{}
	case b.size >= b.limit:
		return wire.End{Result: executor.TooLarge()}
	case !json.Valid(text):
		return wire.End{Failure: &wire.Failure{Reason: wire.Thrown, Message: "standard output is not JSON: write the result there and all other text to standard error"}}
	}
	return wire.End{Result: text}
}

// said is the log of a run.
type said struct{ to *parent }

// Write hands on a piece of the log.
func (s said) Write(text []byte) (int, error) {
	s.to.output(executor.Stderr, text)
	return len(text), nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
