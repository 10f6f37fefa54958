package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/runner"
	"github.com/scheduler-service/scheduler/internal/executor/runner/wire"
)

// one is the memory of a runner for scripts.
const one = memory + 32<<20

// A run finds nothing that the one before it left, in the same process.
func TestRunsShareNothing(t *testing.T) {
	t.Parallel()
	pool := newPool(t, one)
	leave := `globalThis.left = 'here'; Object.prototype.left = 'there'; Array.prototype.map = () => 'mine'; fetch.left = 1
		export default () => { setTimeout(() => {}, 1e6); fetch('https://example.com/'); return 1 }`
	find := `export default () => [typeof left, typeof ({}).left, [1].map((x) => x + 1), typeof fetch.left]`
	h := &host{answer: func(context.Context, wire.Request) wire.Response { return wire.Response{Status: 200} }}
	runs(within(t, ample), t, pool, leave, h)
	if end := runs(within(t, ample), t, pool, find, h); string(end.Result) != `["undefined","undefined",[2],"undefined"]` {
		t.Errorf("the next run finds %s, %+v", end.Result, end.Failure)
	}
	random := runs(within(t, ample), t, pool, `export default () => Math.random()`, h).Result
	if again := runs(within(t, ample), t, pool, `export default () => Math.random()`, h).Result; string(random) == string(again) {
		t.Errorf("two runs draw the same number %s", random)
	}
}

// A runner that a busy machine does not start in time is no fault of the code: it has not
// run, and another attempt may. Without a cache a start takes longer than this one may.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	pool := runner.New(runner.Config{Memory: one, StartTime: 50 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { _ = pool.Close() })
	end, err := pool.Run(within(t, time.Minute), uuid.New(), runner.Program{Memory: memory}, wire.Task{Source: "export default 1"}, &host{})
	if err == nil || end.Failure != nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ends with %+v, %v, want an error that is no time-out of the run", end.Failure, err)
	}
	out := runner.Outcome(end, err, time.Minute)
	if out.Err == nil || out.Err.Type != executor.SystemError || !strings.HasSuffix(out.Err.Message, "the runner did not start within 50ms") {
		t.Errorf("the outcome is %v", out.Err)
	}
}

// A run whose time is up before its runner has started has not run either: what its code is
// like nobody knows.
func TestTimeIsUpBeforeTheStart(t *testing.T) {
	t.Parallel()
	pool := runner.New(runner.Config{Memory: one, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { _ = pool.Close() })
	end, err := pool.Run(within(t, 50*time.Millisecond), uuid.New(), runner.Program{Memory: memory}, wire.Task{Source: "export default 1"}, &host{})
	if end.Failure != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ends with %+v, %v, want the error of its time", end.Failure, err)
	}
}

// Calls of a script go through the host, several at the same time.
func TestCalls(t *testing.T) {
	t.Parallel()
	pool := newPool(t, one)
	var both sync.WaitGroup
	both.Add(2)
	h := &host{answer: func(_ context.Context, r wire.Request) wire.Response {
		if strings.HasSuffix(r.URL, "/refused") {
			return wire.Response{Error: "not allowed"}
		}
		both.Done()
		both.Wait() // each waits for the other
		return wire.Response{Status: 201, URL: r.URL, Headers: [][2]string{{"x-a", "1"}, {"x-a", "2"}}, Body: fmt.Sprintf(`{"method":%q,"body":%q,"accept":%q}`, r.Method, *r.Body, r.Headers["accept"])}
	}}
	end := runs(within(t, ample), t, pool, `
		const call = async (path) => {
			const answer = await fetch('https://example.com' + path, { method: 'post', body: 'é' + path, headers: { Accept: 'x/y' } });
			return [answer.status, answer.ok, answer.headers.get('X-A'), await answer.json(), (await answer.bytes()).length];
		};
		export default async () => [...await Promise.all(['/a', '/b'].map(call)), await fetch('https://example.com/refused').catch((e) => String(e))]`, h)
	want := `[[201,true,"1, 2",{"method":"POST","body":"é/a","accept":"x/y"},46],[201,true,"1, 2",{"method":"POST","body":"é/b","accept":"x/y"},46],"TypeError: fetch failed: not allowed"]`
	if string(end.Result) != want {
		t.Errorf("the result is\n%s, %+v, want\n%s", end.Result, end.Failure, want)
	}
	h.answer = func(context.Context, wire.Request) wire.Response { return wire.Response{Status: 200} }
	many := runs(within(t, ample), t, pool, `export default async () => { for (let i = 0; i < 51; i++) await fetch('https://example.com/') }`, h)
	if many.Failure == nil || many.Failure.Message != "Error: a run may make 50 calls" {
		t.Errorf("51 calls end with %+v", many.Failure)
	}
}

