package promoter

import "time"

const (
	// passTime is for how long a pass should hold its jobs locked, before its commit. On
	// an idle database a whole batch takes a third of it. An overloaded one took 0.7 s
	// (measured), and another tenant's job that becomes due then waits for one pass to end
	// and for the next to be written.
	passTime = 150 * time.Millisecond
	// leastShare is of the bounds of a pass: smaller ones spend their time on round trips.
	leastShare = 0.1
)

// size is which share of its bounds a pass may take. It shrinks after a pass that took
// longer than passTime, by half at most, since one may have been held up by something
// else; and it doubles after one that took less than half of that. How long the commit
// takes does not count: it is no shorter for fewer jobs.
type size struct {
	share float64
	fixed bool // in tests, which no time decides
}

func wholeSize() size { return size{share: 1} }

// of is what is left of a bound.
func (s size) of(most int) int { return max(1, int(s.share*float64(most))) }

// after takes in a pass that filled at least half of its bounds: others say little.
func (s *size) after(made plan, d due) {
	switch {
	case s.fixed || !made.large(d) || made.held == 0:
	case made.held > passTime:
		s.share = max(leastShare, s.share*max(0.5, float64(passTime)/float64(made.held)))
	case made.held < passTime/2:
		s.share = min(1, 2*s.share)
	}
}

// large says whether the plan filled at least half of what it might take.
func (p *plan) large(d due) bool {
	return 2*p.claimed >= d.batch || 2*(len(p.runs)+len(p.skips)) >= d.rows
}
