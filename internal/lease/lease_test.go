package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

const name = "test"

type bundle struct {
	t     *testing.T
	url   string
	db    *postgres.DB
	admin *pgx.Conn
}

func setup(t *testing.T) *bundle {
	t.Helper()
	database := pgtest.New(t)
	b := &bundle{t: t, url: database.URL, db: open(t, database.URL, postgres.Engine)}
	var err error
	if b.admin, err = pgx.Connect(t.Context(), database.AdminURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.admin.Close(context.Background()) })
	return b
}

func open(t *testing.T, url string, role postgres.Role) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: url, Role: role, Name: "test", MaxConns: 4, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// process is the store of a process of its own.
func (b *bundle) process(holder string, ttl time.Duration) *lease.Store {
	return lease.NewStore(lease.Config{DB: b.db, Holder: holder, TTL: ttl, Metrics: telemetry.NewMetrics(telemetry.NewRegistry())})
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.admin.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// expire lets the time of the lease run out.
func (b *bundle) expire() {
	b.t.Helper()
	b.exec("UPDATE scheduler_locks SET expires_at = now() WHERE name = $1", name)
}

// row is the lease as the database has it, and the database's clock.
func (b *bundle) row() (holder string, fence int64, expires, now time.Time) {
	b.t.Helper()
	err := b.admin.QueryRow(b.t.Context(), "SELECT holder, fence, expires_at, clock_timestamp() FROM scheduler_locks WHERE name = $1", name).
		Scan(&holder, &fence, &expires, &now)
	if err != nil {
		b.t.Fatal(err)
	}
	return holder, fence, expires, now
}

func (b *bundle) acquire(s *lease.Store) lease.Lease {
	b.t.Helper()
	l, err := s.Acquire(b.t.Context(), name)
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

// eventually waits for what other sessions bring about.
func (b *bundle) eventually(what string, holds func() bool) {
	b.t.Helper()
	over := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-over:
			b.t.Fatalf("not within a minute: %s", what)
		}
	}
}

func wants(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestOneOfManyGetsTheLease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for round := int64(1); round <= 3; round++ {
		var mu sync.Mutex
		var got []lease.Lease
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				l, err := b.process(fmt.Sprint(i), time.Minute).Acquire(t.Context(), name)
				if err == nil {
					mu.Lock()
					got = append(got, l)
					mu.Unlock()
				} else if !errors.Is(err, lease.ErrHeld) {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if len(got) != 1 || got[0].Fence != round {
			t.Fatalf("round %d: %d of 8 got the lease: %+v", round, len(got), got)
		}
		if err := b.process("another", time.Minute).Release(t.Context(), got[0]); err != nil {
			t.Fatal(err)
		}
	}
}

func TestALateOwnerChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.process("first", time.Minute), b.process("second", time.Minute)
	late := b.acquire(first)
	_, err := second.Acquire(t.Context(), name)
	wants(t, "acquire what is held", err, lease.ErrHeld)
	b.expire()
	_, err = first.Extend(t.Context(), late)
	wants(t, "extend what ran out and nobody took", err, lease.ErrLost)
	l := b.acquire(second)
	if l.Fence != late.Fence+1 {
		t.Errorf("fence %d after %d", l.Fence, late.Fence)
	}
	_, _, before, _ := b.row()
	_, err = first.Extend(t.Context(), late)
	wants(t, "extend another's", err, lease.ErrLost)
	wants(t, "release another's", first.Release(t.Context(), late), lease.ErrLost)
	if holder, fence, expires, _ := b.row(); holder != "second" || fence != l.Fence || !expires.Equal(before) {
		t.Errorf("the late owner changed it: %s, fence %d, %v", holder, fence, expires)
	}
	if l, err = second.Extend(t.Context(), l); err != nil {
		t.Errorf("the owner cannot extend: %v", err)
	}
	if err := second.Release(t.Context(), l); err != nil {
		t.Errorf("the owner cannot release: %v", err)
	}
	wants(t, "release twice", second.Release(t.Context(), l), lease.ErrLost)
}

// write is guarded work: it notes who did it.
func (b *bundle) write(l lease.Lease, note string, meanwhile func()) error {
	return b.db.InTx(b.t.Context(), func(tx *postgres.Tx) error {
		if err := l.Guard(b.t.Context(), tx); err != nil {
			return err
		}
		meanwhile()
		_, err := tx.MakePartition(b.t.Context(), db.MakePartitionParams{At: time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC), Span: "month"})
		return err
	})
}

func (b *bundle) written() (there bool) {
	b.t.Helper()
	conn, err := pgx.ConnectConfig(b.t.Context(), b.admin.Config()) // admin may be busy
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(b.t.Context())) }()
	if err := conn.QueryRow(b.t.Context(), "SELECT to_regclass('public.job_executions_2001_01') IS NOT NULL").Scan(&there); err != nil {
		b.t.Fatal(err)
	}
	return there
}

func TestALateWriteIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	late := b.acquire(b.process("first", time.Minute))
	b.expire()
	wants(t, "write after the end", b.write(late, "late", func() {}), lease.ErrLost)
	b.acquire(b.process("second", time.Minute))
	wants(t, "write of a late owner", b.write(late, "late", func() {}), lease.ErrLost)
	if b.written() {
		t.Error("the late write is there")
	}
}

// A write that began in time is over before the next owner begins, however
// long it takes.
func TestTheNextOwnerWaitsForAGuardedWrite(t *testing.T) {
	t.Parallel()
	// On a busy machine the lease may end before the write begins, and the server ends a session that
	// does nothing in its transaction for 5 s: then the write fails, and another one is tried.
	for try := 1; ; try++ {
		err := setup(t).nextOwnerWaits()
		if err == nil {
			return
		}
		if try == 5 {
			t.Fatal(err)
		}
	}
}

