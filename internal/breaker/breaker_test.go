package breaker_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/scheduler-service/scheduler/internal/breaker"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// at is when the tests begin.
var at = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

type fleet struct {
	t     *testing.T
	db    *postgres.DB
	letGo breaker.LetGo
}

func newFleet(t *testing.T) fleet {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.New(t).URL, Role: postgres.Engine, Name: "test", MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return fleet{t, db, func(context.Context, time.Time, uuid.UUID, string) (bool, error) { return false, nil }}
}

// board is what one worker knows.
func (f fleet) board() *breaker.Board {
	return breaker.NewBoard(f.db, f.letGo, telemetry.NewMetrics(telemetry.NewRegistry()), slog.New(slog.DiscardHandler))
}

func (f fleet) sync(now time.Time, boards ...*breaker.Board) {
	f.t.Helper()
	for _, b := range boards {
		for range 5 { // one that knows nothing asks at the fifth
			if err := b.Sync(f.t.Context(), now); err != nil {
				f.t.Fatal(err)
			}
		}
	}
}

func (f fleet) target(host string) breaker.Target {
	f.t.Helper()
	to, ok := breaker.TargetOf(uuid.New(), host)
	if !ok {
		f.t.Fatalf("%q is no host", host)
	}
	return to
}

func (f fleet) fail(b *breaker.Board, to breaker.Target, times int) {
	for range times {
		b.Tell(f.t.Context(), at, to, breaker.Admission{}, breaker.Verdict{Failed: true, Reason: "TIMEOUT: slow"})
	}
}

func (f fleet) succeed(b *breaker.Board, to breaker.Target) {
	b.Tell(f.t.Context(), at, to, breaker.Admission{}, breaker.Verdict{})
}

func (f fleet) admit(b *breaker.Board, now time.Time, to breaker.Target) breaker.Admission {
	return b.Admit(f.t.Context(), now, to, time.Minute)
}

func (f fleet) row(to breaker.Target) (state string, failures, pause int, retryIn time.Duration) {
	f.t.Helper()
	var retryAt *time.Time
	if err := f.db.Pool().QueryRow(f.t.Context(), "SELECT state, failures, pause_seconds, retry_at FROM circuit_breakers WHERE tenant_id = $1 AND host = $2", to.Tenant, to.Host).
		Scan(&state, &failures, &pause, &retryAt); err != nil {
		f.t.Fatal(err)
	}
	if retryAt != nil {
		retryIn = retryAt.Sub(at)
	}
	return state, failures, pause, retryIn
}

