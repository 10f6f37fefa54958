package guest

import (
	"context"

	"github.com/tetratelabs/wazero/api"
)

// provideHost makes the functions that QuickJS imports.
func (e *engine) provideHost(ctx context.Context) error {
	i32 := func(n int) []api.ValueType {
		types := make([]api.ValueType, n)
		for i := range types {
			types[i] = api.ValueTypeI32
		}
		return types
	}
	builder := e.runtime.NewHostModuleBuilder("env")
	add := func(name string, params, results int, fn func(stack []uint64)) {
		builder.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) { fn(stack) }), i32(params), i32(results)).Export(name)
	}
	none := func(stack []uint64) { stack[0] = 0 }
	add("host_get_timezone_offset", 2, 1, none) // UTC
	add("host_module_normalize", 2, 1, none)
	add("host_module_load", 2, 1, none)
	add("host_promise_rejection", 3, 0, func([]uint64) {})
	add("host_interrupt", 0, 1, func(stack []uint64) {
		if stack[0] = 0; e.run.interrupted() {
			stack[0] = 1
		}
	})
	add("host_call", 5, 1, func(stack []uint64) { stack[0] = uint64(e.run.serve(stack)) })
	_, err := builder.Instantiate(ctx)
	return err
}

// serve calls the host function that the machine names: (name, its length, this, the
// number of arguments, the arguments).
func (s *script) serve(stack []uint64) uint32 {
	name, _ := s.module.Memory().Read(uint32(stack[0]), uint32(stack[1]))
	function := hostFunctions[string(name)]
	if function == nil || s.broken != nil {
		return 0
	}
	args := make([]uint32, 3)
	for i := range min(len(args), int(int32(stack[3]))) {
		args[i], _ = s.module.Memory().ReadUint32Le(uint32(stack[4]) + uint32(4*i))
	}
	return function(s, args)
}
