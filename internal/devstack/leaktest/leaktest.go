// Package leaktest is the end of a package's tests: it stops what they shared
// and then looks for goroutines that they left running.
//
// It owns the order of the two and the one list of goroutines that are
// tolerated. It refuses to start anything. TestMain of every package with
// goroutines calls Main, directly or through pgtest and redistest, which
// register what they started:
//
//	func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }
package leaktest

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"go.uber.org/goleak"
)

// runner is *testing.M, or a test of this package in its place.
type runner interface{ Run() int }

// atEnd is what the package's tests share and must be stopped. It is global
// because TestMain is the only place that sees all tests of a package, and what
// they share is started by whichever comes first.
var atEnd struct {
	sync.Mutex
	stops []func() error
}

// AtEnd registers a stop for the end of the package's tests. The last
// registered is stopped first.
func AtEnd(stop func() error) {
	atEnd.Lock()
	defer atEnd.Unlock()
	atEnd.stops = append(atEnd.stops, stop)
}

// patience is how long a goroutine may take to end once everything was stopped.
// Those of connections end a moment after they were closed, and a machine that
// does other things makes that a long one.
const patience = 20 * time.Second

// Main runs the tests, stops what they shared and fails if a goroutine is left.
// It returns the exit code.
func Main(m runner) int { return within(patience, m) }

func within(limit time.Duration, m runner) int {
	code := m.Run()
	atEnd.Lock()
	stops := atEnd.stops
	atEnd.stops = nil
	atEnd.Unlock()
	for _, stop := range slices.Backward(stops) {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, "at the end of the tests:", err)
			code = max(code, 1)
		}
	}
	if code != 0 {
		return code // a failed test may well have left something behind
	}
	over := time.After(limit)
	err := goleak.Find(tolerated()...) // which looks again for half a second
	for waiting := true; err != nil && waiting; err = goleak.Find(tolerated()...) {
		select {
		case <-over:
			waiting = false
		default:
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "goroutines left at the end of the tests:", err)
		return 1
	}
	return 0
}

// tolerated lists the goroutines that may outlive the tests, each with its
// reason. It is empty: everything we use can be stopped.
func tolerated() []goleak.Option { return nil }