// nextOwnerWaits answers why the write was not made.
func (b *bundle) nextOwnerWaits() error {
	first := b.acquire(b.process("first", 2*time.Second)) // long enough for the guard's check
	second := b.process("second", time.Minute)
	var begun, early, sawWrite bool
	next := make(chan error, 1)
	err := b.write(first, "first", func() {
		b.eventually("the end of the lease", func() bool { _, _, expires, now := b.row(); return now.After(expires) })
		begun = true
		go func() {
			_, err := second.Acquire(b.t.Context(), name)
			sawWrite = err == nil && b.written()
			next <- err
		}()
		b.eventually("the next owner waits", func() (waits bool) {
			const blocked = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
			if err := b.admin.QueryRow(b.t.Context(), blocked).Scan(&waits); err != nil {
				b.t.Fatal(err)
			}
			return waits || len(next) > 0
		})
		early = len(next) > 0
	})
	if !begun {
		return err
	}
	if failed := <-next; failed != nil {
		b.t.Fatal(failed)
	}
	if err == nil && early {
		b.t.Error("the lease was given on while a guarded write ran")
	}
	if err == nil && !sawWrite {
		b.t.Error("the next owner does not see what the last one wrote")
	}
	return err
}

func TestRunExtendsTheLease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.untilInTime(func(ttl time.Duration) (problem string) {
		other := b.process("other", ttl)
		nothing := func(context.Context, lease.Lease) error { return nil }
		ran, err := b.process("first", ttl).Run(t.Context(), name, func(ctx context.Context, l lease.Lease) error {
			_, _, first, _ := b.row()
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for range tick.C {
				if ran, err := other.Run(ctx, name, nothing); ran || err != nil {
					return fmt.Errorf("another ran meanwhile: %v, %w", ran, err)
				}
				if _, _, expires, _ := b.row(); expires.Sub(first) > ttl/2 || ctx.Err() != nil {
					return ctx.Err()
				}
			}
			return nil
		})
		if !ran || err != nil {
			return fmt.Sprintf("ran %v: %v", ran, err)
		}
		if ran, err := other.Run(t.Context(), name, nothing); !ran || err != nil {
			return fmt.Sprintf("the lease was not released: %v, %v", ran, err)
		}
		return ""
	})
}

// untilInTime repeats what says what is wrong, with longer and longer leases: a busy machine may
// stand still for as long as a lease stands.
func (b *bundle) untilInTime(check func(ttl time.Duration) (problem string)) {
	b.t.Helper()
	problem := ""
	for ttl := 3 * time.Second; ttl < time.Minute; ttl *= 2 {
		if problem = check(ttl); problem == "" {
			return
		}
		b.expire()
	}
	b.t.Error(problem)
}

func TestRunEndsTheWorkOfALostLease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ran, err := b.process("first", 150*time.Millisecond).Run(t.Context(), name, func(ctx context.Context, _ lease.Lease) error {
		b.exec("UPDATE scheduler_locks SET owner = gen_random_uuid(), holder = 'thief', fence = fence + 1, expires_at = now() + interval '1 hour'")
		<-ctx.Done()
		wants(t, "cause", context.Cause(ctx), lease.ErrLost)
		return ctx.Err()
	})
	wants(t, "run", err, lease.ErrLost)
	if holder, _, expires, now := b.row(); !ran || holder != "thief" || expires.Before(now) {
		t.Errorf("ran %v; the lease is %s's until %v", ran, holder, expires)
	}
}

// A process that the database does not answer stops before its lease ends.
func TestRunEndsTheWorkInTimeWhenTheDatabaseIsSilent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.untilInTime(func(ttl time.Duration) (problem string) {
		ran, err := b.process("first", ttl).Run(t.Context(), name, func(ctx context.Context, _ lease.Lease) error {
			b.exec("BEGIN")
			b.exec("SELECT 1 FROM scheduler_locks FOR UPDATE")
			<-ctx.Done()
			if _, _, expires, now := b.row(); now.After(expires) {
				problem = fmt.Sprintf("told %v after the end", now.Sub(expires))
			}
			b.exec("ROLLBACK")
			return ctx.Err()
		})
		if !ran || !errors.Is(err, lease.ErrLost) {
			return fmt.Sprintf("ran %v: %v, want %v", ran, err, lease.ErrLost)
		}
		return problem
	})
}

func TestTheAPITakesItsOwnLeaseOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	api := lease.NewStore(lease.Config{
		DB: open(t, b.url, postgres.API), Holder: "api", TTL: time.Minute, Metrics: telemetry.NewMetrics(telemetry.NewRegistry()),
	})
	for range 2 {
		if err := api.Try(t.Context()); err != nil {
			t.Errorf("try: %v", err)
		}
	}
	if _, err := b.process("another", time.Minute).Acquire(t.Context(), lease.Health); err != nil {
		t.Fatal(err)
	}
	if err := api.Try(t.Context()); err != nil {
		t.Errorf("try while another does: %v", err)
	}
	if _, err := api.Acquire(t.Context(), lease.Retention); err == nil || errors.Is(err, lease.ErrHeld) {
		t.Errorf("the API's role took the lease of retention: %v", err)
	}
	b.acquire(b.process("engine", time.Minute))
	b.exec("REVOKE ALL ON scheduler_locks FROM scheduler_api")
	if err := api.Try(t.Context()); err == nil {
		t.Error("leases do not work, and nothing is said")
	}
}
