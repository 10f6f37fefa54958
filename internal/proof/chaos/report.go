package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
)

// summary is the part of a report that tools read.
type summary struct {
	Seed       uint64          `json:"seed"`
	Backend    string          `json:"backend"`
	Seconds    float64         `json:"seconds"`
	Faults     map[string]int  `json:"faults"` // those that were done
	Calls      int             `json:"calls"`
	Succeeded  int             `json:"succeeded"`
	Repeated   int             `json:"repeated"`
	Lags       []lag           `json:"lags"`
	Limits     []recoveryLimit `json:"limits"`
	MemoryMB   map[string]int  `json:"memoryMB"`
	Invariants []tally         `json:"invariants"`
	Violations []string        `json:"violations"`
}

// tally is how often an invariant was checked, and how often it did not hold.
type tally struct {
	Name    string `json:"name"`
	Checked int    `json:"checked"`
	Broken  int    `json:"broken"`
}

func summarize(c Config, s *stack, e *evidence, f *findings, t times) summary {
	sum := summary{Seed: c.Seed, Backend: c.Backend, Seconds: c.Duration.Seconds(), Faults: map[string]int{}, Calls: len(e.calls), MemoryMB: map[string]int{}}
	for _, fault := range e.faults {
		if !fault.begun.IsZero() && fault.err == nil {
			sum.Faults[fault.kind]++
		}
	}
	for _, calls := range e.byCall {
		n := 0
		for _, call := range calls {
			if call.status == 200 {
				n++
			}
		}
		sum.Succeeded += min(n, 1)
		sum.Repeated += max(n-1, 0)
	}
	for _, m := range s.members {
		sum.MemoryMB[m.name] = m.maxRSS / 1024
	}
	broken := map[string]int{}
	for _, v := range f.violations {
		broken[v.invariant]++
		sum.Violations = append(sum.Violations, v.invariant+": "+v.text)
	}
	names := slices.SortedFunc(maps.Keys(f.checked), func(a, b string) int {
		return (len(a)-len(b))*100 + strings.Compare(a, b)
	})
	for _, name := range names {
		sum.Invariants = append(sum.Invariants, tally{name, f.checked[name], broken[name]})
	}
	sum.Lags, sum.Limits = e.lags(), e.recoveryLimits(t, s.members)
	return sum
}

// report prints what a run found, and writes it for tools where that was asked
// for.
func report(out io.Writer, c Config, s *stack, e *evidence, f *findings, t times, l *load) error {
	fmt.Fprintln(out, "\nfaults")
	for _, fault := range e.faults {
		fmt.Fprintln(out, " ", fault)
	}
	states := map[string]int{}
	for _, r := range e.rows {
		states[r.trigger+" "+r.status]++
	}
	sum := summarize(c, s, e, f, t)
	fmt.Fprintf(out, "\nfaults done %s\nexecutions  %s\nanswers     %s\n", counts(sum.Faults), counts(states), counts(l.answers))
	fmt.Fprintf(out, "targets     %d calls, %d executions succeeded there, %d more successes of them (at-least-once)\n", sum.Calls, sum.Succeeded, sum.Repeated)
	fmt.Fprintf(out, "drained     %.1f s after the last fault, %.1f s after the last scheduled time\n",
		t.drained.Sub(t.healed).Seconds(), t.drained.Sub(t.end).Seconds())
	if last := e.lastFinished(); last.finished() {
		fmt.Fprintf(out, "last finish %s\n%s", last.id, e.history(violation{run: last.id, job: last.job}))
	}
	fmt.Fprintf(out, "\n%-22s %6s %9s %9s %9s %9s   start after scheduled time, by the faults in force\n", "lag", "runs", "p50", "p95", "p99", "max")
	for _, g := range sum.Lags {
		fmt.Fprintf(out, "%-22s %6d %8.3fs %8.3fs %8.3fs %8.3fs\n", g.Of, g.Runs, g.P50, g.P95, g.P99, g.Max)
	}
	fmt.Fprint(out, "\nmemory      ")
	for _, m := range s.members {
		fmt.Fprintf(out, "%s %d MB (%d starts, %d found no store)  ", m.name, m.maxRSS/1024, m.starts, m.refused)
	}
	fmt.Fprintf(out, "\n\n%-60s %6s %9s %9s %8s\n", "bar (alone: no other fault near)", "times", "alone", "worst", "at most")
	for _, b := range sum.Limits {
		fmt.Fprintln(out, b)
	}
	fmt.Fprintln(out, "\ninvariant   checked  broken")
	for _, one := range sum.Invariants {
		fmt.Fprintf(out, "%-9s %10d %7d\n", one.Name, one.Checked, one.Broken)
	}
	e.printViolations(out, f)
	if c.JSON == "" {
		return nil
	}
	text, err := json.MarshalIndent(sum, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(c.JSON, append(text, '\n'), 0o644) // a report
}

// printViolations prints what was broken, with the history that shows it.
func (e *evidence) printViolations(out io.Writer, f *findings) {
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

// lastFinished is the execution that finished last.
func (e *evidence) lastFinished() (last row) {
	for _, r := range e.rows {
		if r.finished() && (!last.finished() || r.completedAt.After(*last.completedAt)) {
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

// promptCalls are the first calls of scheduled runs that wait for nothing but us:
// neither for a concurrency slot nor for the end of a pause.
func (e *evidence) promptCalls() []call {
	waits := map[uuid.UUID]bool{}
	pauses := map[uuid.UUID][]pausing{}
	for _, w := range e.jobs {
		waits[w.id] = w.own() && w.of != "burst" || w.key != "" || w.overlap == api.OverlapPolicyQueueAll || w.overlap == api.OverlapPolicyQueueOne
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