// A call that hangs ends with its run, and its late answer reaches no other run.
func TestCallThatHangs(t *testing.T) {
	t.Parallel()
	pool := newPool(t, one)
	h := &host{answer: func(ctx context.Context, _ wire.Request) wire.Response {
		<-ctx.Done()
		return wire.Response{Status: 200, Body: "late"}
	}}
	runs(within(t, ample), t, pool, `export default () => 1`, h)
	end := overruns(t, pool, 1, `export default () => fetch('https://example.com/')`, h)
	if end.Failure == nil || end.Failure.Reason != wire.Deadline {
		t.Errorf("it ended with %s, %+v", end.Result, end.Failure)
	}
	if end := runs(within(t, ample), t, pool, `export default () => { fetch('https://example.com/'); return 2 }`, h); string(end.Result) != "2" {
		t.Errorf("a run that does not wait for its call ended with %+v", end.Failure)
	}
}

// A run that is cancelled ends at once, and the next one finds a runner.
func TestCancelledRun(t *testing.T) {
	t.Parallel()
	pool := newPool(t, one)
	ctx, cancel := context.WithCancel(t.Context())
	h := &host{answer: func(context.Context, wire.Request) wire.Response {
		cancel()
		return wire.Response{}
	}}
	_, err := pool.Run(ctx, uuid.UUID{1}, runner.Program{Memory: memory}, wire.Task{
		Source: `export default () => { fetch('https://example.com/'); for (;;); }`, Input: json.RawMessage(`{}`),
	}, h)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if end := runs(within(t, ample), t, pool, `export default () => 1`, h); string(end.Result) != "1" {
		t.Errorf("the next run ended with %+v", end.Failure)
	}
}

// Where there is room for one runner, runs wait for their turn, and the tenant that has
// none comes before the one that has some.
func TestTurns(t *testing.T) {
	t.Parallel()
	pool := newPool(t, 2*one)
	release := make(chan struct{})
	started := make(chan byte, 10)
	run := func(tenant byte) {
		h := &host{answer: func(context.Context, wire.Request) wire.Response {
			started <- tenant
			<-release
			return wire.Response{Status: 200}
		}}
		_, err := pool.Run(t.Context(), uuid.UUID{tenant}, runner.Program{Memory: memory}, wire.Task{Source: `export default async () => { await fetch('https://example.com/') }`, Input: json.RawMessage(`{}`)}, h)
		if err != nil {
			t.Error(err)
		}
	}
	var all sync.WaitGroup
	all.Go(func() { run(1) })
	all.Go(func() { run(1) })
	<-started
	<-started
	all.Go(func() { run(1) })
	for pool.Waiting() < 1 {
	}
	all.Go(func() { run(2) })
	for pool.Waiting() < 2 {
	}
	release <- struct{}{}
	if next := <-started; next != 2 {
		t.Errorf("the next runner went to tenant %d", next)
	}
	close(release)
	all.Wait()
}

// A run whose time ends while it waits for a runner says so.
func TestNoRunnerIsFree(t *testing.T) {
	t.Parallel()
	pool := newPool(t, one)
	held := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		runs(t.Context(), t, pool, `export default async () => { await fetch('https://example.com/') }`, &host{answer: func(context.Context, wire.Request) wire.Response {
			<-held
			return wire.Response{Status: 200}
		}})
	})
	for pool.Waiting() == 0 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err := pool.Run(ctx, uuid.UUID{3}, runner.Program{Memory: memory}, wire.Task{Source: `export default () => 1`, Input: json.RawMessage(`{}`)}, &host{})
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	close(held)
	all.Wait()
}
