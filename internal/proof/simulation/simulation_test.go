package simulation

import (
	"flag"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	seeds = flag.Uint64("seeds", ordinary, "how many seeds the model lives through")
	seed  = flag.Uint64("seed", 0, "the one seed to live through again, with its history; 0: none")
)

func setupOf(seed uint64) setup { return setup{seed: seed, failover: seed%4 == 0} }

// Nothing promised breaks, whatever the seed does.
func TestPromisesHoldForEverySeed(t *testing.T) {
	t.Parallel()
	if *seed != 0 {
		t.Log(setupOf(*seed).replay())
		if violation, _ := setupOf(*seed).run(); violation != "" {
			t.Error(violation)
		}
		return
	}
	const batch = 50
	var mu sync.Mutex
	var all tally
	var wait sync.WaitGroup
	next := make(chan uint64)
	for range 2 {
		wait.Go(func() {
			for from := range next {
				for n := from; n < min(from+batch, *seeds+1); n++ {
					violation, seen := setupOf(n).run()
					mu.Lock()
					all.add(seen)
					mu.Unlock()
					if violation != "" {
						t.Errorf("seed %d: %s", n, violation)
					}
				}
			}
		})
	}
	for n := uint64(1); n <= *seeds && !t.Failed(); n += batch {
		next <- n
	}
	close(next)
	wait.Wait()
	t.Logf("%+v", all)
	if all.stale == 0 || all.reclaimed == 0 || all.released == 0 || all.fenced == 0 || all.drained == 0 || all.failovers == 0 || all.promoted < int(*seeds) {
		t.Errorf("too little happened to show anything: %+v", all)
	}
}

// A seed is all that decides: what it found once, it finds again.
func TestSeedDecidesEverything(t *testing.T) {
	t.Parallel()
	for n := uint64(1); n <= 8; n++ {
		if first, second := setupOf(n).replay(), setupOf(n).replay(); first != second {
			t.Errorf("seed %d went two ways:\n%s", n, cmp.Diff(first, second))
		}
	}
}
