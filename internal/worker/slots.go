package worker

import "context"

// slots bounds how many executions a worker holds at once. A slot is taken
// before the claim and given back when the outcome is accepted, so that a
// database that is away slows the worker down instead of filling its memory.
type slots struct{ free chan struct{} }

func newSlots(n int) *slots {
	s := &slots{free: make(chan struct{}, n)}
	for range n {
		s.free <- struct{}{}
	}
	return s
}

// take takes up to want slots: it waits for the first until ctx is done, and
// takes of the others what is free at once. It answers how many it took.
func (s *slots) take(ctx context.Context, want int) (taken int) {
	select {
	case <-s.free:
		taken = 1
	case <-ctx.Done():
		return 0
	}
	for taken < want {
		select {
		case <-s.free:
			taken++
		default:
			return taken
		}
	}
	return taken
}

// idle is how many are free now.
func (s *slots) idle() int { return len(s.free) }

// taken is how many slots are held.
func (s *slots) taken() int { return cap(s.free) - len(s.free) }

func (s *slots) give() { s.free <- struct{}{} }
