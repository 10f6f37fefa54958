package chaos

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
)

// report prints what a run found.
func report(out io.Writer, c Config, s *stack, e *evidence, f *findings, t times, l *load) {
	fmt.Fprintln(out, "\nfaults")
	for _, fault := range e.faults {
		fmt.Fprintln(out, " ", fault)
	}
	states := map[string]int{}
	for _, r := range e.rows {
		states[r.trigger+" "+r.status]++
	}
	fmt.Fprintf(out, "\nexecutions  %s\nanswers     %s\n", counts(states), counts(l.answers))
	completed, again := 0, 0
	for _, calls := range e.byCall {
		n := 0
		for _, call := range calls {
			if call.status == 200 {
				n++
			}
		}
		completed += min(n, 1)
		again += max(n-1, 0)
	}
	fmt.Fprintf(out, "targets     %d calls, %d executions succeeded there, %d of them once more (at-least-once)\n", len(e.calls), completed, again)
	fmt.Fprintf(out, "drained     %.1f s after the last fault, %.1f s after the last due instant\n",
		t.drained.Sub(t.healed).Seconds(), t.drained.Sub(t.end).Seconds())
	if last := e.last(); last.over() {
		fmt.Fprintf(out, "last over   %s\n%s", last.id, e.history(violation{run: last.id, job: last.job}))
	}
	lags(out, e)
	recoveries(out, e)
	fmt.Fprint(out, "memory      ")
	for _, m := range s.members {
		fmt.Fprintf(out, "%s %d MB (%d starts, %d found no store)  ", m.name, m.maxRSS/1024, m.starts, m.refused)
	}
	fmt.Fprintln(out, "\n\ninvariant  looked at  broken")
	broken := map[string]int{}
	for _, v := range f.violations {
		broken[v.invariant]++
	}
	names := slices.SortedFunc(maps.Keys(f.looked), func(a, b string) int {
		return (len(a)-len(b))*100 + strings.Compare(a, b)
	})
	for _, name := range names {
		fmt.Fprintf(out, "%-9s %10d %7d\n", name, f.looked[name], broken[name])
	}
	shown := map[string]int{}
	for _, v := range f.violations {
		if shown[v.invariant]++; shown[v.invariant] <= 3 {
			fmt.Fprintf(out, "\n%s is broken: %s\n", v.invariant, v.text)
		}
		if shown[v.invariant] == 1 {
			fmt.Fprint(out, e.history(v))
		}
	}
}

// last is the execution that was over last.
func (e *evidence) last() (last row) {
	for _, r := range e.rows {
		if r.over() && (!last.over() || r.completedAt.After(*last.completedAt)) {
			last = r
		}
	}
	return last
}

func counts(of map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s: %d", name, of[name]))
	}
	return strings.Join(parts, ", ")
}

// prompt are the first calls of scheduled runs that wait for nothing but us:
// neither for a place nor for the end of a pause.
func (e *evidence) prompt() []call {
	waits := map[uuid.UUID]bool{}
	pauses := map[uuid.UUID][]pausing{}
	for _, w := range e.jobs {
		waits[w.id] = w.overlap == api.OverlapPolicyQueueAll || w.overlap == api.OverlapPolicyQueueOne
		pauses[w.id] = w.pauses
	}
	var out []call
	for id, calls := range e.byCall {
		r := e.byID[id]
		held := slices.ContainsFunc(pauses[r.job], func(p pausing) bool {
			return r.scheduledAt.After(p.pause.asked.Add(-time.Second)) && (p.resume.ack.IsZero() || r.scheduledAt.Before(p.resume.ack))
		})
		if r.trigger == "scheduled" && !waits[r.job] && !held {
			out = append(out, slices.MinFunc(calls, func(a, b call) int { return a.start.Compare(b.start) }))
		}
	}
	return out
}

// lags prints how late runs started, by the faults in force at their instant.
func lags(out io.Writer, e *evidence) {
	by := map[string][]time.Duration{}
	for _, c := range e.prompt() {
		lag, calm := c.start.Sub(c.scheduledAt), true
		for _, f := range e.faults {
			if !f.begun.IsZero() && c.scheduledAt.After(f.begun.Add(-time.Second)) && c.scheduledAt.Before(f.healed.Add(2*time.Second)) {
				by[f.kind] = append(by[f.kind], lag)
				calm = false
			}
		}
		if calm {
			by["(no fault near)"] = append(by["(no fault near)"], lag)
		}
		by["(all)"] = append(by["(all)"], lag)
	}
	fmt.Fprintf(out, "\n%-18s %6s %9s %9s %9s %9s   start after due instant, by the faults in force\n", "lag", "runs", "p50", "p95", "p99", "max")
	for _, name := range slices.Sorted(maps.Keys(by)) {
		all := by[name]
		slices.Sort(all)
		at := func(share float64) time.Duration {
			return all[min(len(all)-1, int(share*float64(len(all))))].Round(time.Millisecond)
		}
		fmt.Fprintf(out, "%-18s %6d %9v %9v %9v %9v\n", name, len(all), at(.5), at(.95), at(.99), at(1))
	}
}

// recoveries prints how long each sort of loss was felt.
func recoveries(out io.Writer, e *evidence) {
	worst := map[string][]time.Duration{}
	for _, f := range e.faults {
		if f.begun.IsZero() || f.err != nil {
			continue
		}
		switch f.kind {
		case "kill worker":
			worst["worker killed: interrupted run started again"] = append(worst["worker killed: interrupted run started again"], e.startedAgain(f.begun)...)
		case "kill promoter":
			for _, c := range e.prompt() {
				if c.scheduledAt.After(f.begun) && c.scheduledAt.Before(f.begun.Add(3*time.Second)) {
					worst["promoter killed: lag of what was due in the 3 s after"] = append(worst["promoter killed: lag of what was due in the 3 s after"], c.start.Sub(c.scheduledAt))
				}
			}
		case "flush redis", "restart redis", "redis away":
			for _, c := range e.prompt() {
				if !c.scheduledAt.After(f.healed) && c.start.After(f.healed) {
					worst["redis emptied: what waited had started"] = append(worst["redis emptied: what waited had started"], c.start.Sub(f.healed))
				}
			}
		case "crash postgres":
			first := time.Duration(-1)
			for _, c := range e.calls {
				if d := c.start.Sub(f.healed); d > 0 && (first < 0 || d < first) {
					first = d
				}
			}
			worst["postgres back: first start"] = append(worst["postgres back: first start"], first)
		}
	}
	fmt.Fprintln(out)
	for _, name := range slices.Sorted(maps.Keys(worst)) {
		all := worst[name]
		slices.Sort(all)
		if len(all) > 0 {
			fmt.Fprintf(out, "%-54s %4d times, p50 %v, max %v\n", name, len(all), all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
		}
	}
}

// startedAgain is how long after a kill the runs that it interrupted started
// again: the calls that broke off at that moment.
func (e *evidence) startedAgain(killed time.Time) (out []time.Duration) {
	for _, calls := range e.byCall {
		for _, c := range calls {
			if !c.aborted || c.end.Before(killed.Add(-50*time.Millisecond)) || c.end.After(killed.Add(500*time.Millisecond)) {
				continue
			}
			for _, next := range calls {
				if next.attempt == c.attempt+1 {
					out = append(out, next.start.Sub(killed))
				}
			}
		}
	}
	return out
}
