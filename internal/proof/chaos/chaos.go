// Package chaos breaks a running installation on purpose and checks that what
// the product promises held.
//
// It owns real processes on a real PostgreSQL (which waits for its disk) and a
// real Redis, a cutter in front of each, a seeded list of faults, a load over
// the REST API, the targets of all jobs, whose own log is the truth about what
// ran, and the checks of the invariants after the last fault. It refuses to
// trust the product's tables about what ran, or package schedule about what was
// due: it counts by itself. It ends only what it started.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// errViolated says that an invariant does not hold; what is printed says
// which, and shows it.
var errViolated = errors.New("a promise was broken")

// Run does one run and prints what it found to out, and what it is doing to
// progress. The error is errViolated, or why the run could not be made.
// Everything it started has ended when it returns, also when ctx is cancelled.
func Run(ctx context.Context, c Config, out, progress io.Writer) (err error) {
	if len(c.Reports) > 0 {
		return mergeReports(c, out)
	}
	fmt.Fprintf(out, "seed %d, %v of load, %d API, %d promoter and %d worker processes, backend %s, %d tenants\n",
		c.Seed, c.Duration, c.APIs, c.Promoters, c.Workers, c.Backend, c.Tenants)
	s, err := open(ctx, c, progress)
	closed := false
	defer func() {
		if !closed {
			s.keep = len(s.crashes()) > 0
			err = errors.Join(err, s.close())
		}
	}()
	if err != nil {
		return err
	}
	e, f, times, l, err := s.run(ctx, c, progress)
	if err != nil {
		return err
	}
	if !c.Back { // or the processes are of the earlier commit
		s.checkRest(ctx, f)
	}
	crashes := s.crashes()
	closed, s.keep = true, len(crashes)+len(f.violations) > 0
	if endErr := s.close(); endErr != nil && len(crashes) == 0 {
		crashes = append(crashes, endErr.Error())
	}
	f.check("I28", len(crashes) == 0, uuid.Nil, uuid.Nil, "%v", crashes)
	if err := report(out, c, s, e, f, times, l); err != nil {
		return err
	}
	if len(f.violations) > 0 {
		return fmt.Errorf("%w: %d times, seed %d; the processes' logs are in %s", errViolated, len(f.violations), c.Seed, s.dir)
	}
	return nil
}

// times are the times that divide a run.
type times struct {
	began, healed, end, drained time.Time
}

func (s *stack) run(ctx context.Context, c Config, progress io.Writer) (*evidence, *findings, times, *load, error) {
	f, t := &findings{checked: map[string]int{}}, times{began: clock.Now()}
	mark := clock.Start()
	t.end = t.began.Add(c.Duration)
	l := newLoad(s, c, t.end)
	s.load = l
	var faults []fault
	can, cannot := possible(c, s.lacks)
	for _, name := range slices.Sorted(maps.Keys(cannot)) {
		fmt.Fprintf(progress, "left out: %s: %s\n", name, cannot[name])
	}
	if c.Faults && len(can) == 0 {
		return nil, nil, t, nil, fmt.Errorf("%q cannot be done here: %v", c.Only, cannot)
	}
	if c.Faults {
		faults = plan(newRand(c.Seed), c, can)
	}
	fmt.Fprintf(progress, "load for %v with %d faults\n", c.Duration, len(faults))
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	stopLoad := make(chan struct{})
	var loading, watchers sync.WaitGroup
	defer l.runRemote(watching, c, progress)()
	loading.Go(func() { l.run(ctx, c, stopLoad) })
	watchers.Go(func() { s.sampleInvariants(watching, l, f) })
	var err error
	if c.Earlier != "" {
		faults, err = s.upgrade(ctx, c, progress)
	} else {
		injectFaults(ctx, s, faults, mark)
	}
	err = errors.Join(err, undoFaults(ctx, s))
	t.healed = clock.Now()
	watchers.Go(func() { s.closeBreakers(watching) })
	sleep(ctx, c.Duration-mark.Elapsed()-time.Second)
	close(stopLoad)
	loading.Wait()
	if err == nil {
		fmt.Fprintln(progress, "waiting until everything is finished")
		err = s.waitForDrain(ctx, c.Drain+t.end.Sub(clock.Now()))
	}
	t.drained = clock.Now()
	stopWatching()
	watchers.Wait()
	if ctx.Err() != nil || err != nil {
		return nil, nil, t, nil, errors.Join(ctx.Err(), err)
	}
	e := &evidence{jobs: l.jobs, calls: s.sink.log(), faults: faults, seen: l.shown, short: c.Short, most: tenantRuns, bursting: c.Tenants - 1, readAt: clock.Now()}
	if e.rows, err = s.store.rows(ctx); err == nil {
		e.stored, err = s.store.jobs(ctx)
	}
	if err != nil {
		return nil, nil, t, nil, err
	}
	e.checkAll(f)
	for _, wrong := range l.wrong {
		f.check(wrong.invariant, false, uuid.Nil, uuid.Nil, "%s", wrong.text)
	}
	return e, f, t, l, nil
}

