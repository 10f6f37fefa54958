package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// inTurns is a pool whose transactions take turns, a session beside it, and one that watches.
func inTurns(t *testing.T) (d *postgres.DB, beside, watch *pgx.Conn) {
	t.Helper()
	database := pgtest.New(t)
	d, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: postgres.Engine, Name: "test", MaxConns: 4, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	for _, conn := range []**pgx.Conn{&beside, &watch} {
		if *conn, err = pgx.Connect(t.Context(), database.AdminURL); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = (*conn).Close(context.Background()) })
	}
	return d, beside, watch
}

func do(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// turn is a transaction in turn that reads, and then does then.
func turn(t *testing.T, d *postgres.DB, patience time.Duration, then func(tx *postgres.Tx) error) error {
	return d.InTurn(t.Context(), patience, true, nil, func(tx *postgres.Tx) error { return errors.Join(read(t, tx), then(tx)) })
}

func nothing(*postgres.Tx) error { return nil }

func gauge(ctx context.Context, q *db.Queries) error {
	return q.SetGauges(ctx, db.SetGaugesParams{Names: []string{"x"}, Values: []int64{1}})
}

// wantFree has the turn come at once, and no session keep any lock or setting.
func wantFree(t *testing.T, d *postgres.DB, when string) {
	t.Helper()
	var kept int
	var timeout string
	err := d.Pool().QueryRow(t.Context(), `SELECT count(*), current_setting('lock_timeout') FROM pg_locks
		WHERE (locktype = 'advisory' OR relation = 'turn_line'::regclass) AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&kept, &timeout)
	if err = errors.Join(err, turn(t, d, time.Millisecond, nothing)); err != nil || kept != 0 || timeout != "48s" {
		t.Errorf("%s: %d locks are kept, lock_timeout is %s, and the next turn: %v", when, kept, timeout, err)
	}
}

// A turn that does not come to the head of the line is an error. However a transaction ends, its turn
// ends with it.
func TestTurns(t *testing.T) {
	t.Parallel()
	d, _, _ := inTurns(t)
	err := turn(t, d, time.Second, func(*postgres.Tx) error { return turn(t, d, time.Second, nothing) })
	if !postgres.TimedOut(err) {
		t.Errorf("a turn within a turn: %v, want a time-out", err)
	}
	wantFree(t, d, "after a turn that did not come")
	failure := errors.New("not this time")
	if err := turn(t, d, time.Second, func(*postgres.Tx) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("the transaction ends with %v, want %v", err, failure)
	}
	wantFree(t, d, "after a roll-back")
	if err := turn(t, d, time.Second, func(tx *postgres.Tx) error {
		return tx.CommitWith(t.Context(), func(q *db.Queries) error { return gauge(t.Context(), q) })
	}); err != nil {
		t.Error(err)
	}
	wantFree(t, d, "after a commit with a statement")
}

// wantTurn has a question whether the turn is free answered.
func wantTurn(t *testing.T, d *postgres.DB, free bool, when string) {
	t.Helper()
	if got, err := d.TurnIsFree(t.Context()); err != nil || got != free {
		t.Errorf("%s the turn is free: %t, %v, want %t", when, got, err, free)
	}
}

// The turn is taken as long as a transaction is in turn, unless it is not shown. A question
// keeps none of it.
func TestTurnIsFree(t *testing.T) {
	t.Parallel()
	d, _, _ := inTurns(t)
	wantTurn(t, d, true, "before any")
	err := turn(t, d, time.Second, func(*postgres.Tx) error {
		wantTurn(t, d, false, "in a transaction")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	err = d.InTurn(t.Context(), time.Second, false, nil, func(tx *postgres.Tx) error {
		wantTurn(t, d, true, "in a transaction that is not shown")
		return read(t, tx)
	})
	if err != nil {
		t.Error(err)
	}
	wantTurn(t, d, true, "after it")
	wantFree(t, d, "after the questions")
}

// Each connection does once, and out of turn, what a turn needs first, and again where that failed.
func TestEachConnectionDoesWhatComesFirst(t *testing.T) {
	t.Parallel()
	d, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.New(t).URL, Role: postgres.Engine, Name: "test", MaxConns: 2, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	calls, failure := 0, errors.New("broken")
	first := func(q *db.Queries) error {
		calls++
		wantTurn(t, d, true, "while something else comes first")
		return errors.Join(gauge(t.Context(), q), failure)
	}
	inTurn := func() error {
		return d.InTurn(t.Context(), time.Second, true, first, func(tx *postgres.Tx) error { return read(t, tx) })
	}
	if err := inTurn(); !errors.Is(err, failure) || calls != 1 {
		t.Errorf("%d calls, %v; want one, and its error", calls, err)
	}
	failure = nil
	for range 2 {
		if err := inTurn(); err != nil || calls != 2 {
			t.Errorf("%d calls, %v; want it once more", calls, err)
		}
	}
	d.Pool().Reset()
	if err := inTurn(); err != nil || calls != 3 {
		t.Errorf("%d calls, %v; want it again on a new connection", calls, err)
	}
	wantFree(t, d, "after all")
}

// Transactions that wait for their turn keep no snapshot, but for the head of the line. Otherwise
// PostgreSQL must keep what is removed while they wait, and the others step over it. The first
// turn of a session reads catalogs, and keeps a snapshot for these.
func TestTheLineForTheTurnKeepsNoSnapshot(t *testing.T) {
	t.Parallel()
	d, _, watch := inTurns(t)
	snapshotsInLine(t, d, watch)
	if n := snapshotsInLine(t, d, watch); n > 1 {
		t.Errorf("%d of those that wait have a snapshot, want 1 at most", n)
	}
	wantFree(t, d, "after all")
}

// snapshotsInLine has three transactions wait for a turn, and says how many of them have a
// snapshot meanwhile.
func snapshotsInLine(t *testing.T, d *postgres.DB, watch *pgx.Conn) (snapshots int) {
	t.Helper()
	var line sync.WaitGroup
	err := turn(t, d, time.Second, func(*postgres.Tx) error {
		for range 3 {
			line.Go(func() {
				if err := turn(t, d, pgtest.Patience, nothing); err != nil {
					t.Error(err)
				}
			})
		}
		until(t, "three wait", func() bool {
			var waiting int
			err := watch.QueryRow(t.Context(), `SELECT count(*), count(backend_xmin) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting, &snapshots)
			if err != nil {
				t.Error(err)
			}
			return waiting == 3 || err != nil
		})
		return nil
	})
	line.Wait()
	if err != nil {
		t.Error(err)
	}
	return snapshots
}

