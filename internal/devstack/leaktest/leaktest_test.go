package leaktest

import (
	"errors"
	"slices"
	"testing"
	"time"
)

type run func() int

func (r run) Run() int { return r() }

// The subtests share the list of stops, so nothing here is parallel.
func TestMainStopsThenLooksForLeaks(t *testing.T) {
	quit := make(chan struct{})
	leak := func() int {
		go func() { <-quit }()
		return 0
	}
	for _, tc := range []struct {
		name string
		run  run
		stop func() error
		want int
	}{
		{"clean", func() int { return 0 }, nil, 0},
		{"failed tests keep their code", func() int { return 3 }, nil, 3},
		{"a stop that fails", func() int { return 0 }, func() error { return errors.New("no") }, 1},
		{"a goroutine that a stop ends", leak, func() error { quit <- struct{}{}; return nil }, 0},
		{"a goroutine that stays", leak, nil, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.stop != nil {
				AtEnd(tc.stop)
			}
			if got := within(time.Second, tc.run); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
	close(quit)
}

func TestMainStopsInReverse(t *testing.T) {
	var got []int
	for i := range 3 {
		AtEnd(func() error { got = append(got, i); return nil })
	}
	Main(run(func() int { return 0 }))
	if !slices.Equal(got, []int{2, 1, 0}) {
		t.Errorf("order %v", got)
	}
	Main(run(func() int { return 0 }))
	if len(got) != 3 {
		t.Error("stopped twice")
	}
}
