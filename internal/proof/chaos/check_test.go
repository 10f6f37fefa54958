package chaos

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// whole is evidence of a run in which nothing is wrong: a job due every two
// seconds, whose three scheduled times ran, and one trigger of it.
func whole() *evidence {
	born := time.Date(2026, 3, 1, 12, 0, 0, 500_000_000, time.UTC)
	w := &work{
		name: "job 1", overlap: "allow", every: 2 * time.Second, end: born.Add(6 * time.Second), id: uuid.New(), createdAt: born,
		triggers: map[string]uuid.UUID{"a key": uuid.New()},
	}
	e := &evidence{most: 2, jobs: []*work{w}, stored: map[uuid.UUID]stored{w.id: {tenant: tenantID(0), name: w.name, status: "inactive"}}}
	add := func(id uuid.UUID, trigger string, at time.Time) {
		over := at.Add(time.Second)
		e.rows = append(e.rows, row{
			tenant: tenantID(0), id: id, job: w.id, trigger: trigger, status: "completed", attempt: 1, max: 3, scheduledAt: at, createdAt: at, completedAt: &over,
		})
		e.calls = append(e.calls, call{execution: id, job: w.id, key: id.String(), attempt: 1, scheduledAt: at, start: at, end: over, status: 200})
	}
	for n := range 3 {
		add(uuid.New(), "scheduled", born.Truncate(2*time.Second).Add(time.Duration(n+1)*2*time.Second))
	}
	add(w.triggers["a key"], "manual", born.Add(100*time.Millisecond))
	return e
}

