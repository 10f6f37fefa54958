package chaos

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
)

// lag is how late runs started, in seconds.
type lag struct {
	Of   string  `json:"of"`
	Runs int     `json:"runs"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

func newLag(of string, all []time.Duration) lag {
	slices.Sort(all)
	at := func(share float64) float64 {
		return all[min(len(all)-1, int(share*float64(len(all))))].Seconds()
	}
	return lag{Of: of, Runs: len(all), P50: at(.5), P95: at(.95), P99: at(.99), Max: at(1)}
}

// lags are how late runs started, by the faults in force at that time, by tenant
// and by job type.
func (e *evidence) lags() (out []lag) {
	by := map[string][]time.Duration{}
	types := map[uuid.UUID]string{}
	for _, w := range e.jobs {
		types[w.id] = w.jobType
	}
	for _, c := range e.promptCalls() {
		late, calm := c.start.Sub(c.scheduledAt), true
		for _, f := range e.faults {
			if !f.begun.IsZero() && c.scheduledAt.After(f.begun.Add(-time.Second)) && c.scheduledAt.Before(f.healed.Add(2*time.Second)) {
				by[f.kind] = append(by[f.kind], late)
				calm = false
			}
		}
		if calm {
			by["(no fault near)"] = append(by["(no fault near)"], late)
		}
		by["(all)"] = append(by["(all)"], late)
		if name := types[e.byID[c.execution].job]; name != "" {
			by["("+name+")"] = append(by["("+name+")"], late)
		}
		by[fmt.Sprintf("(tenant %d)", c.tenant)] = append(by[fmt.Sprintf("(tenant %d)", c.tenant)], late)
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		out = append(out, newLag(name, by[name]))
	}
	return out
}

// recoveryLimit is what is demanded of a recovery, in seconds (memory: MB), and what it
// was at worst: where no other fault was near, and anywhere.
type recoveryLimit struct {
	What   string  `json:"what"`
	Times  int     `json:"times"`
	Alone  float64 `json:"alone"` // -1: never
	Worst  float64 `json:"worst"`
	AtMost float64 `json:"atMost"`
	Held   bool    `json:"held"` // alone, or anywhere if it never was alone

	slowest recovery // the one that decided whether it was held
}

// String is the limit's line in the report.
func (b recoveryLimit) String() string {
	alone, verdict := "-", "held"
	if b.Alone >= 0 {
		alone = fmt.Sprintf("%.3f", b.Alone)
	}
	switch {
	case b.Held:
	case b.Alone < 0:
		verdict = "exceeded, with others"
	default:
		verdict = "EXCEEDED"
	}
	return fmt.Sprintf("%-60s %6d %9s %9.3f %8g   %s", b.What, b.Times, alone, b.Worst, b.AtMost, verdict)
}

// recovery is how long one loss was felt, and by which execution, where it was one's.
type recovery struct {
	seconds float64
	alone   bool
	run     uuid.UUID
}

func newRecoveryLimit(what string, atMost float64, all []recovery) (recoveryLimit, bool) {
	b := recoveryLimit{What: what, Times: len(all), Alone: -1, AtMost: atMost}
	for _, one := range all {
		b.Worst = max(b.Worst, one.seconds)
		if one.alone {
			b.Alone = max(b.Alone, one.seconds)
		}
		if one.alone && !b.slowest.alone || one.alone == b.slowest.alone && one.seconds > b.slowest.seconds {
			b.slowest = one
		}
	}
	b.Held = b.Alone <= atMost && (b.Alone >= 0 || b.Worst <= atMost)
	return b, len(all) > 0
}

// recoveryLimits are what is demanded of each recovery, beside what it was.
func (e *evidence) recoveryLimits(t times, members []*member) (out []recoveryLimit) {
	all := map[string][]recovery{}
	for i := range e.faults {
		e.addRecovery(&e.faults[i], all)
	}
	for _, c := range e.promptCalls() {
		if late := c.start.Sub(c.scheduledAt); c.tenant != e.bursting && e.calm(c.scheduledAt.Add(-2*time.Second), c.start, nil) {
			all[noFault] = append(all[noFault], recovery{late.Seconds(), true, c.execution})
		}
	}
	ended := func(at time.Time, last row) []recovery {
		return []recovery{{max(0, at.Sub(clock.Later(t.healed, t.end)).Seconds()), true, last.id}}
	}
	all[allFinished] = ended(t.drained, e.lastFinished(func(*work) bool { return true }))
	if last := e.lastFinished(e.unhindered); last.finished() {
		all[othersFinished] = ended(*last.completedAt, last)
	}
	for _, m := range members {
		all[memory] = append(all[memory], recovery{seconds: float64(m.maxRSS) / 1024, alone: true})
	}
	for _, demand := range []struct {
		what   string
		atMost float64
	}{
		{noFault, 3},
		{workerKilled, 15},
		{promoterKilled, 2},
		{redisEmptied, 5},
		{redisDown, 3},
		{postgresBack, 5},
		{failedOver, 5},
		{diskBack, 10},
		{underGreedyTenant, 1},
		{allFinished, 30},
		{othersFinished, 30},
		{memory, 150},
	} {
		if b, known := newRecoveryLimit(demand.what, demand.atMost, all[demand.what]); known {
			out = append(out, b)
		}
	}
	return out
}

// The limits, by the names that the output uses.
const (
	noFault           = "no fault near: start after scheduled time"
	workerKilled      = "worker killed: interrupted run started again"
	promoterKilled    = "promoter killed: lag of what was due in the 3 s after"
	redisEmptied      = "redis emptied and there: what waited had started"
	redisDown         = "redis down: lag of what was due meanwhile"
	postgresBack      = "postgres crashed and back: first start"
	failedOver        = "standby promoted: first start"
	diskBack          = "disk has space again, or obeys: first start"
	underGreedyTenant = "refused rows, storm, backlog, readers: lag of others"
	allFinished       = "all healed, nothing due any more: everything finished"
	othersFinished    = "the same, but for the tenant at its limit and broken targets"
	memory            = "memory of each process, MB"
)

// unhindered says that the job is none of the tenant with a backlog, which its own limit
// holds up, and that its target does not fail on purpose.
func (e *evidence) unhindered(w *work) bool { return w.tenant != e.bursting && !w.unwell }

// lastFinished is the execution that finished last of the jobs that are asked about.
func (e *evidence) lastFinished(of func(w *work) bool) (last row) {
	for _, w := range e.jobs {
		if !of(w) {
			continue
		}
		for _, r := range e.byJob[w.id] {
			if r.finished() && (!last.finished() || r.completedAt.After(*last.completedAt)) {
				last = r
			}
		}
	}
	return last
}

// addRecovery adds how long one fault was felt.
func (e *evidence) addRecovery(f *fault, all map[string][]recovery) {
	if f.begun.IsZero() || f.healed.IsZero() {
		return
	}
	add := func(what string, c call, lasted time.Duration) {
		all[what] = append(all[what], recovery{lasted.Seconds(), e.calm(f.begun, f.healed.Add(3*time.Second), f), c.execution})
	}
	late := func(what string) func(c call) {
		return func(c call) { add(what, c, c.start.Sub(c.scheduledAt)) }
	}
	first := func(what string) {
		if c := e.firstStart(f.healed); !c.start.IsZero() {
			add(what, c, c.start.Sub(f.healed))
		}
	}
	switch f.kind {
	case "kill worker":
		for _, c := range e.startedAgain(f.begun) {
			add(workerKilled, c, c.start.Sub(f.begun))
		}
	case "kill promoter":
		e.due(f.begun, f.begun.Add(3*time.Second), late(promoterKilled))
	case "cut redis":
		e.due(f.begun, f.healed, late(redisDown))
	case "flush redis", "restart redis", "redis away":
		e.due(time.Time{}, f.healed, func(c call) {
			if c.start.After(f.healed) {
				add(redisEmptied, c, c.start.Sub(f.healed))
			}
		})
	case "refuse rows", "misfire storm", "backlog", "greedy readers":
		e.due(f.begun, f.healed, late(underGreedyTenant))
	case "crash postgres":
		first(postgresBack)
	case "failover", "late failover":
		first(failedOver)
	case "disk full", "failing disk":
		first(diskBack)
	}
}

// due goes through the first calls of what was due between two times, but
// for the tenant whose burst waits for its limit.
func (e *evidence) due(from, to time.Time, fn func(c call)) {
	for _, c := range e.promptCalls() {
		if c.tenant != e.bursting && c.scheduledAt.After(from) && !c.scheduledAt.After(to) {
			fn(c)
		}
	}
}

// firstStart is the first call that started after a time; its start is zero: none did.
func (e *evidence) firstStart(after time.Time) (first call) {
	for _, c := range e.calls {
		if c.start.After(after) && (first.start.IsZero() || c.start.Before(first.start)) {
			first = c
		}
	}
	return first
}

// startedAgain are the calls that began again the runs that a kill interrupted: those
// whose call broke off at that moment.
func (e *evidence) startedAgain(killed time.Time) (out []call) {
	for _, calls := range e.byCall {
		for _, c := range calls {
			if !c.aborted || c.end.Before(killed.Add(-50*time.Millisecond)) || c.end.After(killed.Add(500*time.Millisecond)) {
				continue
			}
			for _, next := range calls {
				if next.attempt == c.attempt+1 {
					out = append(out, next)
				}
			}
		}
	}
	return out
}
