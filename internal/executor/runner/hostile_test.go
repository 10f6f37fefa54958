package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/executor/runner"
	"github.com/scheduler-service/scheduler/internal/executor/runner/wire"
)

// deadline is what a hostile run gets.
const deadline = 400 * time.Millisecond

// bombs are scripts that would take all time or all memory.
var bombs = map[string]string{
	"loop":             `export default () => { for (;;); }`,
	"catch and loop":   `export default () => { for (;;) try { for (;;); } catch {} }`,
	"regular pattern":  `export default () => /^(a|a|aa)+$/.test('a'.repeat(60) + 'b')`,
	"doubled text":     `export default () => { const all = []; let s = 'x'.repeat(1000); for (;;) { s = s + s.slice(1); all.push(s) } }`,
	"pushed":           `export default () => { const all = []; for (;;) all.push(new Array(1000).fill(1)) }`,
	"concatenated":     `export default () => { let all = [1]; for (;;) all = all.concat(all) }`,
	"sorted":           `export default () => { for (;;) Array.from({length: 1e6}, () => Math.random()).sort() }`,
	"written as JSON":  `export default () => { let o = {a: 1}; for (let i = 0; i < 40; i++) o = [o, o]; return JSON.stringify(o) }`,
	"promises":         `export default () => { const again = () => Promise.resolve().then(again); return again() }`,
	"large number":     `export default () => { let n = 3n; for (;;) n *= n }`,
	"timers":           `export default () => new Promise(() => { const again = () => setTimeout(again, 0); again() })`,
	"log":              `export default () => { for (;;) console.log('x'.repeat(10000)) }`,
	"caught memory":    `export default () => { const all = []; for (;;) try { for (;;) all.push(new Uint8Array(1 << 20)) } catch {} }`,
	"read for ever":    `export default () => { throw { get message() { for (;;); }, toString() { for (;;); } } }`,
	"value for ever":   `export default () => ({ toJSON() { for (;;); } })`,
	"error for ever":   `export default () => { const e = new Error('x'); Object.defineProperty(e, 'message', { get() { for (;;); } }); throw e }`,
	"endless function": `export default new Proxy(function () {}, { apply() { for (;;); } })`,
}

// Bombs end, by their deadline or at the wall of their memory, while the scripts of
// another tenant go on.
func TestBombsEnd(t *testing.T) {
	pool := newPool(t, 6*(memory+32<<20))
	others := make(chan []time.Duration)
	stop := make(chan struct{})
	runs(within(t, ample), t, pool, `export default () => 1`, &host{}) // the engine is compiled now
	go func() { others <- besides(t, pool, stop) }()
	t.Run("all", func(t *testing.T) {
		for name, source := range bombs {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx := within(t, deadline)
				mark := clock.Start()
				end, err := pool.Run(ctx, uuid.UUID{2}, runner.Program{Memory: memory}, wire.Task{Source: source, Input: json.RawMessage(`{}`)}, &host{})
				took := mark.Elapsed()
				late := errors.Is(err, context.DeadlineExceeded) // no runner was free in its time
				if !late && (err != nil || end.Failure == nil || end.Failure.Reason != wire.Deadline && end.Failure.Reason != wire.Memory) {
					t.Errorf("it ended with %+v, %v", end.Failure, err)
				}
				t.Logf("ended %v after its deadline: %+v", (took - deadline).Round(time.Millisecond), end.Failure)
			})
		}
	})
	close(stop)
	took := <-others
	slices.Sort(took)
	t.Logf("%d runs beside it, p50 %v, p99 %v", len(took), took[len(took)/2], took[len(took)*99/100])
	t.Logf("%d MB resident in runners", resident(t)>>20)
	if left := resident(t); left > 6*(memory+32<<20) {
		t.Errorf("the runners keep %d MB", left>>20)
	}
}

// besides runs scripts of another tenant until stop, and answers what each took.
func besides(t *testing.T, pool *runner.Pool, stop <-chan struct{}) (took []time.Duration) {
	for {
		mark := clock.Start()
		end := runs(t.Context(), t, pool, `export default (run) => run.parameters.n`, &host{})
		if string(end.Result) != "20" {
			t.Errorf("a run beside the bombs ended with %+v", end.Failure)
		}
		took = append(took, mark.Elapsed())
		select {
		case <-stop:
			return took
		default:
		}
	}
}

const small = `export default () => 1`

// A tenant whose run cost a runner leaves the one alone that another keeps warm.
func TestWhoCostARunnerStartsTheNext(t *testing.T) {
	pool := newPool(t, 3*one)
	run := func(tenant byte, source string) {
		t.Helper()
		if source == bombs["loop"] {
			overruns(t, pool, tenant, source, &host{})
			return
		}
		if _, err := pool.Run(within(t, ample), uuid.UUID{tenant}, runner.Program{Memory: memory}, wire.Task{Source: source, Input: json.RawMessage(`{}`)}, &host{}); err != nil {
			t.Error(err)
		}
	}
	before := len(children(t))
	count := func(want int, after string) {
		t.Helper()
		if got := len(children(t)) - before; got != want {
			t.Errorf("there are %d runners after %s, want %d", got, after, want)
		}
	}
	run(1, small)
	run(2, small)
	count(1, "two tenants have run one after the other")
	run(2, bombs["loop"])
	count(0, "a run cost it")
	run(1, small)
	run(2, small)
	count(2, "both have run again")
	run(2, small)
	run(3, small)
	count(2, "each has a warm one")
}

// TestWhoBurnsARunnerComesLast has runs that end at their deadline: one that waits leaves
// its tenant the priority of the others, and one that works all the time does not.
func TestWhoBurnsARunnerComesLast(t *testing.T) {
	pool := newPool(t, 2*one)
	run := func(source string) {
		t.Helper()
		if source != small {
			overruns(t, pool, 1, source, &host{})
			return
		}
		if _, err := pool.Run(within(t, ample), uuid.UUID{1}, runner.Program{Memory: memory}, wire.Task{Source: source, Input: json.RawMessage(`{}`)}, &host{}); err != nil {
			t.Error(err)
		}
	}
	niceness := func() (all []string) {
		for _, fields := range children(t) {
			all = append(all, fields[16])
		}
		return all
	}
	for range 100 { // what its runner did before is not the fault of the last run
		run(small)
	}
	run(`export default () => new Promise(() => { setTimeout(() => {}, 100_000); })`)
	run(small)
	if got := niceness(); !slices.Equal(got, []string{"5"}) {
		t.Errorf("after a run that waited the runners have niceness %v, want 5", got)
	}
	// A busy machine may give a loop so little that it does not count.
	for tries := 0; !slices.Contains(niceness(), "19"); tries++ {
		if tries == 50 {
			t.Fatalf("after %d runs that worked the runners have niceness %v, want 19", tries, niceness())
		}
		run(bombs["loop"])
		run(small)
	}
}

// children are what /proc says of the processes that this one started.
func children(t *testing.T) (stats [][]string) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Skip("there is no /proc")
	}
	for _, e := range entries {
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if parent, _ := strconv.Atoi(fields[1]); parent == os.Getpid() {
			stats = append(stats, fields)
		}
	}
	return stats
}

// resident is the memory of the processes that this one started.
func resident(t *testing.T) (bytes int) {
	t.Helper()
	for _, fields := range children(t) {
		pages, _ := strconv.Atoi(fields[21])
		bytes += pages * os.Getpagesize()
	}
	return bytes
}
