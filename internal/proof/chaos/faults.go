package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// fault is one planned disturbance.
type fault struct {
	kind  string
	who   string        // the process; empty: a store, or everybody
	at    time.Duration // after the start of the load
	lasts time.Duration
	draw  uint64 // for what else there is to choose

	begun, healed time.Time // when it really was; zero: not
	what          string    // was chosen
	skews         []skewed  // how far clocks were off in it
	err           error
}

func (f fault) String() string {
	text := fmt.Sprintf("%6.1fs %s", f.at.Seconds(), f.kind)
	if f.who != "" {
		text += " " + f.who
	}
	text += fmt.Sprintf(" for %.1fs", f.lasts.Seconds())
	if f.what != "" {
		text += ", " + f.what
	}
	if f.err != nil {
		text += " (not done: " + f.err.Error() + ")"
	}
	return text
}

// plan draws the faults of a run from its seed: one begins every second or
// two, and all are finished when the quiet end begins. Where they are to be apart,
// each begins when the one before has passed, and every kind has had its turn
// before one comes again.
func plan(random *rand.Rand, c Config, table []kind) []fault {
	var out []fault
	var turn []kind
	for at := c.Quiet; ; at += 400*time.Millisecond + time.Duration(random.Int64N(int64(2200*time.Millisecond))) {
		if len(c.Only) > 0 {
			at += 6 * time.Second // alone means that its effect has passed
		}
		k := drawKind(random, table)
		if c.Apart > 0 {
			if len(turn) == 0 {
				turn = defaultKinds(table)
				random.Shuffle(len(turn), func(i, j int) { turn[i], turn[j] = turn[j], turn[i] })
			}
			k, turn = turn[0], turn[1:]
			if len(out) > 0 {
				last := out[len(out)-1]
				at = last.at + last.lasts + c.Apart
			}
		}
		f := drawFault(random, c, k, at)
		if at+f.lasts > c.Duration-c.Calm {
			return slices.SortedStableFunc(slices.Values(append(plannedFirst(random, c, table), out...)), func(a, b fault) int { return cmp.Compare(a.at, b.at) })
		}
		out = append(out, f)
	}
}

// plannedFirst are the faults that do not wait for being drawn: one after the other,
// from the end of the quiet beginning on.
func plannedFirst(random *rand.Rand, c Config, table []kind) (out []fault) {
	at := c.Quiet
	for _, k := range table {
		if slices.Contains(c.First, k.name) {
			f := drawFault(random, c, k, at)
			out = append(out, f)
			at += f.lasts
		}
	}
	return out
}

// drawKind draws a kind.
func drawKind(random *rand.Rand, table []kind) (k kind) {
	total := 0
	for _, k := range table {
		total += k.weight
	}
	left := random.IntN(total)
	for _, k = range table {
		if left -= k.weight; left < 0 {
			break
		}
	}
	return k
}

// defaultKinds are the kinds that come without being asked for by name.
func defaultKinds(table []kind) (all []kind) {
	for _, k := range table {
		if k.weight > 0 {
			all = append(all, k)
		}
	}
	return all
}

// drawFault decides how long a fault lasts and whom it strikes.
func drawFault(random *rand.Rand, c Config, k kind, at time.Duration) fault {
	f := fault{kind: k.name, at: at, lasts: k.min, draw: random.Uint64()}
	if k.max > k.min {
		f.lasts += time.Duration(random.Int64N(int64(k.max - k.min)))
	}
	if c.Short {
		f.lasts = min(f.lasts, 4*time.Second)
	}
	role := k.role
	if role == "any" {
		role = []string{"promoter", "worker", "api"}[random.IntN(3)]
	}
	if role != "" {
		counts := map[string]int{"api": c.APIs, "promoter": c.Promoters, "worker": c.Workers}
		f.who = fmt.Sprintf("%s-%d", role, 1+random.IntN(counts[role]))
	}
	return f
}

// injectFaults brings the faults about, each in its time, and returns when all are
// over.
func injectFaults(ctx context.Context, s *stack, faults []fault, began clock.Mark) {
	strikes := map[string]kind{}
	busy := map[string]*sync.Mutex{} // a process, or the servers of a store, bear one fault at a time
	for _, k := range kinds() {
		strikes[k.name] = k
		busy[k.store] = &sync.Mutex{}
	}
	for _, m := range s.members {
		busy[m.name] = &sync.Mutex{}
	}
	var all sync.WaitGroup
	for i := range faults {
		f := &faults[i]
		if !sleep(ctx, f.at-began.Elapsed()) {
			break
		}
		all.Go(func() {
			for _, one := range []string{f.who, strikes[f.kind].store} {
				if one == "" {
					continue
				}
				if !busy[one].TryLock() {
					f.err = errBusy
					return
				}
				defer busy[one].Unlock()
			}
			f.begun = clock.Now()
			f.err = strikes[f.kind].strike(ctx, s, s.member(f.who), f)
			if f.healed.IsZero() {
				f.healed = clock.Now()
			}
		})
	}
	all.Wait()
}

// errBusy is why a fault was left out.
var errBusy = errors.New("it bore another one")

// undoFaults makes everything whole again.
func undoFaults(ctx context.Context, s *stack) error {
	for _, m := range s.members {
		m.freeze(false)
		m.db.Up()
		m.redis.Up()
		_ = m.orders.Set(0, false, 0)
		if err := m.start(ctx); err != nil {
			return err
		}
	}
	return s.waitForReady(ctx, 2*time.Minute)
}

func (s *stack) member(name string) *member {
	for _, m := range s.members {
		if m.name == name {
			return m
		}
	}
	return nil
}
