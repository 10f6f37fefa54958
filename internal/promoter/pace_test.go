package promoter

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		since   time.Duration
		claimed int
		want    time.Duration
	}{
		{"the first pass of all", 1<<63 - 1, 1, maxPace},
		{"one after a long silence", time.Minute, 1, maxPace},
		{"500 a second", 20 * time.Millisecond, 10, maxPace},
		{"1,000 a second", 15 * time.Millisecond, 15, 12 * time.Millisecond},
		{"4,000 a second", 8 * time.Millisecond, 32, minPace},
		{"many at one time", 200 * time.Millisecond, 499, minPace},
		{"an empty pass does not count", 20 * time.Millisecond, 0, maxPace},
	} {
		if got := pace(test.since, test.claimed); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// At every steady rate promotion costs 100 round trips a second, or one for five
// executions, and what is due waits for its pass for 20 ms at most.
func TestPaceSettles(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{10, 100, 300, 500, 700, 1000, 2000, 4000, 8000} {
		every, took := maxPace, time.Duration(0)
		passes := 0
		for ; took < 10*time.Second; passes++ {
			took += every
			every = pace(every, int(rate*every.Seconds()))
			if every > maxPace || every < minPace {
				t.Fatalf("%v a second: a pace of %v", rate, every)
			}
		}
		perSecond := 2 * float64(passes) / took.Seconds()
		if most := max(0.2*rate, 2/maxPace.Seconds()+1); perSecond > most {
			t.Errorf("%v a second: %.0f round trips a second, more than %.0f", rate, perSecond, most)
		}
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const ms = time.Millisecond
	for _, test := range []struct {
		name       string
		report     Report
		took, left time.Duration
		want       time.Duration
	}{
		{"a full batch", Report{At: at, Claimed: batchSize}, 9 * ms, 5 * ms, 0},
		{"until the next time", Report{At: at, Next: at.Add(30 * ms)}, 4 * ms, -time.Hour, 26 * ms},
		{"it came during the pass", Report{At: at, Next: at.Add(3 * ms)}, 4 * ms, -time.Hour, 0},
		{"no longer than that", Report{At: at, Next: at.Add(time.Hour)}, 4 * ms, 0, maxSleep},
		{"as the pace has it", Report{At: at, Claimed: 7, Next: at.Add(2 * ms)}, 4 * ms, 18 * ms, 18 * ms},
		{"beyond the pace", Report{At: at, Claimed: 7, Next: at.Add(90 * ms)}, 4 * ms, 18 * ms, 86 * ms},
		{"another promoter's, found alone", Report{At: at, Next: at.Add(-ms)}, ms, -time.Hour, lockedRetry},
		{"another promoter's, beside own", Report{At: at, Claimed: 1, Next: at.Add(-ms)}, ms, 10 * ms, 10 * ms},
	} {
		if got := test.report.pause(test.took, test.left); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