// tenantRuns is how many executions of a tenant may run at once.
const tenantRuns = 40

// newRand fall alike for one seed.
func newRand(seed uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, 1)) // it must repeat
}

// historyRest bounds what the reading of the history takes of the machine on which the run measures lags: after
// one that took so long none follows for historyRest times as long. Every two seconds it took an eighth of two cores.
const historyRest = 20

// sampleInvariants looks all through the run at what must never change (I3), never be too
// many (I11), and at how much memory the processes take.
func (s *stack) sampleInvariants(ctx context.Context, l *load, f *findings) {
	past := history{}
	var look clock.Mark // when the history was read last
	var rest time.Duration
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		s.compareHistory(last, f, &past)
	}()
	for n := 0; sleep(ctx, 250*time.Millisecond); n++ {
		for _, m := range s.members {
			m.weigh()
		}
		if n%8 != 0 {
			continue
		}
		if look.Elapsed() >= rest {
			look = clock.Start()
			s.compareHistory(ctx, f, &past)
			rest = clock.Rest(look.Elapsed(), historyRest, 0, time.Minute)
		}
		shot, err := s.store.snapshot(ctx)
		if err != nil {
			continue // the database is away
		}
		shot.checkTenants(f, tenantRuns)
		shot.checkKeys(f)
		l.mu.Lock()
		for _, w := range l.jobs {
			if w.concurrencyLimited() {
				f.check("I11", shot.running[w.id] <= w.maxConcurrent, w.id, uuid.Nil, "%d runs of %q at once, %d may", shot.running[w.id], w.name, w.maxConcurrent)
			}
		}
		l.mu.Unlock()
	}
}

// compareHistory reads the history and compares it with the past, which it becomes.
func (s *stack) compareHistory(ctx context.Context, f *findings, past *history) {
	now, err := s.store.history(ctx)
	if err != nil {
		return // the database is away
	}
	now.check(f, *past)
	*past = now
}

// closeBreakers does again and again what an operator does who knows that targets fail on
// purpose. Once all else has finished, calls that fail are all that is left to call: no probe
// succeeds, and a breaker lets one of them out each pause, which grows.
func (s *stack) closeBreakers(ctx context.Context) {
	for sleep(ctx, 2*time.Second) {
		for _, clients := range s.clients {
			open, err := clients[0].ListCircuitBreakersWithResponse(ctx, nil)
			if err != nil || open.JSON200 == nil {
				continue // the next turn asks again
			}
			for _, b := range open.JSON200.Items {
				_, _ = clients[0].CloseCircuitBreakerWithResponse(ctx, b.ID)
			}
		}
	}
}

// waitForDrain waits until nothing is pending, running or due. That it takes too long
// is seen by the checks, which find what is left.
func (s *stack) waitForDrain(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for sleep(ctx, 250*time.Millisecond) {
		left, err := s.store.unfinished(ctx)
		if err == nil && left == 0 {
			return nil
		}
	}
	return nil
}

func (s *stack) crashes() (all []string) {
	for _, m := range s.members {
		all = append(all, m.crashed()...)
	}
	return all
}

// A process that has nothing to do sends some two transactions a second. It is judged by the
// calmest of restTries intervals of restFor, because what it was busy with ends a little later.
const (
	restRate  = 50 // transactions a second that the processes may send for each of them
	restFor   = 3 * time.Second
	restTries = 5
)

// checkRest checks that processes that have nothing to do leave the database alone (I31). A
// promoter did not: it asked thousands of times a second whether any job was due.
func (s *stack) checkRest(ctx context.Context, f *findings) {
	least := math.Inf(1)
	for try := 0; try < restTries && least > restRate; try++ {
		if rate, err := s.transactionRate(ctx, restFor); err == nil {
			least = min(least, rate/float64(len(s.members)))
		}
	}
	f.check("I31", least <= restRate, uuid.Nil, uuid.Nil, "with nothing left to do the processes sent %.0f transactions a second for each of them", least)
}

// transactionRate is how many transactions a second the database has for so long.
func (s *stack) transactionRate(ctx context.Context, lasts time.Duration) (float64, error) {
	before, err := s.store.transactions(ctx)
	if err != nil {
		return 0, err
	}
	mark := clock.Start()
	if !sleep(ctx, lasts) {
		return 0, ctx.Err()
	}
	after, err := s.store.transactions(ctx)
	return float64(after-before) / mark.Elapsed().Seconds(), err
}
