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
	"github.com/scheduler-service/scheduler/internal/proof/figures"
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
	states, types := map[string]int{}, map[string]int{}
	for _, r := range e.rows {
		states[r.trigger+" "+r.status]++
		if r.status == "completed" {
			types[r.jobType]++
		}
	}
	sum := summarize(c, s, e, f, t)
	fmt.Fprintf(out, "\nfaults done %s\nexecutions  %s\ncompleted   %s\nanswers     %s\n", counts(sum.Faults), counts(states), counts(types), counts(l.answers))
	fmt.Fprintf(out, "targets     %d calls, %d executions succeeded there, %d more successes of them (at-least-once)\n", sum.Calls, sum.Succeeded, sum.Repeated)
	fmt.Fprintf(out, "drained     %.1f s after the last fault, %.1f s after the last scheduled time\n",
		t.drained.Sub(t.healed).Seconds(), t.drained.Sub(t.end).Seconds())
	fmt.Fprintf(out, "\n%-22s %6s %9s %9s %9s %9s   start after scheduled time, by the faults in force\n", "lag", "runs", "p50", "p95", "p99", "max")
	for _, g := range sum.Lags {
		fmt.Fprintf(out, "%-22s %6d %8.3fs %8.3fs %8.3fs %8.3fs\n", g.Of, g.Runs, g.P50, g.P95, g.P99, g.Max)
	}
	fmt.Fprint(out, "\nmemory      ")
	for _, m := range s.members {
		fmt.Fprintf(out, "%s %d MB (%d starts, %d found no store)  ", m.name, m.maxRSS/1024, m.starts, m.refused)
	}
	fmt.Fprintf(out, "\n\n%-60s %6s %9s %9s %8s\n", "recovery (alone: no other fault near)", "times", "alone", "worst", "at most")
	for _, b := range sum.Limits {
		fmt.Fprintln(out, b)
	}
	e.printSlowest(out, sum.Limits)
	fmt.Fprintln(out, "\ninvariant   checked  broken")
	for _, one := range sum.Invariants {
		fmt.Fprintf(out, "%-9s %10d %7d\n", one.Name, one.Checked, one.Broken)
	}
	e.printViolations(out, f)
	if c.Out != "" && c.Earlier != "" {
		if err := figures.Write(c.Out, figures.Table{Name: upgradeTable(c), Text: upgradeSentence(c, e, sum)}); err != nil {
			return err
		}
	}
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

// printSlowest prints the history of the execution that exceeded a limit most.
func (e *evidence) printSlowest(out io.Writer, limits []recoveryLimit) {
	for _, b := range limits {
		if r, known := e.byID[b.slowest.run]; known && !b.Held {
			fmt.Fprintf(out, "\n%s: %.3f\n%s", b.What, b.slowest.seconds, e.history(violation{invariant: b.What, run: r.id, job: r.job}))
		}
	}
}

func counts(of map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s: %d", name, of[name]))
	}
	return strings.Join(parts, ", ")
}

// promptCalls are the first calls of scheduled runs that wait for nothing but us:
// for no concurrency slot, no end of a pause and no target that fails on purpose. A tenant's own
// worker that is killed, as the load kills them, takes the first attempt with it: its lease of 10 s is
// no lateness of ours.
func (e *evidence) promptCalls() []call {
	waits, remote := map[uuid.UUID]bool{}, map[uuid.UUID]bool{}
	pauses := map[uuid.UUID][]pausing{}
	for _, w := range e.jobs {
		waits[w.id] = w.own() && w.of != "burst" || w.unwell || w.key != "" || w.overlap == api.OverlapPolicyQueueAll || w.overlap == api.OverlapPolicyQueueOne
		pauses[w.id], remote[w.id] = w.pauses, w.jobType == string(api.JobTypeRemote)
	}
	var out []call
	for id, calls := range e.byCall {
		r := e.byID[id]
		held := slices.ContainsFunc(pauses[r.job], func(p pausing) bool {
			return r.scheduledAt.After(p.pause.asked.Add(-time.Second)) && (p.resume.ack.IsZero() || r.scheduledAt.Before(p.resume.ack))
		})
		if r.trigger == "scheduled" && !waits[r.job] && !held {
			first := slices.MinFunc(calls, func(a, b call) int { return a.start.Compare(b.start) })
			if !remote[r.job] || first.attempt == 1 {
				out = append(out, first)
			}
		}
	}
	return out
}

