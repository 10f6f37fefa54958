package guest

import (
	"context"
	"syscall"

	"github.com/tetratelabs/wazero/experimental"
)

const pageSize = 64 << 10

// meter gives a run its linear memory, and knows how much it had and whether it
// wanted more. All that it may have is reserved at once, and only what is touched takes
// memory: growing moves nothing, and the end of a run gives everything back at once.
type meter struct {
	limit   uint64
	peak    uint64
	refused bool
}

// on is ctx for making instances whose memory the meter gives.
func (m *meter) on(ctx context.Context) context.Context {
	return experimental.WithMemoryAllocator(ctx, experimental.MemoryAllocatorFunc(func(_, most uint64) experimental.LinearMemory {
		size := min(most, m.limit)
		all, err := syscall.Mmap(-1, 0, int(max(size, pageSize)), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			m.refused = true
			return &linear{meter: m}
		}
		return &linear{meter: m, all: all[:size]}
	}))
}

// linear is one memory.
type linear struct {
	meter *meter
	all   []byte
}

// Reallocate is nil where the run may not have so much.
func (l *linear) Reallocate(size uint64) []byte {
	if size > uint64(len(l.all)) {
		l.meter.refused = true
		return nil
	}
	l.meter.peak = max(l.meter.peak, size)
	return l.all[:size]
}

// Free gives the memory back.
func (l *linear) Free() {
	if cap(l.all) > 0 {
		_ = syscall.Munmap(l.all[:cap(l.all)]) // it was mapped with this length
		l.all = nil
	}
}