// Each thing that can go wrong is found, under its own name.
func TestChecksFindWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(e *evidence)
		want  []string
	}{
		"nothing": {func(*evidence) {}, nil},
		"a scheduled time without a row": {func(e *evidence) {
			e.rows, e.calls = slices.Delete(e.rows, 1, 2), slices.Delete(e.calls, 1, 2)
		}, []string{"I1"}},
		"a scheduled time with two rows": {func(e *evidence) {
			again := e.rows[1]
			again.id, again.status = uuid.New(), "skipped"
			e.rows = append(e.rows, again)
		}, []string{"I1"}},
		"a row for no scheduled time": {func(e *evidence) {
			phantom := e.rows[1]
			phantom.id, phantom.status, phantom.scheduledAt = uuid.New(), "skipped", phantom.scheduledAt.Add(time.Second)
			e.rows = append(e.rows, phantom)
		}, []string{"I2"}},
		"a run without a row":      {func(e *evidence) { e.calls = append(e.calls, call{execution: uuid.New()}) }, []string{"I2"}},
		"an attempt made twice":    {func(e *evidence) { e.calls = append(e.calls, e.calls[0]) }, []string{"I6"}},
		"an attempt nobody counts": {func(e *evidence) { e.calls[0].attempt = 2; e.rows[0].status = "failed" }, []string{"I7"}},
		"a success nobody saw":     {func(e *evidence) { e.calls[0].status = 500 }, []string{"I8"}},
		"a call nobody answered":   {func(e *evidence) { e.calls[0].status = 0 }, []string{"I8"}},
		"a report nobody answered": {func(e *evidence) { e.calls[0].status, e.calls[0].reported = 0, true }, nil},
		"a skipped run that ran":   {func(e *evidence) { e.rows[0].status = "skipped" }, []string{"I8"}},
		"a lost job": {func(e *evidence) {
			e.stored = map[uuid.UUID]stored{}
		}, []string{"I10", "I9"}},
		"a lost trigger": {func(e *evidence) {
			e.rows, e.calls = e.rows[:3], e.calls[:3]
		}, []string{"I10", "I9"}},
		"a trigger done twice": {func(e *evidence) {
			again := e.rows[3]
			again.id, again.status = uuid.New(), "cancelled"
			e.rows = append(e.rows, again)
		}, []string{"I10"}},
		"a row made in a pause": {func(e *evidence) {
			at := e.rows[1].createdAt
			e.jobs[0].pauses = []pausing{{
				pause:  window{at.Add(-2 * time.Second), at.Add(-time.Second)},
				resume: window{at.Add(time.Second), at.Add(2 * time.Second)}, made: 1,
			}}
		}, []string{"I13"}},
		"a deleted job that goes on": {func(e *evidence) {
			at := e.rows[1].createdAt
			e.jobs[0].deletion = &window{at.Add(-time.Second), at.Add(-time.Second)}
			e.stored[e.jobs[0].id] = stored{tenant: tenantID(0), name: "job 1", deleted: true}
		}, []string{"I14", "I15"}},
		"a cancelled run that completed": {func(e *evidence) {
			e.jobs[0].cancels = map[uuid.UUID]window{e.rows[0].id: {}}
		}, []string{"I14"}},
		"more runs of a tenant than may": {func(e *evidence) { e.most = 0 }, []string{"I11"}},
		"more runs of a job than may": {func(e *evidence) {
			e.jobs[0].overlap, e.jobs[0].maxConcurrent = "skip", 0
		}, []string{"I11"}},
		"two runs with one key": {func(e *evidence) {
			e.jobs[0].key = "device"
			e.calls[1].start = e.calls[0].start
		}, []string{"I11", "I30"}},
		"a run before its scheduled time": {func(e *evidence) {
			e.calls[0].start = e.calls[0].scheduledAt.Add(-time.Millisecond)
		}, []string{"I30"}},
		"a row of another tenant":       {func(e *evidence) { e.rows[0].tenant, e.calls[0].tenant = tenantID(1), 1 }, []string{"I22"}},
		"a target of another tenant":    {func(e *evidence) { e.calls[0].tenant = 1 }, []string{"I22"}},
		"a job shown to another tenant": {func(e *evidence) { e.seen = []shownJob{{1, e.jobs[0].id}} }, []string{"I22"}},
		"a promoter that went on with a wrong clock": {func(e *evidence) {
			at := e.rows[0].createdAt
			e.faults = []fault{{kind: "skew promoters", begun: at.Add(-3 * time.Second), healed: at.Add(time.Second), skews: []skewed{
				{by: time.Minute, begun: at.Add(-3 * time.Second), end: at.Add(3 * time.Second), everybody: true, alarms: 5, answers: 5},
			}}}
		}, []string{"I30"}},
		"a promoter that began with a wrong clock and decided with a right one": {func(e *evidence) {
			at := e.rows[0].createdAt
			e.faults = []fault{{kind: "skew promoters", begun: at.Add(-3 * time.Second), healed: at.Add(time.Second), skews: []skewed{
				{by: time.Minute, begun: at.Add(-3 * time.Second), end: at.Add(time.Second), everybody: true, alarms: 5, answers: 5},
			}}}
		}, nil},
		"a promoter without an alarm": {func(e *evidence) {
			at := e.rows[0].createdAt
			e.faults = []fault{{kind: "skew promoter", begun: at, healed: at, skews: []skewed{{by: -time.Minute, begun: at, end: at, answers: 5}}}}
		}, []string{"I30"}},
		"a stopped job that goes on": {func(e *evidence) {
			at := e.rows[1].createdAt
			e.jobs[0].stop = &window{at.Add(-time.Second), at.Add(-time.Second)}
		}, []string{"I14"}},
		"a planted execution that is lost": {func(e *evidence) { e.jobs[0].inserted = 1 }, []string{"I10"}},
		"a run that never ends": {func(e *evidence) {
			e.rows[0].status, e.rows[0].completedAt = "running", nil
		}, []string{"I16"}},
		"a range that counts wrong": {func(e *evidence) {
			e.rows[0].status, e.calls = "missed", e.calls[1:]
			until := e.rows[0].scheduledAt
			e.rows[0].missedUntil, e.rows[0].missedCount = &until, 2
		}, []string{"I1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := whole()
			test.spoil(e)
			f := &findings{checked: map[string]int{}}
			e.checkAll(f)
			found := map[string]bool{}
			for _, v := range f.violations {
				found[v.invariant] = true
			}
			if diff := cmp.Diff(test.want, slices.Sorted(maps.Keys(found))); diff != "" {
				t.Errorf("broken invariants (-want +got):\n%s", diff)
			}
		})
	}
}

// The harness counts scheduled times by itself, from the epoch and from the job's
// creation.
func TestGrid(t *testing.T) {
	t.Parallel()
	born := time.Date(2026, 3, 1, 12, 0, 1, 250_000_000, time.UTC)
	cron := &work{every: 3 * time.Second, createdAt: born}
	interval := &work{step: 1500 * time.Millisecond, createdAt: born}
	for name, test := range map[string]struct{ got, want time.Time }{
		"the first of a cron expression":       {cron.nextDue(born), born.Truncate(time.Minute).Add(3 * time.Second)},
		"the one after it":                     {cron.nextDue(cron.nextDue(born)), born.Truncate(time.Minute).Add(6 * time.Second)},
		"the first of an interval":             {interval.nextDue(born), born.Add(1500 * time.Millisecond)},
		"the one after it, from in between":    {interval.nextDue(born.Add(2 * time.Second)), born.Add(3 * time.Second)},
		"a scheduled time is not after itself": {interval.nextDue(born.Add(3 * time.Second)), born.Add(4500 * time.Millisecond)},
		"whole minutes are on every cron one":  {cron.nextDue(born.Truncate(time.Minute).Add(59 * time.Second)), born.Truncate(time.Minute).Add(time.Minute)},
	} {
		if !test.got.Equal(test.want) {
			t.Errorf("%s: %s, want %s", name, test.got, test.want)
		}
	}
}

