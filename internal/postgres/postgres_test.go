package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

func TestOpenRefusesLoginsThatNoPolicyBinds(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	login := "bypasses_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	admin := connect(t, database.AdminURL)
	exec(t, admin, "CREATE ROLE "+login+" LOGIN BYPASSRLS IN ROLE scheduler_api")
	t.Cleanup(func() {
		if _, err := admin.Exec(context.WithoutCancel(t.Context()), "DROP ROLE "+login); err != nil {
			t.Error(err)
		}
	})
	bypasses, err := url.Parse(database.URL)
	if err != nil {
		t.Fatal(err)
	}
	bypasses.User = url.User(login)
	for name, address := range map[string]string{"superuser": database.AdminURL, "owner": database.OwnerURL, "bypasses policies": bypasses.String()} {
		db, err := postgres.Open(t.Context(), postgres.Config{URL: address, Role: postgres.API, Name: "test", MaxConns: 1})
		if err == nil {
			db.Close()
			t.Errorf("%s: accepted", name)
		} else if !strings.Contains(err.Error(), "role") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func open(t *testing.T, database *pgtest.Database) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: postgres.API, Name: "test", MaxConns: 2, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// refusals counts connections that came to nothing.
type refusals struct{ atomic.Int32 }

func (*refusals) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*refusals) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (*refusals) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return ctx
}

func (r *refusals) TraceConnectEnd(_ context.Context, end pgx.TraceConnectEndData) {
	if end.Err != nil {
		r.Add(1)
	}
}

// admitNone has the server refuse new sessions of a database, but for an administrator's, until
// admit is called.
func admitNone(t *testing.T, database *pgtest.Database) (admit func()) {
	t.Helper()
	admin := connect(t, database.AdminURL)
	var name string
	if err := admin.QueryRow(t.Context(), "SELECT quote_ident(current_database())").Scan(&name); err != nil {
		t.Fatal(err)
	}
	exec(t, admin, "ALTER DATABASE "+name+" CONNECTION LIMIT 0")
	return func() { exec(t, admin, "ALTER DATABASE "+name+" CONNECTION LIMIT -1") }
}

// A process that starts while all sessions are taken begins when one is free.
func TestOpenWaitsForASession(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	admit := admitNone(t, database)
	refused, opened := &refusals{}, make(chan error, 1)
	go func() {
		d, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: postgres.API, Name: "test", MaxConns: 2, Tracer: refused})
		if err == nil {
			d.Close()
		}
		opened <- err
	}()
	until(t, "a connection is refused", func() bool { return refused.Load() > 0 || len(opened) > 0 })
	admit()
	if err := <-opened; err != nil {
		t.Errorf("it did not wait: %v", err)
	}
}

// A request that finds no session free waits for one: other processes may have taken all, and
// those of its own process come back.
func TestTransactionWaitsForASession(t *testing.T) {
	t.Parallel()
	database, refused := pgtest.New(t), &refusals{}
	d, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: postgres.API, Name: "test", MaxConns: 3, Tracer: refused})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	admitNone(t, database)
	waited, asked := make(chan error, 2), refused.Load()
	err = d.InTenant(t.Context(), uuid.New(), func(*postgres.Tx) error { // on the only session
		go func() { waited <- d.InTenant(t.Context(), uuid.New(), func(*postgres.Tx) error { return nil }) }()
		go func() { waited <- d.Ping(t.Context()) }()
		until(t, "one is refused", func() bool { return refused.Load() > asked || len(waited) > 0 })
		return nil
	})
	if err = errors.Join(err, <-waited, <-waited); err != nil {
		t.Errorf("they did not wait: %v", err)
	}
}

