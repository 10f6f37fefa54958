package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/devstack/leaktest"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/runner"
	"github.com/scheduler-service/scheduler/internal/executor/runner/wire"
	"github.com/scheduler-service/scheduler/internal/executor/sandbox"
)

func TestMain(m *testing.M) {
	if code, done := sandbox.Main(os.Args, runner.Entries()); done {
		os.Exit(code)
	}
	os.Exit(leaktest.Main(m))
}

// cacheDir is shared by the tests of this package, so that the engine is compiled once.
var cacheDir = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "runner-test-")
	leaktest.AtEnd(func() error { return os.RemoveAll(dir) })
	return dir, err
})

func newPool(t *testing.T, memory int64) *runner.Pool {
	t.Helper()
	dir, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	// A busy machine may take longer than a minute to compile what takes five seconds of a processor.
	pool := runner.New(runner.Config{Memory: memory, CacheDir: dir, StartTime: ample, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

// ample is how long a run, or a start, may take on a busy machine.
const ample = 4 * time.Minute

// host keeps what a run says, and answers calls.
type host struct {
	mu     sync.Mutex
	said   strings.Builder
	steps  []int
	answer func(ctx context.Context, request wire.Request) wire.Response
}

func (h *host) Output(_ executor.Stream, text []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said.Write(text)
}

func (h *host) Progress(percent int, _ string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steps = append(h.steps, percent)
}

func (h *host) Fetch(ctx context.Context, request wire.Request) wire.Response {
	return h.answer(ctx, request)
}

const memory = 64 << 20

// runs runs a script to its end.
func runs(ctx context.Context, t *testing.T, pool *runner.Pool, source string, h *host) wire.End {
	t.Helper()
	end, err := pool.Run(ctx, uuid.UUID{1}, runner.Program{Memory: memory}, wire.Task{Source: source, Input: json.RawMessage(`{"parameters":{"n":20}}`)}, h)
	if err != nil {
		t.Fatal(err)
	}
	return end
}

// overruns runs a script of a tenant that ends with its time. On a busy machine the time may be up
// before the run has a runner: then it gets more.
func overruns(t *testing.T, pool *runner.Pool, tenant byte, source string, h *host) wire.End {
	t.Helper()
	for limit := deadline; ; limit *= 4 {
		end, err := pool.Run(within(t, limit), uuid.UUID{tenant}, runner.Program{Memory: memory}, wire.Task{Source: source, Input: json.RawMessage(`{}`)}, h)
		if errors.Is(err, context.DeadlineExceeded) && limit < time.Minute {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return end
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestScripts(t *testing.T) {
	t.Parallel()
	pool := newPool(t, 4*(memory+64<<20))
	for _, test := range []struct{ name, source, result, failure, said string }{
		{name: "a value", source: `export default (run) => run.parameters.n * 2 + 2`, result: "42"},
		{name: "a promise", source: `export default async ({parameters: {n}}) => ({n: await n})`, result: `{"n":20}`},
		{name: "nothing", source: `export default () => {}`},
		{name: "console", source: "export default () => { console.log('a', {b: 1}); console.warn(new Error('c').message) }", said: "a {\"b\":1}\nwarn: c\n"},
		{name: "timers", source: `export default () => new Promise((ok) => { setTimeout(() => ok('in an hour'), 3_600_000); setTimeout(() => { console.log('first'); setTimeout(() => ok('second'), 1) }, 1) })`, result: `"second"`, said: "first\n"},
		{name: "thrown", source: "export default () => { throw new RangeError('no such day') }", failure: "thrown RangeError: no such day"},
		{name: "thrown text", source: "export default () => { throw 'no' }", failure: "thrown no"},
		{name: "rejected", source: "export default async () => { await null; null.x }", failure: "thrown TypeError: cannot read property 'x' of null"},
		{name: "thrown at once", source: "throw new Error('top'); export default 1", failure: "thrown Error: top"},
		{name: "no function", source: "export default 1", failure: "thrown TypeError: the script has no function as its default export"},
		{name: "syntax", source: "export default () => {\n  let a = ;\n}", failure: "syntax SyntaxError: unexpected token in expression: ';'"},
		{name: "import", source: "import x from 'fs'; export default () => x", failure: "thrown ReferenceError: could not load module 'fs'"},
		{name: "never", source: "export default () => new Promise(() => {})", failure: "thrown the script waits for something that never happens"},
		{name: "not JSON", source: "export default () => 10n", failure: "thrown TypeError: BigInt are forbidden in JSON.stringify"},
		{name: "recursion", source: "function f() { return f() + 1 } export default () => f()", failure: "thrown RangeError: Maximum call stack size exceeded"},
		{name: "thrown by a timer", source: "export default () => new Promise(() => setTimeout(() => { throw new Error('tick') }, 1))", failure: "thrown Error: tick"},
		{name: "too large", source: "export default () => 'x'.repeat(300000)", result: `{"omitted":"the result is larger than 262144 bytes"}`},
		{name: "patched", source: "Promise.prototype.then = null; JSON.stringify = null; Array.prototype.map = null; export default () => 1", result: "1"},
		{name: "nothing of the host", source: "export default () => [typeof host, typeof process, typeof require, typeof std, typeof os, typeof performance.now()]", result: `["undefined","undefined","undefined","undefined","undefined","number"]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := &host{}
			end := runs(within(t, ample), t, pool, test.source, h)
			failure := ""
			if end.Failure != nil {
				failure = string(end.Failure.Reason) + " " + end.Failure.Message
			}
			if failure != test.failure || string(end.Result) != test.result || h.said.String() != test.said {
				t.Errorf("failure %q, result %s, said %q; want %q, %s, %q", failure, end.Result, h.said.String(), test.failure, test.result, test.said)
			}
		})
	}
}
