package postgres_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// engine is a pool of one connection, and how to take its round trips, but for
// preparations.
func engine(t *testing.T) (d *postgres.DB, taken func() []string) {
	t.Helper()
	var mu sync.Mutex
	var trips []string
	d, err := postgres.Open(t.Context(), postgres.Config{
		URL: pgtest.New(t).URL, Role: postgres.Engine, Name: "test", MaxConns: 1, StatementTimeout: pgtest.Patience,
		RoundTrip: func(statement string) {
			mu.Lock()
			defer mu.Unlock()
			trips = append(trips, statement)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	taken = func() []string {
		mu.Lock()
		defer mu.Unlock()
		defer func() { trips = nil }()
		return slices.DeleteFunc(trips, func(s string) bool { return s == "prepare" })
	}
	taken() // the check of the role
	return d, taken
}

func read(t *testing.T, tx *postgres.Tx) error {
	_, err := tx.ListDeletingTenants(t.Context(), 10)
	return err
}

func row(t *testing.T, q *db.Queries) error {
	_, err := q.NextDue(t.Context(), db.NextDueParams{})
	return err
}

// batches queues a write and two batches, and then reads the results of the second.
func batches(t *testing.T) func(q *db.Queries) error {
	return func(q *db.Queries) (err error) {
		if err := q.SetGauges(t.Context(), db.SetGaugesParams{Names: []string{"x"}, Values: []int64{1}}); err != nil {
			return err
		}
		tenant := uuid.New()
		_ = q.GetExecutionBounds(t.Context(), []db.GetExecutionBoundsParams{{TenantID: tenant}})
		counts := q.CountActiveOfJob(t.Context(), []db.CountActiveOfJobParams{{TenantID: tenant}, {TenantID: tenant}})
		counted := 0
		counts.QueryRow(func(_ int, _ db.CountActiveOfJobRow, failed error) {
			counted, err = counted+1, errors.Join(err, failed)
		})
		if counted != 2 {
			t.Errorf("%d counts were answered, want 2", counted)
		}
		return err
	}
}

// Statements that travel together are one round trip, named after the first.
func TestRoundTripsAreCounted(t *testing.T) {
	t.Parallel()
	d, taken := engine(t)
	write := func(q *db.Queries) error {
		return q.SetGauges(t.Context(), db.SetGaugesParams{Names: []string{"x", "y"}, Values: []int64{1, 2}})
	}
	for _, test := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"a statement by itself", func() error { return write(db.New(d.Pool())) }, []string{"SetGauges"}},
		{"a transaction", func() error {
			return d.InTx(t.Context(), func(tx *postgres.Tx) error { return read(t, tx) })
		}, []string{"begin", "ListDeletingTenants", "commit"}},
		{"one that is led", func() error {
			return d.InTxLed(t.Context(), func(tx *postgres.Tx) error { return errors.Join(read(t, tx), read(t, tx)) })
		}, []string{"ListDeletingTenants", "ListDeletingTenants", "commit"}},
		{"led, and with writes at the end", func() error {
			return d.InTxLed(t.Context(), func(tx *postgres.Tx) error {
				return errors.Join(read(t, tx), tx.CommitWith(t.Context(), write))
			})
		}, []string{"ListDeletingTenants", "SetGauges"}},
		{"led by a row", func() error {
			return d.InTxLed(t.Context(), func(tx *postgres.Tx) error { return row(t, tx.Queries) })
		}, []string{"NextDue", "commit"}},
		{"batches together, then batches with the commit", func() error {
			return d.InTxLed(t.Context(), func(tx *postgres.Tx) error {
				return errors.Join(tx.Together(t.Context(), batches(t)), tx.CommitWith(t.Context(), batches(t)))
			})
		}, []string{"SetGauges", "SetGauges"}},
		{"statements that are transactions", func() error {
			return d.InTenantEach(t.Context(), uuid.New(), func(tx *postgres.Tx) error { return errors.Join(row(t, tx.Queries), row(t, tx.Queries)) })
		}, []string{"NextDue", "NextDue"}},
		{"the first page of a list", func() error {
			return d.InNewest(t.Context(), uuid.New(), func(tx *postgres.Tx) error { return errors.Join(read(t, tx), read(t, tx)) })
		}, []string{"ListDeletingTenants", "ListDeletingTenants"}},
		{"a snapshot", func() error {
			return d.InSnapshot(t.Context(), uuid.New(), func(tx *postgres.Tx) error { return read(t, tx) })
		}, []string{"ListDeletingTenants", "commit"}},
		{"led, and with writes and rows at the end", func() error {
			return d.InTxLed(t.Context(), func(tx *postgres.Tx) error {
				return errors.Join(read(t, tx), tx.CommitWith(t.Context(), func(q *db.Queries) error {
					if err := write(q); err != nil {
						return err
					}
					_, err := q.ListDeletingTenants(t.Context(), 10)
					return err
				}))
			})
		}, []string{"ListDeletingTenants", "SetGauges"}},
	} {
		err := test.do()
		if diff := cmp.Diff(test.want, taken()); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", test.name, err, diff)
		}
	}
}

