package guest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// quickjs is QuickJS-ng as a WebAssembly module: quickjs.wasm of the npm package
// quickjs-wasi 3.6.2; quickjs.LICENSE is its licence.
//
//go:embed quickjs.wasm
var quickjs []byte

//go:embed prelude.js
var prelude string

// The flags of qjs_eval, and the stack that QuickJS may use of its 1 MiB.
const (
	asScript    = 0
	asModule    = 1 << 0
	compileOnly = 1 << 5
	maxStack    = 512 << 10
)

// scriptName is what a script is called in messages and stacks.
const scriptName = "job.js"

// engine is the compiled QuickJS, and the memory of a machine that has evaluated the
// prelude. Each run gets a new instance with a copy of that memory: making one takes a
// millisecond, and nothing of one run reaches the next.
type engine struct {
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	image    image
	run      *script // the one under way
	memory   uint64
}

// image is the memory of the machine, as far as it differs from that of a new instance.
type image struct {
	size, stack, runtime, context uint32
	pages                         map[uint32][]byte // by offset
	hooks                         hooks
}

// hooks are values in the machine's memory: what the prelude answers, and eight bytes to
// hand out lengths in, since a machine without memory could give none.
type hooks struct{ start, answered, fired, length uint32 }

// newEngine compiles QuickJS and makes the image.
func newEngine(ctx context.Context, cache wazero.CompilationCache, memory uint64) (*engine, error) {
	config := wazero.NewRuntimeConfigCompiler().WithMemoryLimitPages(uint32(2 * memory / pageSize))
	if cache != nil {
		config = config.WithCompilationCache(cache)
	}
	e := &engine{runtime: wazero.NewRuntimeWithConfig(ctx, config), memory: memory}
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, e.runtime); err != nil {
		return nil, err
	}
	if err := e.provideHost(ctx); err != nil {
		return nil, err
	}
	var err error
	if e.compiled, err = e.runtime.CompileModule(ctx, quickjs); err != nil {
		return nil, err
	}
	return e, e.makeImage(ctx)
}

// makeImage runs the prelude in a new machine and keeps what that changed.
func (e *engine) makeImage(ctx context.Context) error {
	s, err := e.instance(ctx, &script{})
	if err != nil {
		return err
	}
	defer s.close(ctx)
	fresh, _ := s.module.Memory().Read(0, s.module.Memory().Size())
	fresh = bytes.Clone(fresh)
	if err := s.prepare(); err != nil {
		return err
	}
	after, _ := s.module.Memory().Read(0, s.module.Memory().Size())
	e.image.size, e.image.pages = uint32(len(after)), map[uint32][]byte{}
	for at := 0; at < len(after); at += 4096 {
		before := make([]byte, 4096)
		if at < len(fresh) {
			before = fresh[at : at+4096]
		}
		if page := after[at : at+4096]; !bytes.Equal(page, before) {
			e.image.pages[uint32(at)] = bytes.Clone(page)
		}
	}
	e.image.stack = uint32(s.module.ExportedGlobal("__stack_pointer").Get())
	e.image.runtime, e.image.context = s.must("qjs_get_runtime_ptr"), s.must("qjs_get_context_ptr")
	e.image.hooks = s.hooks
	return s.broken
}

// instance is a new machine without the image.
func (e *engine) instance(ctx context.Context, s *script) (*script, error) {
	s.meter = &meter{limit: e.memory}
	e.run = s
	s.ctx = ctx
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions().
		WithSysWalltime().WithSysNanotime().WithSysNanosleep().WithRandSource(rand.Reader)
	var err error
	s.module, err = e.runtime.InstantiateModule(s.meter.on(ctx), e.compiled, config)
	if err != nil {
		return nil, fmt.Errorf("make a machine: %w", err)
	}
	return s, nil
}

// restore is a new machine with the image.
func (e *engine) restore(ctx context.Context, s *script) (*script, error) {
	s, err := e.instance(ctx, s)
	if err != nil {
		return nil, err
	}
	memory := s.module.Memory()
	if more := int64(e.image.size) - int64(memory.Size()); more > 0 {
		if _, ok := memory.Grow(uint32(more / pageSize)); !ok {
			s.close(ctx)
			return nil, errNoMemory
		}
	}
	for at, page := range e.image.pages {
		memory.Write(at, page)
	}
	s.module.ExportedGlobal("__stack_pointer").(api.MutableGlobal).Set(uint64(e.image.stack))
	s.hooks = e.image.hooks
	s.must("qjs_set_runtime_and_context", e.image.runtime, e.image.context)
	s.must("qjs_set_max_stack_size", maxStack)
	s.must("qjs_set_interrupt_handler", 1)
	return s, s.broken
}

