// Package loop runs the passes of a process.
//
// It owns when a pass runs, how long it may take, who of several processes runs
// it, and what becomes of its failure: the metric, the line in the log, and a
// longer rest. It refuses to know what passes do. Every loop of a process is a
// line of a table of passes, except those that answer an event or keep a
// schedule within milliseconds, which say so where they stand.
package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

const (
	// budget is how long a pass may take before its context ends. Passes bound
	// their work themselves and end much earlier; this is for one that hangs.
	budget = 5 * time.Minute
	// A pass that fails rests for firstRest, then for twice as long each time, up
	// to Every or longestRest, whichever is longer.
	firstRest, longestRest = time.Second, 5 * time.Second
)

// Soon is a short rest, for a pass whose own budget ended before its work did.
const Soon = 250 * time.Millisecond

// Uncalled is the distance of turns of a pass that is called when there is something to
// do: should the one who calls be wrong, it is done all the same.
const Uncalled = 5 * time.Minute

// errTooLong is why the context of a pass ends that takes longer than budget.
var errTooLong = errors.New("the pass took longer than it may")

// Pass is something that a process does again and again.
type Pass struct {
	Name string // in the log and the metrics, and of its lease
	// Every is the distance from the end of one pass to the beginning of the next.
	// It varies by a fifth, so that processes started together drift apart, and it
	// is at least as long as the pass took: a slow pass uses half of the time at
	// most.
	Every time.Duration
	// Leased has one process at a time do the pass, whichever gets its lease. The
	// context ends when the lease is lost. It must be right that another process
	// does the same soon afterwards.
	Leased bool
	// Called begins the next turn before the rest of Every has passed, unless the
	// last one failed: somebody has seen that there is something to do. nil: nobody calls.
	Called <-chan struct{}
	// Apart is the least distance of two calls, for the one who calls.
	Apart time.Duration
	// Do does one bounded piece of work and never waits for more.
	Do func(ctx context.Context, turn *Turn) error
}

// Turn is one run of a pass.
type Turn struct {
	Lease lease.Lease // held while the pass runs, where it is leased

	again    time.Duration
	hasAgain bool
	callable bool
}

// Again has the next turn follow this one after exactly so long, instead of
// after Every or the rest of a failure: there is more to do, or the time of the
// next work is known.
func (t *Turn) Again(after time.Duration) { t.again, t.hasAgain, t.callable = after, true, false }

// Await is Again, but a call begins the next turn at once.
func (t *Turn) Await(most time.Duration) { t.again, t.hasAgain, t.callable = most, true, true }

// Runner runs passes.
type Runner struct {
	Leases  *lease.Store // nil where no pass is leased
	Metrics *telemetry.Metrics
	Log     *slog.Logger
}

// Run runs each pass at once and then again and again, side by side, until ctx
// ends. It returns nil once all have returned; it goes on through every error
// of a pass.
func (r Runner) Run(ctx context.Context, passes []Pass) error {
	var running sync.WaitGroup
	for _, p := range passes {
		if p.Leased && r.Leases == nil {
			return fmt.Errorf("pass %s is leased, and the runner has no leases", p.Name)
		}
	}
	for _, p := range passes {
		running.Go(func() { r.repeat(ctx, p) })
	}
	running.Wait()
	return nil
}

func (r Runner) repeat(ctx context.Context, p Pass) {
	failures := 0
	for ctx.Err() == nil {
		mark := clock.Start()
		turn := &Turn{}
		ran, err := r.turn(ctx, p, turn)
		if ctx.Err() != nil {
			return
		}
		took := mark.Elapsed()
		if ran {
			r.Metrics.Operation(p.Name, outcome(err), took)
		}
		failures = r.note(ctx, p, failures, err)
		rested := rest(p, *turn, failures, took)
		if p.Called == nil || failures > 0 || turn.hasAgain && !turn.callable {
			clock.Sleep(ctx, rested)
			continue
		}
		slow := min(took, rested) // a slow pass uses half of the time at most, called or not
		clock.Sleep(ctx, slow)
		await(ctx, rested-slow, p.Called)
	}
}

// await waits for so long, for a call, or until ctx ends.
func await(ctx context.Context, d time.Duration, called <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-called:
	case <-ctx.Done():
	}
}

// turn does a pass once, within its budget and its lease. It did not run where
// another process holds the lease.
func (r Runner) turn(ctx context.Context, p Pass, turn *Turn) (ran bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, budget, errTooLong)
	defer cancel()
	if !p.Leased {
		return true, late(ctx, p.Do(ctx, turn))
	}
	return r.Leases.Run(ctx, p.Name, func(ctx context.Context, held lease.Lease) error {
		turn.Lease = held
		return late(ctx, p.Do(ctx, turn))
	})
}

// late says of an error that the budget was used up, where it was.
func late(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errTooLong) {
		return errors.Join(errTooLong, err)
	}
	return err
}

func outcome(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// note logs how a turn went and returns how many turns failed in a row. Of many
// failures it logs the first, the second, the fourth and so on.
func (r Runner) note(ctx context.Context, p Pass, before int, err error) (failures int) {
	switch {
	case err != nil:
		failures = before + 1
		r.Metrics.Failure(p.Name, fault.KindOf(err).String())
		if failures&before == 0 {
			r.Log.ErrorContext(ctx, "pass failed", "pass", p.Name, "failures_in_a_row", failures, "kind", fault.KindOf(err).String(), "error", err)
		}
	case before > 1:
		r.Log.InfoContext(ctx, "pass works again", "pass", p.Name, "failures", before)
	}
	return failures
}

// rest is how long to wait after a turn that took so long.
func rest(p Pass, t Turn, failures int, took time.Duration) time.Duration {
	if t.hasAgain {
		return t.again
	}
	every := p.Every
	if failures > 0 {
		every = min(firstRest<<min(failures-1, 20), max(p.Every, longestRest))
	}
	return max(spread(every), took)
}

// spread varies a distance by a fifth.
func spread(every time.Duration) time.Duration { return every - every/10 + rand.N(every/5+1) }
