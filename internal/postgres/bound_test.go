package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// pool opens a pool of up to so many connections; with perTenant they are shared out.
func pool(t *testing.T, database *pgtest.Database, most, perTenant int, tracer pgx.QueryTracer) *postgres.DB {
	t.Helper()
	d, err := postgres.Open(t.Context(), postgres.Config{
		URL: database.URL, Role: postgres.API, Name: "test", MaxConns: most, PerTenant: perTenant, StatementTimeout: pgtest.Patience, Tracer: tracer,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// admit has the server give a database so many sessions, beside those of an administrator; -1: any
// number.
func admit(t *testing.T, database *pgtest.Database, sessions int) {
	t.Helper()
	pgtest.Exec(t, database.AdminURL, fmt.Sprintf(`ALTER DATABASE "%s" CONNECTION LIMIT %d`, database.Name, sessions))
}

// hold takes so many connections, and answers how to release one.
func hold(t *testing.T, d *postgres.DB, n int) (end func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), pgtest.Patience)
	defer cancel()
	var held []*pgxpool.Conn
	for range n {
		conn, err := d.Pool().Acquire(ctx)
		if err != nil {
			t.Fatalf("connection %d of %d: %v", len(held)+1, n, err)
		}
		t.Cleanup(conn.Release)
		held = append(held, conn)
	}
	return func() {
		held[0].Release()
		held = held[1:]
	}
}

// atMost is how many connections a pool may have at the moment.
func atMost(d *postgres.DB) int {
	_, _, most, _ := d.Connections()
	return most
}

// gate lets connects go on one by one.
type gate struct {
	refusals
	begun atomic.Int32
	pass  chan struct{}
	ended chan struct{}
}

// newGate lets the first n connects go on.
func newGate(n int) *gate {
	g := &gate{pass: make(chan struct{}, n), ended: make(chan struct{}, n)}
	for range n {
		g.pass <- struct{}{}
	}
	return g
}

// let has n connects go on, each after the end of the one before.
func (g *gate) let(n int) {
	for len(g.ended) > 0 {
		<-g.ended
	}
	for range n {
		g.pass <- struct{}{}
		<-g.ended
	}
}

func (g *gate) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	g.begun.Add(1)
	<-g.pass
	return ctx
}

func (g *gate) TraceConnectEnd(context.Context, pgx.TraceConnectEndData) {
	select {
	case g.ended <- struct{}{}:
	default: // nobody waits for it
	}
}

// transact makes a transaction.
func transact(ctx context.Context, d *postgres.DB) error {
	ctx, cancel := context.WithTimeout(ctx, pgtest.Patience)
	defer cancel()
	return d.InTenant(ctx, uuid.New(), func(tx *postgres.Tx) error {
		_, err := tx.GetTenantStatus(ctx, uuid.New())
		if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
			return nil
		}
		return err
	})
}

// started opens the pool of a process that needs one session. Where it finds none for 30 s the process ends, and is
// started again: on a machine with much other work the busy ones may take longer to leave one.
func started(t *testing.T, database *pgtest.Database) (d *postgres.DB) {
	t.Helper()
	var err error
	for range 8 {
		if d, err = postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: postgres.API, Name: "test", MaxConns: 1, StatementTimeout: pgtest.Patience}); err == nil {
			return d
		}
	}
	t.Fatal(err)
	return nil
}

// Processes that keep all sessions busy leave one to a process that starts, and none of their
// transactions fails. Once they left none, however often it started.
func TestAProcessStartsBesideBusyOnes(t *testing.T) {
	t.Parallel()
	const sessions, processes = 12, 4
	database := pgtest.New(t)
	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer stop()
	var pools []*postgres.DB
	refused := &refusals{}
	for range processes { // each wants all, and has one
		d := pool(t, database, sessions, 0, refused)
		hold(t, d, 1)()
		pools = append(pools, d)
	}
	admit(t, database, sessions)
	for _, d := range pools {
		for range 2 * sessions {
			busy.Go(func() {
				for ctx.Err() == nil {
					if err := transact(context.WithoutCancel(ctx), d); err != nil {
						t.Errorf("a transaction of a busy process: %v", err)
						return
					}
				}
			})
		}
	}
	until(t, "a connection is refused", func() bool { return refused.Load() > 0 })
	for range processes {
		d := started(t, database)
		if err := errors.Join(transact(t.Context(), d), d.Ping(t.Context())); err != nil {
			t.Error(err)
		}
		d.Close()
	}
}

