// Package pgtest gives each test a PostgreSQL database of its own, with the
// schema in it.
//
// It owns the server that a package's tests share, the template that the
// databases are cloned from and their removal. It refuses to share a database
// between tests and to skip: without a server a test fails. Tests of every
// package that touches data call it, and no production file does.
//
// The server is the one named by TEST_DATABASE_URL (a superuser's address in
// URL form) or, where that is not set, a private one that the first test of
// the package starts and Main stops: with settings that make tests fast, or
// with SCHEDULER_TEST_POSTGRES=stock as PostgreSQL comes.
package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/scheduler-service/scheduler/internal/devstack/leaktest"
)

// zone is the time zone of every session in a test's database, unless it asks
// for another: half an hour off and with a daylight saving of half an hour, so
// that code which relies on the session's zone is wrong by an amount that shows.
const zone = "Australia/Lord_Howe"

// Patience is how long a statement of a test may take. On a busy machine a server's process
// stands still for many seconds, and a test that is not about it must not fail by that.
const Patience = time.Minute

// Exec runs SQL at an address, on a connection of its own, and returns how many rows it
// touched. PostgreSQL ends one of two transactions that wait for each other: where it is
// this one, it is sent again.
func Exec(t testing.TB, url, sql string, args ...any) (rows int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for try := 1; ; try++ {
		tag, err := conn.Exec(t.Context(), sql, args...)
		if err == nil {
			return int(tag.RowsAffected())
		}
		var refused *pgconn.PgError
		if try == 20 || !errors.As(err, &refused) || refused.Code != deadlock {
			t.Fatal(err)
		}
	}
}

// Quiet waits until autovacuum writes nothing in the test's database. A pass that reads up to a
// time before which no transaction is open waits for an analysis too, which on a busy machine lasts.
func Quiet(t testing.TB, admin *pgx.Conn) {
	t.Helper()
	for limit := time.After(Patience); ; {
		var busy bool
		err := admin.QueryRow(t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
			WHERE l.locktype = 'transactionid' AND a.datname = current_database() AND a.backend_type = 'autovacuum worker')`).Scan(&busy)
		if err != nil {
			t.Fatal(err)
		}
		if !busy {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-limit:
			t.Fatalf("autovacuum still writes after %v", Patience)
		}
	}
}

// deadlock is the SQLSTATE of a transaction that was ended because it and another one waited
// for each other.
const deadlock = "40P01"

// Database is one test's own database.
type Database struct {
	// Name is its name on the server.
	Name string
	// URL is the address for the processes: what DATABASE_URL is for them.
	URL string
	// OwnerURL is the address for the owner of the schema.
	OwnerURL string
	// AdminURL is the address for the superuser, for what only he may do, such
	// as cutting another's connection.
	AdminURL string
}

// New gives the test a database with the schema in it and nothing else. It is
// dropped when the test ends; with PGTEST_KEEP set, a failed test's database is
// kept, the server left running and the address printed.
//
// A test that runs in a synctest bubble calls New before it enters: the server
// belongs to all tests.
func New(t testing.TB) *Database {
	t.Helper()
	s := sharedServer(t)
	template, err := s.template()
	if err != nil {
		t.Fatalf("make the template database: %v", err)
	}
	return s.create(t, template)
}

// Empty gives the test a database without the schema, for tests of the
// migrations themselves.
func Empty(t testing.TB) *Database {
	t.Helper()
	return sharedServer(t).create(t, "template0")
}

// Main runs a package's tests, stops their server and looks for goroutines left
// behind. It returns the exit code:
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
func Main(m *testing.M) int { return leaktest.Main(m) }

func sharedServer(t testing.TB) *server {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatalf("no PostgreSQL for the test: %v", err)
	}
	return s
}

func (s *server) create(t testing.TB, template string) *Database {
	t.Helper()
	name := databaseName(t)
	err := s.exec(t.Context(),
		fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s OWNER %s %s", quote(name), quote(template), s.owner, s.cloning),
		fmt.Sprintf("ALTER DATABASE %s SET timezone = '%s'", quote(name), zone),
		fmt.Sprintf("ALTER DATABASE %s SET jit = off", quote(name))) // as the sessions of the processes have it
	if err != nil {
		t.Fatalf("make the test's database: %v", err)
	}
	db := &Database{Name: name, URL: s.url(name, s.login), OwnerURL: s.url(name, s.owner), AdminURL: s.url(name, "")}
	t.Cleanup(func() { s.remove(t, db) })
	return db
}

// remove drops the database, also when something is still connected to it.
func (s *server) remove(t testing.TB, db *Database) {
	if t.Failed() && os.Getenv("PGTEST_KEEP") != "" {
		s.kept.Store(true)
		t.Logf("kept: psql '%s'", db.OwnerURL)
		return
	}
	// The test's own context has ended.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.exec(ctx, "DROP DATABASE "+quote(db.Name)+" WITH (FORCE)"); err != nil {
		t.Errorf("drop the test's database: %v", err)
	}
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// plain keeps what may stand in a database's name without quotes.
func plain(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
		return r
	case r >= 'A' && r <= 'Z':
		return r + 'a' - 'A'
	}
	return '_'
}

// prefix begins the name of each test's database.
const prefix = "scheduler_test_"

// databaseName is unique and tells a person which test it belongs to.
func databaseName(t testing.TB) string {
	name := strings.Map(plain, strings.TrimPrefix(t.Name(), "Test"))
	return fmt.Sprintf("%s%s_%.39s", prefix, strings.ToLower(rand.Text()[:8]), name) // at most 63 bytes
}
