package promoter

import (
	"testing"
	"time"
)

// A pass that took too long halves the next one at most, a quick one doubles it, and one
// that filled less than half of its bounds says nothing.
func TestSizeFollowsTheTimeOfLargePasses(t *testing.T) {
	t.Parallel()
	const whole = batchSize
	for _, test := range []struct {
		name    string
		size    size
		claimed int
		held    time.Duration
		want    int // jobs of the next pass
	}{
		{"a little too long", wholeSize(), whole, passTime * 5 / 4, 400},
		{"much too long", wholeSize(), whole, time.Minute, 250},
		{"as long as it may", wholeSize(), whole, passTime, 500},
		{"quick and whole already", wholeSize(), whole, passTime / 10, 500},
		{"quick", size{share: 0.2}, 100, passTime / 10, 200},
		{"not so quick", size{share: 0.2}, 100, passTime / 2, 100},
		{"quick, but small", size{share: 0.2}, 49, passTime / 10, 100},
		{"too long, but small", wholeSize(), 249, time.Minute, 500},
		{"no smaller than that", size{share: leastShare}, 50, time.Minute, 50},
		{"not measured", wholeSize(), whole, 0, 500},
	} {
		was := due{batch: test.size.of(batchSize), rows: test.size.of(passRows)}
		if test.size.after(plan{claimed: test.claimed, held: test.held}, was); test.size.of(batchSize) != test.want {
			t.Errorf("%s: %d jobs next, want %d", test.name, test.size.of(batchSize), test.want)
		}
	}
	// Few jobs with many rows are a large pass too.
	many := plan{claimed: 1, runs: make([]run, passRows/2), held: time.Minute}
	few := wholeSize()
	if few.after(many, due{batch: batchSize, rows: passRows}); few.of(passRows) != passRows/2 {
		t.Errorf("%d rows next", few.of(passRows))
	}
}
