package javascript_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/egress"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/javascript"
	"github.com/scheduler-service/scheduler/internal/executor/runner"
)

const small = `export default ({ parameters: { n } }) => ({ sum: Array.from({ length: n }, (_, i) => i).reduce((a, b) => a + b, 0) });`

// bombs are scripts that do harm as long as they may.
var bombs = map[string]string{
	"loop":             `export default () => { for (;;); }`,
	"catch":            `export default () => { for (;;) try { for (;;); } catch {} }`,
	"promises":         `export default () => { const again = () => Promise.resolve().then(again); return again(); }`,
	"timers":           `export default () => new Promise(() => { const again = () => setTimeout(again, 0); again(); })`,
	"memory":           `export default () => { const a = []; for (;;) a.push(new Uint8Array(1 << 20)); }`,
	"text":             `export default () => { let a = 'x'; for (;;) a += a; }`,
	"recursion":        `const f = () => { try { f(); } finally { f(); } }; export default f;`,
	"regular":          `export default () => /^(a+)+$/.test('a'.repeat(40) + 'b')`,
	"array":            `export default () => { for (;;) new Array(1e6).fill(0).sort(() => Math.random() - 0.5); }`,
	"output":           `export default () => { for (;;) console.log('x'.repeat(10000)); }`,
	"patched":          `Array.prototype.push = () => { for (;;); }; export default () => [1].concat([2]).push(3)`,
	"JSON without end": `const a = {}; Object.defineProperty(a, 'b', { enumerable: true, get: () => a }); export default () => a;`,
}

func benchRegistry(b *testing.B) *executor.Registry {
	b.Helper()
	client, err := egress.New(egress.Config{})
	if err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	pool := runner.New(runner.Config{Memory: 1 << 30, CacheDir: b.TempDir(), Log: log})
	b.Cleanup(func() {
		_ = pool.Close()
		client.Close()
	})
	return executor.NewRegistry(map[string]executor.Executor{"javascript": javascript.New(pool, client, log)})
}

func runOf(b *testing.B, tenant uuid.UUID, source string, timeout time.Duration) executor.Run {
	b.Helper()
	raw, err := json.Marshal(map[string]any{"source": source, "parameters": map[string]int{"n": 100}})
	if err != nil {
		b.Fatal(err)
	}
	return executor.Run{ExecutionID: uuid.New(), TenantID: tenant, Attempt: 1, Config: raw, Timeout: timeout}
}

// took runs a script and says how long that took.
func took(types *executor.Registry, run executor.Run) (time.Duration, executor.Outcome) {
	ctx, cancel := context.WithTimeout(context.Background(), run.Timeout)
	defer cancel()
	began := clock.Start()
	out := types.Execute(ctx, "javascript", run)
	return began.Elapsed(), out
}

func percentile(all []time.Duration, percent int) float64 {
	slices.Sort(all)
	return float64(all[(len(all)-1)*percent/100].Microseconds()) / 1000
}

// BenchmarkWarm runs a small script of one tenant, whose runner is warm: one after the
// other for the latency, and by four at once for the rate.
func BenchmarkWarm(b *testing.B) {
	types, tenant := benchRegistry(b), uuid.New()
	for range 8 {
		if _, out := took(types, runOf(b, tenant, small, time.Minute)); out.Err != nil {
			b.Fatal(out.Err)
		}
	}
	b.Run("one", func(b *testing.B) {
		var all []time.Duration
		for b.Loop() {
			d, out := took(types, runOf(b, tenant, small, time.Minute))
			if out.Err != nil {
				b.Fatal(out.Err)
			}
			all = append(all, d)
		}
		b.ReportMetric(percentile(all, 50), "p50-ms")
		b.ReportMetric(percentile(all, 99), "p99-ms")
	})
	b.Run("four", func(b *testing.B) {
		b.SetParallelism(2) // of two cores
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, out := took(types, runOf(b, tenant, small, time.Minute)); out.Err != nil {
					b.Error(out.Err)
					return
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
	})
}

// BenchmarkBesideBombs runs a small script of one tenant while bombs of another go off one
// after the other: how long after its deadline each ends, and what the others feel.
func BenchmarkBesideBombs(b *testing.B) {
	types, good, bad := benchRegistry(b), uuid.New(), uuid.New()
	const deadline = time.Second
	measure := func(stop <-chan struct{}) (all []time.Duration) {
		for {
			select {
			case <-stop:
				return all
			case <-time.After(20 * time.Millisecond):
			}
			d, out := took(types, runOf(b, good, small, time.Minute))
			if out.Err != nil {
				b.Error(out.Err)
			}
			all = append(all, d)
		}
	}
	beside := func(do func()) []time.Duration {
		stop, done := make(chan struct{}), make(chan []time.Duration)
		go func() { done <- measure(stop) }()
		do()
		close(stop)
		return <-done
	}
	took(types, runOf(b, good, small, time.Minute))
	took(types, runOf(b, bad, small, time.Minute))
	for b.Loop() {
		quiet := beside(func() { clock.Sleep(context.Background(), 5*time.Second) })
		var late time.Duration
		noisy := beside(func() {
			for name, source := range bombs {
				d, out := took(types, runOf(b, bad, source, deadline))
				if out.Err == nil && name != "patched" {
					b.Errorf("%s ended well: %.100s", name, out.Result)
				}
				b.Logf("%s: %v after it began: %v", name, d.Round(time.Millisecond), out.Err)
				late = max(late, d-deadline)
			}
		})
		b.ReportMetric(percentile(quiet, 99), "quiet-p99-ms")
		b.ReportMetric(percentile(noisy, 99), "beside-p99-ms")
		b.ReportMetric(float64(late.Milliseconds()), "late-ms")
	}
}
