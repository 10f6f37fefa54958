package loop_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sync/errgroup"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

// runner is a runner with a registry and a log of its own, and no leases.
func runner() (r loop.Runner, registry *telemetry.Registry, log *strings.Builder) {
	registry, log = telemetry.NewRegistry(), &strings.Builder{}
	return loop.Runner{Metrics: telemetry.NewMetrics(registry), Log: slog.New(slog.NewTextHandler(log, nil))}, registry, log
}

// A pass runs at once, rests as long as its line says or as it took, and for
// longer and longer while it fails; it says when it comes again, where it knows.
func TestPassesRestBetweenTurns(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for _, test := range []struct {
		name  string
		every time.Duration
		do    func(ctx context.Context, n int, turn *loop.Turn) error
		want  []time.Duration // from the end of a turn to the beginning of the next
	}{
		{"regular", time.Minute, func(context.Context, int, *loop.Turn) error { return nil }, []time.Duration{time.Minute, time.Minute, time.Minute}},
		{
			"slow", time.Second,
			func(ctx context.Context, _ int, _ *loop.Turn) error { clock.Sleep(ctx, 9*time.Second); return nil },
			[]time.Duration{9 * time.Second, 9 * time.Second},
		},
		{
			"failing often", time.Second,
			func(_ context.Context, n int, _ *loop.Turn) error {
				if n < 5 {
					return failed
				}
				return nil
			},
			[]time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second, time.Second},
		},
		{
			"failing seldom", time.Hour, func(context.Context, int, *loop.Turn) error { return failed },
			[]time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second},
		},
		{
			"told", time.Hour,
			func(_ context.Context, n int, turn *loop.Turn) error {
				turn.Again(time.Duration(n) * time.Second)
				return failed
			},
			[]time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second},
		},
		{
			"hanging", time.Second, func(ctx context.Context, _ int, _ *loop.Turn) error { <-ctx.Done(); return ctx.Err() },
			[]time.Duration{5 * time.Minute, 5 * time.Minute},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, _, _ := runner()
				ctx, stop := context.WithCancel(t.Context())
				var ended clock.Mark
				var rests []time.Duration
				n := 0
				err := r.Run(ctx, []loop.Pass{{Name: "test", Every: test.every, Do: func(ctx context.Context, turn *loop.Turn) error {
					if n > 0 {
						rests = append(rests, ended.Elapsed())
					}
					if n == len(test.want) {
						stop()
						return nil
					}
					defer func() { n, ended = n+1, clock.Start() }()
					return test.do(ctx, n, turn)
				}}})
				if err != nil || len(rests) != len(test.want) {
					t.Fatalf("rested %v, %v", rests, err)
				}
				for i, want := range test.want {
					if got := rests[i]; (got - want).Abs() > want/10+1 {
						t.Errorf("rest %d took %v, want about %v", i, got, want)
					}
				}
			})
		})
	}
}

// A call begins the next turn at once, but rests as long as the last turn took, and
// waits while the pass fails. One that comes during a turn counts for the next.
func TestACallBeginsATurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _, _ := runner()
		ctx, stop := context.WithCancel(t.Context())
		called := make(chan struct{}, 1)
		begin := clock.Start()
		var at []time.Duration
		do := func(ctx context.Context, _ *loop.Turn) error {
			at = append(at, begin.Elapsed())
			select {
			case called <- struct{}{}:
			default:
			}
			switch len(at) {
			case 1:
				clock.Sleep(ctx, 3*time.Second) // the call waits until 6 s
			case 2:
				return errors.New("failed") // a second's rest
			case 3:
				<-called // nobody calls: an hour
			case 4:
				stop()
			}
			return nil
		}
		if err := r.Run(ctx, []loop.Pass{{Name: "test", Every: time.Hour, Called: called, Do: do}}); err != nil {
			t.Fatal(err)
		}
		for i, want := range []time.Duration{0, 6 * time.Second, 7 * time.Second, time.Hour + 7*time.Second} {
			if i >= len(at) || (at[i]-want).Abs() > want/10+1 {
				t.Fatalf("turns at %v, want %d at about %v", at, i, want)
			}
		}
	})
}