// A pool that was refused a session closes a quarter of those that it has, but for its floor.
// Transactions that wait get a connection of the others. After the pressure it has all again.
func TestARefusedPoolShrinksAndGrowsBack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ most, perTenant, has, want int }{
		{12, 0, 8, 6}, {12, 0, 5, 3}, {6, 0, 3, 2}, {6, 0, 2, 2}, {6, 0, 1, 1}, {2, 0, 1, 1}, {12, 2, 8, 6}, {12, 2, 4, 4},
	} {
		t.Run(fmt.Sprintf("%d of %d, %d for a tenant", test.has, test.most, test.perTenant), func(t *testing.T) {
			t.Parallel()
			database := pgtest.New(t)
			d := shrunk(t, database, test.most, test.perTenant, test.has)
			var inUse, idle, most int
			until(t, "sessions are closed", func() bool {
				inUse, idle, most, _ = d.Connections()
				return idle == test.want
			})
			if most != test.want || inUse != 0 {
				t.Errorf("it may have %d connections and uses %d, want %d and none", most, inUse, test.want)
			}
			admit(t, database, test.most+1)
			for range test.most - test.want {
				d.Adjust(t.Context())
			}
			hold(t, d, test.most)
		})
	}
}

// inUse keeps how many connections were in use when one was released whose session is closed.
type inUse struct {
	refusals
	of   atomic.Pointer[postgres.DB]
	most atomic.Int32
}

func (u *inUse) TraceRelease(_ *pgxpool.Pool, data pgxpool.TraceReleaseData) {
	if d := u.of.Load(); d != nil && data.Conn.IsClosed() {
		n, _, _, _ := d.Connections()
		u.most.Store(max(u.most.Load(), int32(n)))
	}
}

// A connection whose session was closed is never counted as one in use, also when the pool grows
// back.
func TestAClosedSessionIsNotInUse(t *testing.T) {
	t.Parallel()
	const most = 4
	database, uses := pgtest.New(t), &inUse{}
	d := pool(t, database, most, 0, uses)
	uses.of.Store(d)
	end := hold(t, d, most)
	admit(t, database, most)
	d.Adjust(t.Context())
	for range most {
		end()
	}
	until(t, "a session is closed", func() bool {
		n, idle, _, _ := d.Connections()
		return n == 0 && idle == most-1
	})
	admit(t, database, -1)
	d.Adjust(t.Context())
	hold(t, d, most)
	if n := uses.most.Load(); n > 0 {
		t.Errorf("one whose session was closed was among %d in use", n)
	}
}

// A pool that has enough connections opens no other, and asks whether the server is full. So a
// process starts also beside such ones.
func TestAPoolThatOpensNoneMakesRoom(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ most, has int }{{4, 4}, {6, 4}} {
		t.Run(fmt.Sprintf("%d of %d", test.has, test.most), func(t *testing.T) {
			t.Parallel()
			database := pgtest.New(t)
			d := pool(t, database, test.most, 0, nil)
			end := hold(t, d, test.has)
			admit(t, database, test.has)
			refused, opened := &refusals{}, make(chan error, 1)
			go func() {
				d, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: postgres.API, Name: "test", MaxConns: 1, Tracer: refused})
				if err == nil {
					d.Close()
				}
				opened <- err
			}()
			until(t, "it is refused", func() bool { return refused.Load() > 0 || len(opened) > 0 })
			d.Adjust(t.Context())
			for range test.has {
				end()
			}
			if err := <-opened; err != nil {
				t.Errorf("it found no session: %v", err)
			}
		})
	}
}

// A burst opens connections until the server is full, and the pool keeps all of them, because they
// are not more than its floor. On the commit before, it counted only those that it had when the
// first one was refused.
func TestABurstKeepsWhatItOpens(t *testing.T) {
	t.Parallel()
	const most, perTenant, least = 12, 6, 8
	database, connects := pgtest.New(t), newGate(1)
	d := pool(t, database, most, perTenant, connects)
	var burst sync.WaitGroup
	defer burst.Wait()
	hold(t, d, 1)
	for range most - 1 {
		burst.Go(func() {
			if conn, err := d.Pool().Acquire(t.Context()); err == nil {
				conn.Release()
			}
		})
	}
	until(t, "all are asked for", func() bool { return connects.begun.Load() == most })
	admit(t, database, 1)
	connects.let(1)
	admit(t, database, least)
	connects.let(most - 2)
	until(t, "it is opened", func() bool {
		inUse, idle, _, _ := d.Connections()
		return inUse+idle == least || atMost(d) < least
	})
	if n := atMost(d); n != least {
		t.Errorf("it may have %d connections, want %d", n, least)
	}
}

