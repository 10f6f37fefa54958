package promoter

import (
	"slices"
	"time"
)

// dailyLimitMet is why a scheduled time is skipped.
const dailyLimitMet = "the tenant has used up its executions of the day (maxExecutionsPerDay); the next day begins at 00:00 UTC"

// cut turns runs into skipped rows where why has a reason for one; it is asked
// about the last run first.
func (p *plan) cut(why func(r run) (reason string)) {
	kept := make([]run, 0, len(p.runs))
	fewer := map[*dueJob]int{}
	for i := len(p.runs) - 1; i >= 0; i-- {
		r := p.runs[i]
		reason := why(r)
		if reason == "" {
			kept = append(kept, r)
			continue
		}
		fewer[r.job]++
		p.skips = append(p.skips, skippedBy(r, reason))
	}
	slices.Reverse(kept)
	p.runs = kept
	last := map[*dueJob]time.Time{}
	for _, r := range kept {
		last[r.job] = r.at
	}
	for i, a := range p.advances {
		if n := fewer[a.job]; n > 0 {
			p.advances[i].lost(n, last[a.job])
		}
	}
	// Nothing takes the place of what would have been cancelled.
	p.cancels = slices.DeleteFunc(p.cancels, func(j *dueJob) bool { return fewer[j] > 0 && last[j].IsZero() })
}