// mergeReports prints the table of several runs from their reports, and writes it
// into the page that -out names.
func mergeReports(c Config, out io.Writer) error {
	var all []summary
	for _, file := range c.Reports {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read a report: %w", err)
		}
		var one summary
		if err := json.Unmarshal(text, &one); err != nil {
			return fmt.Errorf("read the report %s: %w", file, err)
		}
		all = append(all, one)
	}
	table := longRunTable(all)
	_, err := io.WriteString(out, table)
	if err != nil || c.Out == "" {
		return err
	}
	return figures.Write(c.Out, figures.Table{Name: "the last long run", Text: table})
}

// longRunTable is what several runs came to, with the worst of each recovery.
func longRunTable(all []summary) string {
	var sum summary
	var seeds, backends []string
	kinds := map[string]bool{}
	faults := 0
	for _, one := range all {
		seeds, backends = append(seeds, fmt.Sprint(one.Seed)), append(backends, "`"+one.Backend+"`")
		for kind, n := range one.Faults {
			kinds[kind], faults = true, faults+n
		}
		sum.Calls, sum.Succeeded, sum.Repeated = sum.Calls+one.Calls, sum.Succeeded+one.Succeeded, sum.Repeated+one.Repeated
		sum.Violations = append(sum.Violations, one.Violations...)
		for _, limit := range one.Limits {
			sum.Limits = merged(sum.Limits, limit)
		}
		sum.Seconds = max(sum.Seconds, one.Seconds)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "Seeds %s, %.0f s each, %s: %d faults of %d kinds, %d calls, %d executions that succeeded at their target, %d further successes of them, **%d violations**.\n\n",
		list(seeds), sum.Seconds, list(backends), faults, len(kinds), sum.Calls, sum.Succeeded, sum.Repeated, len(sum.Violations))
	text.WriteString("| recovery | times | at most | worst, alone | worst, other faults near |\n| --- | --- | --- | --- | --- |\n")
	for _, limit := range sum.Limits {
		alone := ""
		if limit.Alone >= 0 {
			alone = fmt.Sprintf("%.1f", limit.Alone)
		}
		fmt.Fprintf(&text, "| %s | %d | %g | %s | %.1f |\n", limit.What, limit.Times, limit.AtMost, alone, limit.Worst)
	}
	return text.String()
}

// merged adds a recovery of one run to those of others.
func merged(all []recoveryLimit, one recoveryLimit) []recoveryLimit {
	at := slices.IndexFunc(all, func(l recoveryLimit) bool { return l.What == one.What })
	if at < 0 {
		return append(all, one)
	}
	all[at].Times += one.Times
	all[at].Alone, all[at].Worst = max(all[at].Alone, one.Alone), max(all[at].Worst, one.Worst)
	return all
}

// list names each value once, in order.
func list(values []string) string {
	slices.Sort(values)
	values = slices.Compact(values)
	if len(values) < 2 {
		return strings.Join(values, "")
	}
	return strings.Join(values[:len(values)-1], ", ") + " and " + values[len(values)-1]
}

// upgradeTable is where a page has the sentence.
func upgradeTable(c Config) string { return "the upgrade from " + c.Earlier }

// upgradeSentence is what an upgrade under load came to, and the way back, where it was gone.
func upgradeSentence(c Config, e *evidence, sum summary) string {
	migrated := 0.0
	steps, lasted := map[string]int{}, map[string]time.Duration{}
	var since time.Time // the end of the step before, where it was of the same kind
	before := ""
	for _, f := range e.faults {
		if f.kind != before {
			since, before = f.begun, f.kind
		}
		if f.kind == "migrate" {
			migrated = f.lasts.Seconds()
		}
		steps[f.kind]++
		lasted[f.kind] += f.healed.Sub(since)
		since = f.healed
	}
	flag, back := "", ""
	if c.Back {
		flag, back = " -back", fmt.Sprintf(", and put back in %.0f s on the schema as it was then", lasted[kindBack].Seconds())
	}
	return fmt.Sprintf("`go run ./cmd/chaos -seed %d -duration %v -upgrade-from %s%s`: the migrations took %.1f s, %d processes were replaced in %.0f s%s; "+
		"%d calls, %d executions that succeeded at their target, %d of them more than once, %d violations.\n",
		c.Seed, c.Duration, c.Earlier, flag, migrated, steps[kindReplace], lasted[kindReplace].Seconds(), back, sum.Calls, sum.Succeeded, sum.Repeated, len(sum.Violations))
}