// A transaction that stands in line gives up after its patience.
func TestTheLineForTheTurnGivesUp(t *testing.T) {
	t.Parallel()
	d, beside, _ := inTurns(t)
	do(t, beside, "BEGIN; LOCK TABLE turn_line IN SHARE UPDATE EXCLUSIVE MODE")
	if err := turn(t, d, time.Millisecond, nothing); !postgres.TimedOut(err) {
		t.Errorf("in line: %v, want a time-out", err)
	}
	do(t, beside, "ROLLBACK")
	wantFree(t, d, "after it gave up")
}

// Nobody waits for the commit of the turn before. On the commit before, 16 workers waited up
// to three seconds for one whose commit waited for a slow standby.
func TestATurnEndsBeforeItsCommit(t *testing.T) {
	t.Parallel()
	d, beside, watch := inTurns(t)
	for _, sql := range []string{
		"CREATE FUNCTION wait_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(99); RETURN NULL; END $$",
		"CREATE CONSTRAINT TRIGGER wait_at_commit AFTER INSERT ON service_gauges DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_at_commit()",
		"SELECT pg_advisory_lock(99)",
	} {
		do(t, beside, sql)
	}
	first := make(chan error, 1)
	go func() {
		first <- turn(t, d, time.Second, func(tx *postgres.Tx) error {
			return tx.CommitWith(t.Context(), func(q *db.Queries) error { return gauge(t.Context(), q) })
		})
	}()
	until(t, "the commit waits", func() bool { return waits(t, watch, "COMMIT", 0) })
	wantTurn(t, d, false, "in a commit")
	if err := turn(t, d, time.Second, nothing); err != nil {
		t.Errorf("the next turn: %v", err)
	}
	do(t, beside, "SELECT pg_advisory_unlock(99)")
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// A statement of a turn waits for no lock for long, but for the last one, which waits as long
// as any other does.
func TestTurnsWaitForLocks(t *testing.T) {
	t.Parallel()
	d, beside, watch := inTurns(t)
	do(t, beside, "BEGIN; INSERT INTO service_gauges (name, value, taken_at) VALUES ('x', 0, now())")
	if err := turn(t, d, time.Second, func(tx *postgres.Tx) error { return gauge(t.Context(), tx.Queries) }); !postgres.TimedOut(err) {
		t.Errorf("a statement that waits for a row: %v, want a time-out", err)
	}
	last := make(chan error, 1)
	go func() {
		last <- turn(t, d, time.Second, func(tx *postgres.Tx) error {
			return tx.CommitWith(t.Context(), func(q *db.Queries) error { return gauge(t.Context(), q) })
		})
	}()
	until(t, "the last statement waits", func() bool { return waits(t, watch, "%SetGauges%", 200*time.Millisecond) })
	do(t, beside, "ROLLBACK")
	if err := <-last; err != nil {
		t.Error(err)
	}
	wantFree(t, d, "after both")
}

// waits tells whether a statement waits for a lock, and for how long at least.
func waits(t *testing.T, watch *pgx.Conn, like string, least time.Duration) (so bool) {
	t.Helper()
	err := watch.QueryRow(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE $1
		AND clock_timestamp() - query_start >= $2)`, like, least).Scan(&so)
	if err != nil {
		t.Fatal(err)
	}
	return so
}
