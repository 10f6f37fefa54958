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
// the package starts and Main stops.
package pgtest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/devstack/leaktest"
)

const (
	// zone is the time zone of every session in a test's database, unless it
	// asks for another: half an hour off and with a daylight saving of half an
	// hour, so that code which relies on the session's zone is wrong by an
	// amount that shows.
	zone = "Australia/Lord_Howe"
	// owner owns the schema. It may create roles, as the migrations do, and is
	// no superuser, to whom no policy would apply.
	owner = "scheduler_owner"
	// login is what the processes log in as: a member of their two roles.
	login = "scheduler"
)

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
// kept and its address printed.
func New(t testing.TB) *Database {
	t.Helper()
	return create(t, (*server).template)
}

// Empty gives the test a database without the schema, for tests of the
// migrations themselves.
func Empty(t testing.TB) *Database {
	t.Helper()
	return create(t, func(*server) (string, error) { return "template0", nil })
}

// Main runs a package's tests, stops their server and looks for goroutines left
// behind. It returns the exit code:
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
func Main(m *testing.M) int { return leaktest.Main(m) }

func create(t testing.TB, template func(*server) (string, error)) *Database {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatalf("no PostgreSQL for the test: %v", err)
	}
	from, err := template(s)
	if err != nil {
		t.Fatalf("make the template database: %v", err)
	}
	name := databaseName(t)
	err = s.exec(t.Context(),
		fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s OWNER %s %s", quote(name), quote(from), owner, s.cloning),
		fmt.Sprintf("ALTER DATABASE %s SET timezone = '%s'", quote(name), zone))
	if err != nil {
		t.Fatalf("make the test's database: %v", err)
	}
	db := &Database{Name: name, URL: s.url(name, login), OwnerURL: s.url(name, owner), AdminURL: s.url(name, "")}
	t.Cleanup(func() { s.remove(t, db) })
	return db
}

// remove drops the database, also when something is still connected to it.
func (s *server) remove(t testing.TB, db *Database) {
	if t.Failed() && os.Getenv("PGTEST_KEEP") != "" {
		s.keep(t, db)
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

// databaseName is unique and tells a person which test it belongs to.
func databaseName(t testing.TB) string {
	name := strings.Map(plain, strings.TrimPrefix(t.Name(), "Test"))
	return fmt.Sprintf("test_%s_%.40s", random(), name)
}