// A turn that awaits a call begins with it, and one that is to follow after a time does
// not.
func TestACallBeginsATurnThatAwaitsOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _, _ := runner()
		ctx, stop := context.WithCancel(t.Context())
		mark, at, called := clock.Start(), []time.Duration{}, make(chan struct{}, 1)
		do := func(_ context.Context, turn *loop.Turn) error {
			at = append(at, mark.Elapsed())
			switch len(at) {
			case 1:
				called <- struct{}{}
				turn.Await(time.Hour)
			case 2:
				called <- struct{}{}
				turn.Again(time.Minute)
			case 3:
				turn.Await(time.Second) // the call from before
			case 4:
				turn.Await(time.Second)
			default:
				stop()
			}
			return nil
		}
		if err := r.Run(ctx, []loop.Pass{{Name: "test", Every: time.Hour, Called: called, Do: do}}); err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{0, 0, time.Minute, time.Minute, time.Minute + time.Second}
		if !slices.Equal(at, want) {
			t.Errorf("turns at %v, want %v", at, want)
		}
	})
}

// Of eight failures in a row four are logged, and that the pass works again;
// all are counted.
func TestFailuresAreLoggedLessAndLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, registry, log := runner()
		ctx, stop := context.WithCancel(t.Context())
		n := 0
		err := r.Run(ctx, []loop.Pass{{Name: "test", Every: time.Second, Do: func(context.Context, *loop.Turn) error {
			switch n++; {
			case n <= 8:
				return errors.New("a defect")
			case n == 10:
				stop()
			}
			return nil
		}}})
		if err != nil {
			t.Fatal(err)
		}
		if failed, mended := strings.Count(log.String(), "a defect"), strings.Count(log.String(), "pass works again"); failed != 4 || mended != 1 {
			t.Errorf("%d failures and %d ends are logged:\n%s", failed, mended, log)
		}
		err = testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP scheduler_errors_total Operations that failed, by kind of fault.
# TYPE scheduler_errors_total counter
scheduler_errors_total{kind="internal",operation="test"} 8
# HELP scheduler_operations_total Operations done, such as requests and passes, by how they ended.
# TYPE scheduler_operations_total counter
scheduler_operations_total{operation="test",outcome="error"} 8
scheduler_operations_total{operation="test",outcome="ok"} 1
`), "scheduler_errors_total", "scheduler_operations_total")
		if err != nil {
			t.Error(err)
		}
	})
}

// A pass that does not return when the process stops is waited for.
func TestRunReturnsAfterItsPasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _, _ := runner()
		ctx, stop := context.WithCancel(t.Context())
		var order []string
		_ = r.Run(ctx, []loop.Pass{{Name: "slow", Every: time.Second, Do: func(context.Context, *loop.Turn) error {
			stop()
			clock.Sleep(t.Context(), time.Minute)
			order = append(order, "pass")
			return nil
		}}})
		if order = append(order, "run"); !slices.Equal(order, []string{"pass", "run"}) {
			t.Errorf("returned in the order %v", order)
		}
	})
}

// leases is how a process takes leases.
func leases(t *testing.T) *lease.Store {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.New(t).URL, Role: postgres.Engine, Name: "test", MaxConns: 4, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return lease.NewStore(lease.Config{DB: db, Holder: "test", TTL: time.Minute, Metrics: telemetry.NewMetrics(telemetry.NewRegistry())})
}

// Three processes have the same leased pass: one of them at a time runs it.
func TestOneProcessAtATimeRunsALeasedPass(t *testing.T) {
	t.Parallel()
	const processes, enough = 3, 15
	all := leases(t)
	var atOnce, times atomic.Int32
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	pass := loop.Pass{Name: "test", Every: 5 * time.Millisecond, Leased: true, Do: func(_ context.Context, turn *loop.Turn) error {
		defer atOnce.Add(-1)
		if n := atOnce.Add(1); n != 1 || turn.Lease.Fence == 0 {
			t.Errorf("%d run it at once, the fence is %d", n, turn.Lease.Fence)
		}
		if times.Add(1) == enough {
			stop()
		}
		return nil
	}}
	var group errgroup.Group
	for range processes {
		r, _, _ := runner()
		r.Leases = all
		group.Go(func() error { return r.Run(ctx, []loop.Pass{pass}) })
	}
	if err := group.Wait(); err != nil || times.Load() < enough {
		t.Errorf("run %d times in three minutes: %v", times.Load(), err)
	}
}

func TestALeasedPassNeedsLeases(t *testing.T) {
	t.Parallel()
	r, _, _ := runner()
	if err := r.Run(t.Context(), []loop.Pass{{Name: "test", Every: time.Second, Leased: true}}); err == nil {
		t.Error("ran without leases")
	}
}
