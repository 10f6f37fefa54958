// Package wasmtest makes WebAssembly modules for tests: some that do their work, and some
// that would take all time or all memory.
package wasmtest

import (
	"maps"
	"slices"
)

// module is what the modules here differ in.
type module struct {
	imports []string // of WASI, each of the type that its name has in types
	funcs   [][]byte // the code of functions without parameters and results, _start last
	pages   uint32   // of memory at the start
	table   uint32   // entries
	data    string   // at 1024
}

// The instructions that are used here.
const (
	unreachable = 0x00
	loop        = 0x03
	br          = 0x0c
	call        = 0x10
	drop        = 0x1a
	load        = 0x28
	store       = 0x36
	grow        = 0x40
	number      = 0x41 // i32.const
	end         = 0x0b
	i32         = 0x7f
	none        = 0x40 // the type of a block
)

// types are the parameters of the functions of WASI; all but proc_exit answer a number.
var types = map[string]int{"fd_read": 4, "fd_write": 4, "proc_exit": 1}

func unsigned(n uint32) (out []byte) {
	for ; n >= 0x80; n >>= 7 {
		out = append(out, byte(n)|0x80)
	}
	return append(out, byte(n))
}

// constant pushes a number.
func constant(n int32) []byte {
	out := []byte{number}
	for {
		b := byte(n & 0x7f)
		n >>= 7
		if n == 0 && b&0x40 == 0 || n == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}

func sized(parts ...[]byte) []byte {
	body := slices.Concat(parts...)
	return append(unsigned(uint32(len(body))), body...)
}

func text(s string) []byte { return sized([]byte(s)) }

func section(id byte, items ...[]byte) []byte {
	body := append(unsigned(uint32(len(items))), slices.Concat(items...)...)
	return append([]byte{id}, sized(body)...)
}

// encode writes the module in the binary form.
func (m module) encode() []byte {
	names := slices.Sorted(maps.Keys(types))
	kinds := [][]byte{{0x60, 0, 0}} // no parameters, no results
	for _, name := range names {
		kind := slices.Concat([]byte{0x60, byte(types[name])}, slices.Repeat([]byte{i32}, types[name]))
		if name == "proc_exit" {
			kind = append(kind, 0)
		} else {
			kind = append(kind, 1, i32)
		}
		kinds = append(kinds, kind)
	}
	var imports, funcs, codes [][]byte
	for _, name := range m.imports {
		imports = append(imports, slices.Concat(text("wasi_snapshot_preview1"), text(name), []byte{0, byte(slices.Index(names, name) + 1)}))
	}
	for _, code := range m.funcs {
		funcs = append(funcs, []byte{0})
		codes = append(codes, sized([]byte{0}, code, []byte{end}))
	}
	out := slices.Concat([]byte("\x00asm\x01\x00\x00\x00"), section(1, kinds...), section(2, imports...), section(3, funcs...))
	if m.table > 0 {
		out = append(out, section(4, append([]byte{0x70, 0}, unsigned(m.table)...))...)
	}
	start := append(append(text("_start"), 0), unsigned(uint32(len(m.imports)+len(m.funcs)-1))...)
	out = slices.Concat(out, section(5, append([]byte{0}, unsigned(m.pages)...)), section(7, append(text("memory"), 2, 0), start), section(10, codes...))
	if m.data != "" {
		out = append(out, section(11, slices.Concat([]byte{0}, constant(1024), []byte{end}, text(m.data)))...)
	}
	return out
}

func calls(function byte, args ...int32) (code []byte) {
	for _, arg := range args {
		code = append(code, constant(arg)...)
	}
	return append(code, call, function)
}

func set(at, value int32) []byte {
	return slices.Concat(constant(at), constant(value), []byte{store, 2, 0})
}

// writes writes a text of the memory to a file descriptor.
func writes(function byte, to, at, size int32) []byte {
	return slices.Concat(set(0, at), set(4, size), calls(function, to, 0, 1, 8), []byte{drop})
}

// Echo answers what it is told, and says "hello" on standard error.
func Echo() []byte {
	return module{
		imports: []string{"fd_read", "fd_write"}, pages: 2, data: "hello\n",
		funcs: [][]byte{slices.Concat(
			writes(1, 2, 1024, 6),
			set(0, 2048), set(4, 60000), calls(0, 0, 0, 1, 8), []byte{drop},
			constant(4), constant(8), []byte{load, 2, 0, store, 2, 0},
			calls(1, 1, 0, 1, 8), []byte{drop},
		)},
	}.encode()
}

// Says writes a text as its result.
func Says(result string) []byte {
	return module{imports: []string{"fd_write"}, pages: 1, data: result, funcs: [][]byte{writes(0, 1, 1024, int32(len(result)))}}.encode()
}

// Exits ends with a code.
func Exits(code int32) []byte {
	return module{imports: []string{"proc_exit"}, pages: 1, funcs: [][]byte{calls(0, code)}}.encode()
}

// Traps reaches what cannot be reached.
func Traps() []byte { return module{pages: 1, funcs: [][]byte{{unreachable}}}.encode() }

// Without lacks a function _start.
func Without() []byte { return []byte("\x00asm\x01\x00\x00\x00") }

// Component is a component, of the kind that WASI preview 2 has.
func Component() []byte { return []byte("\x00asm\x0d\x00\x01\x00") }

// Loops never ends.
func Loops() []byte { return module{pages: 1, funcs: [][]byte{{loop, none, br, 0, end}}}.encode() }

// Doubles has no loop: each of its functions calls the next twice.
func Doubles() []byte {
	m := module{pages: 1, funcs: [][]byte{{}}}
	for i := range 45 {
		m.funcs = append(m.funcs, []byte{call, byte(i), call, byte(i)})
	}
	return m.encode()
}

// Fills asks for all of the memory, and writes to it for ever.
func Fills() []byte {
	fill := slices.Concat(constant(0), constant(1), constant(64<<20), []byte{0xfc, 0x0b, 0})
	return module{pages: 1, funcs: [][]byte{slices.Concat(constant(1100), []byte{grow, 0, drop, loop, none}, fill, []byte{br, 0, end})}}.encode()
}

// Wide wants a hundred million entries of a table.
func Wide() []byte { return module{pages: 1, table: 100_000_000, funcs: [][]byte{{}}}.encode() }

// Large begins with 8,000 pages of memory.
func Large() []byte { return module{pages: 8000, funcs: [][]byte{{}}}.encode() }

// Grows asks for more memory than a run may have, and traps without it.
func Grows() []byte {
	return module{pages: 1, funcs: [][]byte{{loop, none, number, 16, grow, 0, number, 0, 0x4e, 0x0d, 0, unreachable, end}}}.encode()
}

// Tangled takes a compiler long: many functions that are each one long chain of blocks.
func Tangled() []byte {
	m := module{pages: 1}
	var code []byte
	const depth = 3000
	for range depth {
		code = append(code, 0x02, none) // block
	}
	for i := range depth {
		code = append(code, slices.Concat(constant(int32(i)), []byte{load, 2, 0, 0x0d, 0}, []byte{end})...) // br_if 0
		code = append(code, slices.Concat(constant(4), constant(int32(i)), []byte{load, 2, 0, store, 2, 0})...)
	}
	for range 60 {
		m.funcs = append(m.funcs, code)
	}
	return m.encode()
}