// prepare makes a runtime and a context, and evaluates the prelude.
func (s *script) prepare() error {
	s.must("_initialize")
	if s.must("qjs_init") != 0 {
		return fmt.Errorf("QuickJS does not start: %w", s.broken)
	}
	s.must("qjs_set_max_stack_size", maxStack)
	host := s.must("qjs_new_object")
	for name := range hostFunctions {
		at, size := s.text(name)
		s.must("qjs_set_prop_string", host, at, s.must("qjs_new_host_function", at, size, 0))
	}
	source, size := s.text(prelude)
	name, _ := s.text("prelude.js")
	made := s.must("qjs_eval", source, size, name, asScript)
	if s.must("qjs_is_exception", made) != 0 {
		return fmt.Errorf("the prelude cannot be read: %v", s.exception())
	}
	answer := s.call(made, host)
	if s.must("qjs_is_exception", answer) != 0 {
		return fmt.Errorf("the prelude failed: %v", s.exception())
	}
	for name, hook := range map[string]*uint32{"start": &s.hooks.start, "answered": &s.hooks.answered, "fired": &s.hooks.fired} {
		at, _ := s.text(name)
		*hook = s.must("qjs_get_prop_string", answer, at)
	}
	s.hooks.length = s.must("wasm_malloc", 8)
	s.must("qjs_run_gc")
	return s.broken
}

// must calls a function of the machine and answers its first result. After a failure,
// which broken keeps, it does nothing more.
func (s *script) must(name string, args ...uint32) uint32 {
	if s.broken != nil {
		return 0
	}
	function := s.module.ExportedFunction(name)
	stack := make([]uint64, max(len(args), 1))
	for i, arg := range args {
		stack[i] = uint64(arg)
	}
	if err := function.CallWithStack(s.ctx, stack); err != nil {
		s.broken = err
		return 0
	}
	if len(function.Definition().ResultTypes()) == 0 {
		return 0
	}
	return uint32(stack[0])
}

// text copies a text into the machine; nobody frees it.
func (s *script) text(text string) (at, size uint32) {
	size = uint32(len(text))
	at = s.must("wasm_malloc", size+1)
	if at == 0 || !s.module.Memory().WriteString(at, text) || !s.module.Memory().WriteByte(at+size, 0) {
		s.lacking()
		return 0, 0
	}
	return at, size
}

// value is a text as a value of the machine.
func (s *script) value(text string) uint32 {
	at, size := s.text(text)
	made := s.must("qjs_new_string", at, size)
	s.must("wasm_free", at)
	return made
}

// call calls a function of the machine with values of it.
func (s *script) call(function uint32, args ...uint32) uint32 {
	list := s.must("wasm_malloc", uint32(4*len(args)+4))
	if list == 0 {
		s.lacking()
		return 0
	}
	for i, arg := range args {
		s.module.Memory().WriteUint32Le(list+uint32(4*i), arg)
	}
	return s.must("qjs_call", function, s.must("qjs_get_undefined"), uint32(len(args)), list)
}

// lacking notes that the machine has no memory for what it has to do next.
func (s *script) lacking() {
	if s.broken == nil {
		s.broken = errNoMemory
	}
}

// read is a value as text, at most limit bytes of it. The memory belongs to the machine.
func (s *script) read(value uint32, limit uint32) []byte {
	at := s.must("qjs_get_string_len", value, s.hooks.length)
	if at == 0 {
		return nil
	}
	head, _ := s.module.Memory().Read(s.hooks.length, 4)
	size := binary.LittleEndian.Uint32(head)
	text, _ := s.module.Memory().Read(at, min(size, limit))
	text = bytes.Clone(text)
	s.must("qjs_free_cstring", at)
	return text
}

// property is a property of a value, as text.
func (s *script) property(value uint32, name string) string {
	at, _ := s.text(name)
	return string(s.read(s.must("qjs_get_prop_string", value, at), 16<<10))
}

// EngineKey names the engine of scripts by its content.
func EngineKey() string {
	sum := sha256.Sum256(quickjs)
	return hex.EncodeToString(sum[:])
}
