package derive

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	t.Parallel()
	steady := pace{usual: 2 * time.Second, runs: remembered}
	for _, test := range []struct {
		name  string
		of    pace
		took  time.Duration
		first bool
		slow  bool
	}{
		{"as usual", steady, 2 * time.Second, false, false},
		{"three times", steady, 6 * time.Second, false, false},
		{"more than that", steady, 6*time.Second + 1, true, true},
		{"the second slow one", pace{usual: 2 * time.Second, runs: remembered, slow: true}, time.Minute, false, true},
		{"the end of a row", pace{usual: 2 * time.Second, runs: remembered, slow: true}, time.Second, false, false},
		{"too little is known", pace{usual: 2 * time.Second, runs: known - 1}, time.Minute, false, false},
		{"enough is known", pace{usual: 2 * time.Second, runs: known}, time.Minute, true, true},
		{"short ones may vary", pace{usual: 2 * time.Millisecond, runs: remembered}, time.Second, false, false},
		{"nothing at all, and then a second", pace{runs: remembered}, time.Second, true, true},
	} {
		after, first := test.of.add(test.took)
		if first != test.first || after.slow != test.slow {
			t.Errorf("%s: first %v, slow %v", test.name, first, after.slow)
		}
	}
}

// One that hung for a day moves the usual little; a job that is slow from now on is usual soon.
func TestPaceAdapts(t *testing.T) {
	t.Parallel()
	p := pace{}
	for range 100 {
		p, _ = p.add(2 * time.Second)
	}
	if p.usual != 2*time.Second {
		t.Errorf("the usual of what always takes 2 s is %v", p.usual)
	}
	hung, _ := p.add(24 * time.Hour)
	if hung.usual > 2200*time.Millisecond {
		t.Errorf("after one that hung the usual is %v", hung.usual)
	}
	runs := 0
	for p, _ = p.add(20 * time.Second); p.slow; runs++ {
		p, _ = p.add(20 * time.Second)
	}
	if runs < 10 || runs > 30 {
		t.Errorf("what takes ten times as long is usual after %d", runs)
	}
}