// Somebody who waited when the pool was refused a session opens a connection before the pool has
// closed any, and is refused, too. The pool closes no more for that. On the commit before, it closed
// a quarter of those that were left.
func TestWhoWaitedIsRefusedAtNoCost(t *testing.T) {
	t.Parallel()
	const most, has, want = 9, 8, 6
	database := pgtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		connects := newGate(has)
		d := pool(t, database, most, 0, connects)
		end := hold(t, d, has)
		admit(t, database, has)
		refused := make(chan error, 2)
		for range 2 { // the second one waits for the first
			go func() { refused <- d.Pool().Ping(t.Context()) }()
		}
		until(t, "a connection is asked for", func() bool { return connects.begun.Load() == has+1 })
		synctest.Wait()
		connects.let(1)
		until(t, "the next one is asked for", func() bool { return connects.begun.Load() == has+2 })
		synctest.Wait()
		for range has - want {
			end()
		}
		until(t, "sessions are closed", func() bool {
			inUse, idle, _, _ := d.Connections()
			return inUse+idle == want
		})
		admit(t, database, want)
		connects.let(1)
		for range 2 {
			if err := <-refused; err == nil {
				t.Error("it was not refused")
			}
		}
		if n := atMost(d); n != want {
			t.Errorf("it may have %d connections, want %d", n, want)
		}
	})
}

// A pool keeps the sessions of its floor, as that of a heartbeat keeps its only one.
func TestAPoolKeepsItsFloor(t *testing.T) {
	t.Parallel()
	for most := 1; most <= 2; most++ {
		database := pgtest.New(t)
		d, admin := pool(t, database, most, 0, nil), connect(t, database.AdminURL)
		sessions := func() (pids []int) {
			t.Helper()
			err := admin.QueryRow(t.Context(), "SELECT array_agg(pid ORDER BY pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'test'").Scan(&pids)
			if err != nil {
				t.Fatal(err)
			}
			return pids
		}
		end := hold(t, d, most)
		admit(t, database, most)
		before := sessions()
		for range 3 {
			d.Adjust(t.Context())
		}
		for range most {
			end()
		}
		for range most {
			if err := transact(t.Context(), d); err != nil {
				t.Error(err)
			}
		}
		if after := sessions(); !slices.Equal(before, after) || atMost(d) != most {
			t.Errorf("the sessions were %d and are %d", before, after)
		}
	}
}

// shrunk opens a pool that the server refuses one more session than it has, while all of these are
// in use, and then releases these.
func shrunk(t *testing.T, database *pgtest.Database, most, perTenant, has int) *postgres.DB {
	t.Helper()
	d := pool(t, database, most, perTenant, nil)
	end := hold(t, d, has)
	admit(t, database, has)
	waited := make(chan error)
	go func() { waited <- d.Ping(t.Context()) }()
	until(t, "it shrinks", func() bool { return atMost(d) < most })
	for range has {
		end()
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
	return d
}

// The requests of several tenants share the connections that are left, and health checks have
// theirs.
func TestAShrunkenPoolIsSharedOut(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		d, a := shrunk(t, database, 12, 4, 4), uuid.New()
		err := d.InTenant(t.Context(), a, func(*postgres.Tx) error {
			if err := d.InTenant(t.Context(), a, func(*postgres.Tx) error { return nil }); fault.KindOf(err) != fault.Unavailable {
				t.Errorf("a second request of the tenant: %v", err)
			}
			return d.InTenant(t.Context(), uuid.New(), func(*postgres.Tx) error {
				if err := transact(t.Context(), d); fault.KindOf(err) != fault.Unavailable {
					t.Errorf("a request that would take a reserved connection: %v", err)
				}
				return d.Ping(t.Context())
			})
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// A pool asks for more connections 10 s after it was refused one, and grows while it gets them.
func TestAShrunkenPoolGrowsBack(t *testing.T) {
	t.Parallel()
	const most = 6
	database := pgtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		d := shrunk(t, database, most, 0, 4)
		want := func(n int) {
			t.Helper()
			if got := atMost(d); got != n {
				t.Errorf("it may have %d connections, want %d", got, n)
			}
		}
		want(3)
		<-time.After(9 * time.Second)
		want(3)
		admit(t, database, 2)
		<-time.After(15 * time.Second) // it is refused one again
		want(2)
		admit(t, database, -1)
		<-time.After(30 * time.Second)
		want(most)
	})
}

// One below its floor asks sooner.
func TestASmallPoolGrowsBack(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		d := shrunk(t, database, 2, 0, 1)
		admit(t, database, -1)
		<-time.After(4 * time.Second)
		if n := atMost(d); n != 2 {
			t.Errorf("it may have %d connections, want 2", n)
		}
	})
}