// A transaction that is led knows its time once its first statement was
// answered, and begins with nothing else.
func TestALedTransactionBeginsWithARead(t *testing.T) {
	t.Parallel()
	d, taken := engine(t)
	err := d.InTxLed(t.Context(), func(tx *postgres.Tx) error {
		if !tx.At.IsZero() {
			t.Error("the time is known before the beginning")
		}
		err := read(t, tx)
		if tx.At.IsZero() || tx.At.Location() != time.UTC {
			t.Errorf("the transaction's time is %v", tx.At)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, first := range map[string]func(q *postgres.Tx) error{
		"a write":         func(tx *postgres.Tx) error { _, err := tx.PoolExecutions(t.Context(), []uuid.UUID{}); return err },
		"only the commit": func(tx *postgres.Tx) error { return tx.CommitWith(t.Context(), func(*db.Queries) error { return nil }) },
	} {
		if err := d.InTxLed(t.Context(), first); err == nil {
			t.Errorf("%s: the transaction began with it", name)
		}
	}
	taken()
	if err := d.InTx(t.Context(), func(tx *postgres.Tx) error { return read(t, tx) }); err != nil {
		t.Errorf("the connection is of no use afterwards: %v", err)
	}
}

// A read at the end is answered with what was written before it, and with
// nothing where a write failed; the transaction is over either way.
func TestTheLastReadComesWithTheCommit(t *testing.T) {
	t.Parallel()
	d, taken := engine(t)
	tenant, absent := uuid.New(), uuid.New()
	day := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	count := func(before func(q *db.Queries) error) (n int32, err error) {
		err = d.InTxLed(t.Context(), func(tx *postgres.Tx) error {
			if err := read(t, tx); err != nil {
				return err
			}
			return tx.CommitWith(t.Context(), func(q *db.Queries) (err error) {
				if err := before(q); err != nil {
					return err
				}
				n, err = q.CountExecutions(t.Context(), db.CountExecutionsParams{TenantID: tenant, At: day, Added: 1})
				if _, again := q.NextDue(t.Context(), db.NextDueParams{}); again == nil {
					t.Error("something was read after the commit")
				}
				if late := q.EnsureRunningCount(t.Context(), absent); late == nil {
					t.Error("something was written after the commit")
				}
				return err
			})
		})
		return n, err
	}
	good := func(q *db.Queries) error { return q.EnsureRunningCount(t.Context(), tenant) }
	for want := int32(1); want <= 2; want++ {
		if n, err := count(good); n != want || err != nil {
			t.Fatalf("counted %d, want %d; %v", n, want, err)
		}
	}
	if diff := cmp.Diff([]string{"ListDeletingTenants", "EnsureRunningCount", "ListDeletingTenants", "EnsureRunningCount"}, taken()); diff != "" {
		t.Errorf("the round trips (-want +got)\n%s", diff)
	}
	bad := func(q *db.Queries) error {
		return q.SetGauges(t.Context(), db.SetGaugesParams{Names: []string{absent.String(), absent.String()}, Values: []int64{1, 1}}) // twice in one statement
	}
	if _, err := count(bad); err == nil {
		t.Error("a read was answered although a write before it failed")
	}
	if n, err := count(good); n != 3 || err != nil {
		t.Errorf("counted %d after a failure, want 3; %v", n, err)
	}
	missing := func(tx *postgres.Tx) error {
		return errors.Join(read(t, tx), tx.CommitWith(t.Context(), func(q *db.Queries) error {
			_, err := q.GetTenantStatus(t.Context(), absent)
			return err
		}))
	}
	if err := d.InTxLed(t.Context(), missing); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a read that finds no row: %v", err)
	}
}

// Rows that are read along with the commit say so when something before them, or the
// commit itself, failed.
func TestRowsAtTheEndKnowOfTheCommit(t *testing.T) {
	t.Parallel()
	d, _ := engine(t)
	end := func(before func(q *db.Queries) error) error {
		return d.InTxLed(t.Context(), func(tx *postgres.Tx) error {
			return errors.Join(read(t, tx), tx.CommitWith(t.Context(), func(q *db.Queries) error {
				if err := before(q); err != nil {
					return err
				}
				_, err := q.ListDeletingTenants(t.Context(), 10)
				return err
			}))
		})
	}
	gauges := func(names ...string) func(q *db.Queries) error {
		return func(q *db.Queries) error {
			return q.SetGauges(t.Context(), db.SetGaugesParams{Names: names, Values: make([]int64, len(names))})
		}
	}
	if err := end(gauges("x", "x")); err == nil { // twice in one statement
		t.Error("rows were read although a write before them failed")
	}
	if err := end(gauges("x", "y")); err != nil {
		t.Error(err)
	}
	n, err := db.New(d.Pool()).ListGauges(t.Context())
	if err != nil || len(n) != 2 {
		t.Errorf("%d gauges, %v", len(n), err)
	}
}

// A beginning that is refused leaves the connection as good as it was.
func TestALedTransactionThatCannotBeginLeavesItsConnection(t *testing.T) {
	t.Parallel()
	d, _ := engine(t)
	session := func() (pid int) {
		t.Helper()
		if err := d.Pool().QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	before := session()
	call := postgres.WithCall(t.Context(), "no text of PostgreSQL's\x00")
	if err := d.InTxLed(call, func(tx *postgres.Tx) error { return read(t, tx) }); err == nil {
		t.Error("the transaction began")
	}
	if after := session(); after != before {
		t.Error("the connection was given up")
	}
}