func (f fleet) count(sql string, args ...any) (n int) {
	f.t.Helper()
	if err := f.db.Pool().QueryRow(f.t.Context(), sql, args...).Scan(&n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

// Failures of the whole fleet count together. The breaker holds back the tenant's calls to
// that host on every worker, and no others.
func TestTenFailuresInARowOpen(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	one, two, third := f.board(), f.board(), f.board()
	to := f.target("a.example")
	f.fail(one, to, 6)
	f.sync(at, one)
	if state, failures, _, _ := f.row(to); state != "closed" || failures != 6 {
		t.Errorf("after six failures it is %s with %d", state, failures)
	}
	f.fail(two, to, 4)
	f.sync(at.Add(30*time.Second), two, one, third)
	for i, b := range []*breaker.Board{one, two, third} {
		if hold := f.admit(b, at.Add(30*time.Second), to).Hold; hold < time.Second || hold > 90*time.Second {
			t.Errorf("board %d holds a call for %s", i, hold)
		}
		if hold := f.admit(b, at, breaker.Target{Tenant: uuid.New(), Host: to.Host}).Hold; hold != 0 {
			t.Errorf("board %d holds another tenant's call for %s", i, hold)
		}
		if b.Quiet(to.Tenant) || !b.Quiet(uuid.New()) {
			t.Errorf("board %d is quiet for the tenant, or not for another", i)
		}
		if hold := f.admit(b, at, breaker.Target{Tenant: to.Tenant, Host: "b.example"}).Hold; hold != 0 {
			t.Errorf("board %d holds a call to another host for %s", i, hold)
		}
	}
	f.fail(one, to, 3) // calls that were under way
	f.succeed(two, to)
	f.sync(at.Add(31*time.Second), one, two)
	if state, failures, pause, retry := f.row(to); state != "open" || failures != 10 || pause != 30 || retry != time.Minute {
		t.Errorf("calls that were under way make it %s with %d failures, %d, %s", state, failures, pause, retry)
	}
}

// A success in between, on any worker, and a minute in between begin a new row.
func TestFailuresThatAreNotInARowOpenNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	one, two := f.board(), f.board()
	broken, slow := f.target("a.example"), f.target("b.example")
	f.fail(one, broken, 9)
	f.fail(one, slow, 9)
	f.sync(at, one, two)
	f.succeed(two, broken)
	f.sync(at.Add(time.Second), two)
	f.fail(one, broken, 9)
	f.sync(at.Add(2*time.Second), one)
	f.fail(one, slow, 9)
	f.sync(at.Add(61*time.Second), one)
	for _, to := range []breaker.Target{broken, slow} {
		if state, failures, _, _ := f.row(to); state != "closed" || failures != 9 {
			t.Errorf("%s is %s with %d failures", to.Host, state, failures)
		}
	}
	f.succeed(one, broken)
	f.fail(one, broken, 10) // after the success, in the same second
	f.sync(at.Add(62*time.Second), one)
	if state, failures, _, _ := f.row(broken); state != "open" || failures != 10 {
		t.Errorf("ten failures after a success leave it %s with %d", state, failures)
	}
}

// opened makes boards that know of an open breaker whose pause has passed.
func (f fleet) opened(to breaker.Target, n int) []*breaker.Board {
	f.t.Helper()
	boards := make([]*breaker.Board, n)
	for i := range boards {
		boards[i] = f.board()
	}
	f.fail(boards[0], to, 10)
	f.sync(at, boards[0])
	f.sync(at.Add(31*time.Second), boards...)
	return boards
}

// Of all calls that ask at once, on 16 workers, one goes out.
func TestOneProbeOfTheFleet(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	to, now := f.target("a.example"), at.Add(31*time.Second)
	boards := f.opened(to, 16)
	var mu sync.Mutex
	var asking sync.WaitGroup
	var probes []breaker.Admission
	for _, b := range boards {
		for range 4 {
			asking.Go(func() {
				if a := f.admit(b, now, to); a.Hold == 0 {
					mu.Lock()
					defer mu.Unlock()
					probes = append(probes, a)
				}
			})
		}
	}
	asking.Wait()
	if len(probes) != 1 {
		t.Fatalf("%d probes went out", len(probes))
	}
	boards[0].Tell(t.Context(), now, to, probes[0], breaker.Verdict{})
	f.sync(now, boards...)
	for i, b := range boards {
		if hold := f.admit(b, now, to).Hold; hold != 0 {
			t.Errorf("after a probe that succeeded board %d holds a call for %s", i, hold)
		}
	}
	if n := f.count("SELECT count(*) FROM circuit_breakers"); n != 0 {
		t.Errorf("%d breakers are left", n)
	}
}

// A board lets executions go once it hears that the breaker has closed, by a probe or by
// hand, does so until none is left, and looks once more. It lets none go whose breaker opened again.
func TestClosedBreakersLetGo(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	var left, calls int
	var failure error
	f.letGo = func(_ context.Context, _ time.Time, _ uuid.UUID, host string) (bool, error) {
		if host != "a.example" {
			t.Errorf("executions that wait for %s are let go", host)
		}
		calls++
		left--
		return left > 0, failure
	}
	to, still, now := f.target("a.example"), f.target("b.example"), at.Add(31*time.Second)
	boards := f.opened(to, 2)
	f.fail(boards[0], still, 10)
	f.sync(now, boards...)
	expect := func(what string, waiting, want int, during func()) {
		t.Helper()
		left, calls = waiting, 0
		during()
		if calls != want {
			t.Errorf("%s: executions are let go %d times, want %d", what, calls, want)
		}
	}
	expect("an open breaker", 1, 0, func() { f.sync(now, boards...) })
	probe := f.admit(boards[0], now, to)
	boards[0].Tell(t.Context(), now, to, probe, breaker.Verdict{})
	expect("the worker of the probe", 3, 4, func() { f.sync(now, boards[0]) })
	expect("another worker", 1, 2, func() { f.sync(now, boards[1]) })
	expect("afterwards", 1, 0, func() { f.sync(now, boards...) })

	f.fail(boards[0], to, 10)
	f.sync(now, boards[0])
	f.count("WITH closed AS (DELETE FROM circuit_breakers WHERE host = 'a.example' RETURNING 1) SELECT count(*) FROM closed")
	expect("closed by hand, the first 200", 9, 1, func() {
		if err := boards[0].Sync(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	})
	f.fail(boards[0], to, 10)
	expect("open again", 9, 0, func() { f.sync(now, boards[0]) })
	f.count("WITH closed AS (DELETE FROM circuit_breakers WHERE host = 'a.example' RETURNING 1) SELECT count(*) FROM closed")
	failure = &pgconn.PgError{Code: "23514"}
	expect("refused by the database", 9, 1, func() {
		if err := boards[0].Sync(t.Context(), now); err == nil {
			t.Error("nobody is told that the database refuses it")
		}
		f.sync(now, boards[0])
	})
}

// Each probe that fails doubles the pause, up to ten minutes. One that says nothing is
// repeated at once, and one of a worker that died when its time is up.
func TestProbesThatDoNotSucceed(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	to, now := f.target("a.example"), at.Add(31*time.Second)
	board := f.opened(to, 1)[0]
	probe := func() breaker.Admission {
		t.Helper()
		f.sync(now, board)
		a := f.admit(board, now, to)
		if a.Hold != 0 {
			t.Fatalf("the probe is held for %s", a.Hold)
		}
		return a
	}
	for _, pause := range []int{60, 120, 240, 480, 600, 600} {
		board.Tell(t.Context(), now, to, probe(), breaker.Verdict{Failed: true, Reason: "still down"})
		state, _, got, retry := f.row(to)
		if state != "open" || got != pause || retry != now.Sub(at)+time.Duration(pause)*time.Second {
			t.Errorf("it is %s with a pause of %d, next at %s; want %d", state, got, retry, pause)
		}
		now = now.Add(time.Duration(pause) * time.Second)
	}
	board.Tell(t.Context(), now, to, probe(), breaker.Verdict{Void: true})
	lost := probe() // of a worker that dies
	now = now.Add(time.Minute)
	f.sync(now, board)
	if hold := f.admit(board, now, to).Hold; hold == 0 {
		t.Error("a second probe went out beside the first")
	}
	now = now.Add(10 * time.Second)
	second := probe()
	board.Tell(t.Context(), now, to, lost, breaker.Verdict{})
	if state, _, _, _ := f.row(to); state != "half_open" {
		t.Errorf("the end of the probe that was given up made it %s", state)
	}
	board.Tell(t.Context(), now, to, second, breaker.Verdict{})
	if n := f.count("SELECT count(*) FROM circuit_breakers"); n != 0 {
		t.Error("the second probe did not close it")
	}
}

// A tenant has a hundred breakers, however many hosts it calls on however many workers, and
// takes no other tenant's.
func TestTenantWithManyHosts(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	one, two := f.board(), f.board()
	greedy, quiet := uuid.New(), f.target("z.example")
	for i := range 1000 {
		f.fail(one, breaker.Target{Tenant: greedy, Host: fmt.Sprintf("h%d.example", i)}, 10)
	}
	f.fail(one, quiet, 10)
	f.fail(two, breaker.Target{Tenant: greedy, Host: "one-more.example"}, 10)
	f.sync(at, one, two)
	if n := f.count("SELECT count(*) FROM circuit_breakers WHERE tenant_id = $1 AND state = 'open'", greedy); n != 100 {
		t.Errorf("it has %d open breakers", n)
	}
	if state, _, _, _ := f.row(quiet); state != "open" {
		t.Errorf("the other tenant's is %s", state)
	}
}

// Counts that the database did not take are written later. A worker whose calls succeed asks
// it every fifth second and no more.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	board, to := f.board(), f.target("a.example")
	f.fail(board, to, 6)
	away, stop := context.WithCancel(t.Context())
	stop()
	if err := board.Sync(away, at); err == nil {
		t.Fatal("a sync without a database succeeded")
	}
	f.fail(board, to, 4)
	f.sync(at, board)
	if state, failures, _, _ := f.row(to); state != "open" || failures != 10 {
		t.Errorf("it is %s with %d failures", state, failures)
	}
	f.sync(at.Add(31*time.Second), board)
	if a := board.Admit(away, at, to, time.Minute); a.Hold == 0 || a.Hold > 2*time.Second {
		t.Errorf("a probe that cannot be claimed is held for %s", a.Hold)
	}
	idle := f.board()
	f.succeed(idle, to)
	for i := range 4 {
		if err := idle.Sync(away, at); err != nil || !idle.Quiet(to.Tenant) {
			t.Errorf("sync %d of a worker whose calls succeed asks the database: %v", i, err)
		}
	}
	if err := idle.Sync(away, at); err == nil {
		t.Error("it never asks the database")
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	board, few, many := f.board(), f.target("a.example"), f.target("b.example")
	f.fail(board, few, 9)
	f.fail(board, many, 10)
	f.sync(at, board)
	for _, test := range []struct {
		after time.Duration
		gone  int64
	}{{9 * time.Minute, 0}, {11 * time.Minute, 1}, {23 * time.Hour, 0}, {25 * time.Hour, 1}} {
		if gone, err := breaker.Forget(t.Context(), f.db, at.Add(test.after)); err != nil || gone != test.gone {
			t.Errorf("after %s %d are forgotten, %v; want %d", test.after, gone, err, test.gone)
		}
	}
}

func TestTargetOf(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"a.example": "a.example", "A.Example.": "a.example", "203.0.113.7": "203.0.113.7", "2001:db8::1": "2001:db8::1",
		"": "", ".": "", "a b": "", "bücher.example": "", "a\xff": "", "a\x00": "", strings.Repeat("a", 254): "",
	} {
		if to, ok := breaker.TargetOf(uuid.Nil, host); ok != (want != "") || ok && to.Host != want {
			t.Errorf("%.20q is %q, %v", host, to.Host, ok)
		}
	}
}