// After a burst a pool closes the connections that it needs no more, so that other processes
// find sessions free.
func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	const most = 4
	d, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.New(t).URL, Role: postgres.API, Name: "test", MaxConns: most, IdleTime: 30 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	var together, all sync.WaitGroup
	together.Add(most)
	for range most {
		all.Go(func() {
			if err := d.InTenant(t.Context(), uuid.New(), func(*postgres.Tx) error {
				together.Done()
				together.Wait() // each holds a connection
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	until(t, "the pool is empty", func() bool { return d.Pool().Stat().TotalConns() == 0 })
	if err := d.Ping(t.Context()); err != nil {
		t.Errorf("it connects no more: %v", err)
	}
}

func TestTransactionsEndAsTheirFunctionSays(t *testing.T) {
	t.Parallel()
	d := open(t, pgtest.New(t))
	tenant := uuid.New()
	insert := func(fn func(tx *postgres.Tx) error) error {
		return d.InTenant(t.Context(), tenant, func(tx *postgres.Tx) error {
			if err := tx.InsertTenant(t.Context(), db.InsertTenantParams{TenantID: tenant, Name: "x"}); err != nil {
				return err
			}
			return fn(tx)
		})
	}
	there := func() bool {
		t.Helper()
		err := d.InTenant(t.Context(), tenant, func(tx *postgres.Tx) error {
			_, err := tx.GetTenantStatus(t.Context(), tenant)
			return err
		})
		if err != nil && fault.KindOf(err) != fault.NotFound {
			t.Fatal(err)
		}
		return err == nil
	}
	refused := errors.New("refused")
	if err := insert(func(*postgres.Tx) error { return refused }); !errors.Is(err, refused) || there() {
		t.Errorf("after an error %v the row is there: %v", err, there())
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = insert(func(*postgres.Tx) error { panic("defect") })
	}()
	if there() {
		t.Error("after a panic the row is there")
	}
	err := insert(func(tx *postgres.Tx) error {
		if tx.At.IsZero() || tx.At.Location() != time.UTC {
			t.Errorf("the transaction's time is %v", tx.At)
		}
		return tx.CommitWith(t.Context(), func(*db.Queries) error { return nil })
	})
	if err != nil || !there() {
		t.Errorf("after CommitWith: %v, there %v", err, there())
	}
}

// A write that fails with the commit takes the whole transaction along.
func TestCommitWithIsAllOrNothing(t *testing.T) {
	t.Parallel()
	d := open(t, pgtest.New(t))
	tenant := uuid.New()
	err := d.InTenant(t.Context(), tenant, func(tx *postgres.Tx) error {
		return tx.CommitWith(t.Context(), func(q *db.Queries) error {
			if err := q.InsertTenant(t.Context(), db.InsertTenantParams{TenantID: tenant, Name: "x"}); err != nil {
				return err
			}
			return q.InsertTenant(t.Context(), db.InsertTenantParams{TenantID: uuid.New(), Name: "of another tenant"})
		})
	})
	if err == nil {
		t.Fatal("a row of another tenant was written")
	}
	err = d.InTenant(t.Context(), tenant, func(tx *postgres.Tx) error {
		_, err := tx.GetTenantStatus(t.Context(), tenant)
		return err
	})
	if fault.KindOf(err) != fault.NotFound {
		t.Errorf("the first write is there: %v", err)
	}
}

func TestFaultReadsPostgreSQLsCodes(t *testing.T) {
	t.Parallel()
	code := func(code string) error { return &pgconn.PgError{Code: code, TableName: "job_executions"} }
	for _, test := range []struct {
		name string
		err  error
		kind fault.Kind
		code fault.Code
	}{
		{"nothing", nil, fault.Internal, ""},
		{"no row", pgx.ErrNoRows, fault.NotFound, ""},
		{"unique violation", code("23505"), fault.Conflict, "CONFLICT"},
		{"no partition", code("23514"), fault.Internal, postgres.NoPartition},
		{"deadlock", code("40P01"), fault.Unavailable, ""},
		{"lock time-out", code("55P03"), fault.Unavailable, ""},
		{"shutting down", code("57P01"), fault.Unavailable, ""},
		{"disk full", code("53100"), fault.Unavailable, ""},
		{"read-only standby", code("25006"), fault.Unavailable, ""},
		{"a defect of ours", code("42601"), fault.Internal, ""},
		{"deadline", context.DeadlineExceeded, fault.Unavailable, ""},
		{"a fault already", fault.New(fault.Conflict, "X", "x"), fault.Conflict, "X"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := postgres.Fault(test.err)
			if fault.KindOf(got) != test.kind {
				t.Errorf("kind %v, want %v", fault.KindOf(got), test.kind)
			}
			var f *fault.Error
			if errors.As(got, &f) && f.Code != test.code {
				t.Errorf("code %q, want %q", f.Code, test.code)
			}
		})
	}
}

// A batch is divided for an error that repeating it cannot mend, and for no other.
func TestRefusedIsWhatRepeatingCannotMend(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]bool{
		"23514": true, "23505": true, "23502": true, "22003": true, "22P05": true, "22021": true, "54000": true, "P0001": true, "44000": true,
		"40001": false, "40P01": false, "55P03": false, "57014": false, "57P01": false, "53100": false, "53200": false, "08006": false,
		"58030": false, "25006": false, "XX000": false, "XX001": true, "XX002": true, "42501": false, "42P01": false,
	} {
		if got := postgres.Refused(fmt.Errorf("write: %w", &pgconn.PgError{Code: code})); got != want {
			t.Errorf("%s: refused %v, want %v", code, got, want)
		}
		if got := postgres.Refused(postgres.Fault(&pgconn.PgError{Code: code})); got != want {
			t.Errorf("%s as a fault: refused %v, want %v", code, got, want)
		}
	}
	if postgres.Refused(nil) || postgres.Refused(context.DeadlineExceeded) {
		t.Error("what no server refused counts as refused")
	}
}

// A report sees one time, whatever is committed meanwhile, and changes nothing.
func TestASnapshotIsOfOneTime(t *testing.T) {
	t.Parallel()
	d := open(t, pgtest.New(t))
	tenant := uuid.New()
	insert := func(tx *postgres.Tx) error {
		return tx.InsertTenant(t.Context(), db.InsertTenantParams{TenantID: tenant, Name: "x"})
	}
	look := func(tx *postgres.Tx) fault.Kind {
		_, err := tx.GetTenantStatus(t.Context(), tenant)
		return fault.KindOf(postgres.Fault(err))
	}
	err := d.InSnapshot(t.Context(), tenant, func(tx *postgres.Tx) error {
		if look(tx) != fault.NotFound {
			t.Error("it is there already")
		}
		if err := d.InTenant(t.Context(), tenant, insert); err != nil {
			t.Errorf("beside it: %v", err)
		}
		if look(tx) != fault.NotFound {
			t.Error("what was committed after its first statement is seen")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := d.InSnapshot(t.Context(), tenant, func(tx *postgres.Tx) error { look(tx); return insert(tx) }); err == nil {
		t.Error("a report wrote")
	}
	if err := d.InSnapshot(t.Context(), tenant, func(tx *postgres.Tx) error {
		if look(tx) == fault.NotFound {
			t.Error("the next one does not see it")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// Each statement sees what was committed before it, of the tenant alone, and none writes.
func TestStatementsThatAreTransactions(t *testing.T) {
	t.Parallel()
	d := open(t, pgtest.New(t))
	tenant, other := uuid.New(), uuid.New()
	insert := func(id uuid.UUID) func(tx *postgres.Tx) error {
		return func(tx *postgres.Tx) error {
			return tx.InsertTenant(t.Context(), db.InsertTenantParams{TenantID: id, Name: "x"})
		}
	}
	if err := d.InTenant(t.Context(), other, insert(other)); err != nil {
		t.Fatal(err)
	}
	err := d.InTenantEach(t.Context(), tenant, func(tx *postgres.Tx) error {
		if _, err := tx.GetTenantStatus(t.Context(), other); fault.KindOf(postgres.Fault(err)) != fault.NotFound {
			t.Errorf("the other tenant: %v", err)
		}
		if err := d.InTenant(t.Context(), tenant, insert(tenant)); err != nil {
			t.Errorf("beside it: %v", err)
		}
		_, err := tx.GetTenantStatus(t.Context(), tenant)
		return err
	})
	if err != nil {
		t.Errorf("a statement after one that found nothing: %v", err)
	}
	if err := d.InTenantEach(t.Context(), tenant, insert(tenant)); err == nil {
		t.Error("a write went through")
	}
	if err := d.InTenant(t.Context(), other, func(tx *postgres.Tx) error {
		_, err := tx.GetTenantStatus(t.Context(), tenant)
		if fault.KindOf(postgres.Fault(err)) != fault.NotFound {
			t.Errorf("the tenant is seen by the next transaction of the connection: %v", err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// Statements that lock and then count rely on READ COMMITTED, whatever the
// database has for a default.
func TestTransactionsSeeWhatWasCommittedBeforeTheirLocks(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	exec(t, connect(t, database.AdminURL), `DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = ''repeatable read''', current_database());
	END $$`)
	var isolation string
	if err := connect(t, database.AdminURL).QueryRow(t.Context(), "SHOW transaction_isolation").Scan(&isolation); err != nil || isolation != "repeatable read" {
		t.Fatalf("a new session is %q, %v", isolation, err)
	}
	if err := open(t, database).Pool().QueryRow(t.Context(), "SHOW transaction_isolation").Scan(&isolation); err != nil || isolation != "read committed" {
		t.Errorf("a session of ours is %q, %v", isolation, err)
	}
}
