package simulation

import "testing"

// A checker that never fails proves nothing: each rule that is broken on
// purpose is found by some seed, and soon.
func TestCheckerFindsBrokenRules(t *testing.T) {
	t.Parallel()
	for _, broken := range bugs() {
		if broken == keysCross {
			continue // it only makes them wait; the contract notices
		}
		t.Run(string(broken), func(t *testing.T) {
			t.Parallel()
			// Where it is rare, the search begins where it was found last.
			from := max(1, map[bug]uint64{countsFromAnswer: 1777, givesBackClaims: 259}[broken])
			for n := from; n < from+3000; n++ {
				s := setupOf(n)
				s.bug = broken
				if violation, _ := s.run(); violation != "" {
					t.Logf("seed %d: %s", n, violation)
					return
				}
			}
			t.Error("no seed finds it")
		})
	}
}
