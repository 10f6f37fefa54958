package worker

import "context"

// slots bounds how many executions a worker holds at once. A slot is taken
// before the claim and given back when the outcome is accepted, so that a
// database that is away slows the worker down instead of filling its memory.
//
// A few are kept for tenants of which nothing runs here: the tenants that came
// first may hold the others for hours.
type slots struct{ open, kept chan struct{} }

func newSlots(n int) *slots {
	s := &slots{kept: make(chan struct{}, keep(n))}
	s.open = make(chan struct{}, n-cap(s.kept))
	for range n {
		s.give()
	}
	return s
}

// keep is how many of n slots are kept: a sixteenth, at most 16, and of few
// slots none, where one would be more than an eighth.
func keep(n int) int {
	if n < 8 {
		return 0
	}
	return min(max(n/16, 1), 16)
}

// take takes up to want open slots: it waits for the first until ctx is done,
// and takes of the others what is free at once. It answers how many it took.
func (s *slots) take(ctx context.Context, want int) (taken int) {
	select {
	case <-s.open:
		taken = 1
	case <-ctx.Done():
		return 0
	}
	for taken < want && s.takeNow(false) {
		taken++
	}
	return taken
}

// takeNow takes a slot if one is free: an open one, or, if it may, a kept one.
func (s *slots) takeNow(kept bool) bool {
	select {
	case <-s.open:
		return true
	default:
	}
	if !kept {
		return false
	}
	select {
	case <-s.kept:
		return true
	default:
		return false
	}
}

// free is how many open and kept slots are free now.
func (s *slots) free() (open, kept int) { return len(s.open), len(s.kept) }

// all is how many slots there are.
func (s *slots) all() int { return cap(s.open) + cap(s.kept) }

// taken is how many slots are held.
func (s *slots) taken() int { return s.all() - len(s.open) - len(s.kept) }

// give gives a slot back; those that are kept are full first.
func (s *slots) give() {
	select {
	case s.kept <- struct{}{}:
	default:
		s.open <- struct{}{}
	}
}