// A seed is one list of faults, and the list stays within its time.
func TestPlanRepeats(t *testing.T) {
	t.Parallel()
	c := Config{Duration: time.Minute, Quiet: 5 * time.Second, Calm: 6 * time.Second, APIs: 2, Promoters: 3, Workers: 4}
	first, again := plan(newRand(3), c, kinds()), plan(newRand(3), c, kinds())
	if len(first) < 10 || len(first) != len(again) {
		t.Fatalf("%d and %d faults", len(first), len(again))
	}
	for i, f := range first {
		if f.String() != again[i].String() || f.at < c.Quiet || f.at+f.lasts > c.Duration-c.Calm {
			t.Errorf("%s and %s", f, again[i])
		}
	}
	if plan(newRand(4), c, kinds())[0].String() == first[0].String() && plan(newRand(4), c, kinds())[1].String() == first[1].String() {
		t.Error("another seed is the same list")
	}
}

// Faults that are planned first come, and the list stays in the order of time.
func TestPlanBeginsWithWhatSurelyComes(t *testing.T) {
	t.Parallel()
	c := Config{
		Duration: 8 * time.Second, Quiet: time.Second, Calm: 2 * time.Second, APIs: 2, Promoters: 3, Workers: 4, Short: true,
		First: []string{"refuse rows", "backlog"},
	}
	for seed := range uint64(20) {
		faults, seen := plan(newRand(seed), c, kinds()), map[string]bool{}
		for i, f := range faults {
			seen[f.kind] = true
			if i > 0 && f.at < faults[i-1].at {
				t.Errorf("seed %d: %s comes after %s", seed, f, faults[i-1])
			}
		}
		if !seen["refuse rows"] || !seen["backlog"] {
			t.Errorf("seed %d: only %v", seed, faults)
		}
	}
}

// Apart, a fault begins when the one before has passed, and every kind has had
// its turn before one comes again.
func TestPlanOneAtATime(t *testing.T) {
	t.Parallel()
	c := Config{Duration: 30 * time.Minute, Quiet: 5 * time.Second, Calm: 6 * time.Second, APIs: 2, Promoters: 3, Workers: 4, Apart: 2 * time.Second}
	faults, all := plan(newRand(3), c, kinds()), defaultKinds(kinds())
	seen := map[string]bool{}
	for i, f := range faults {
		if i > 0 && f.at < faults[i-1].at+faults[i-1].lasts+c.Apart {
			t.Errorf("%s begins less than %v after %s", f, c.Apart, faults[i-1])
		}
		if i < len(all) {
			seen[f.kind] = true
		}
	}
	if len(seen) != len(all) {
		t.Errorf("%d of %d kinds in the first round", len(seen), len(all))
	}
}

// A finished row that changed, went, came a second time or runs again is found.
func TestTheHistoryMustNotChange(t *testing.T) {
	t.Parallel()
	one, other := uuid.UUID{1}, uuid.UUID{2}
	past := history{prints: map[uuid.UUID]string{one: "a"}}
	for name, test := range map[string]struct {
		now  history
		want int
	}{
		"the same, and more": {history{prints: map[uuid.UUID]string{one: "a", other: "b"}}, 0},
		"changed":            {history{prints: map[uuid.UUID]string{one: "b"}}, 1},
		"gone":               {history{prints: map[uuid.UUID]string{other: "b"}}, 1},
		"twice":              {history{prints: map[uuid.UUID]string{one: "a"}, twice: []uuid.UUID{one}}, 1},
		"active again":       {history{prints: map[uuid.UUID]string{one: "a"}, both: 1}, 1},
	} {
		f := &findings{checked: map[string]int{}}
		test.now.check(f, past)
		if len(f.violations) != test.want {
			t.Errorf("%s: found %v, want %d", name, f.violations, test.want)
		}
	}
}
