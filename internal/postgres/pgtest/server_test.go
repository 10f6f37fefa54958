package pgtest

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/devstack"
)

// hosted starts a server that asks for passwords, as one that somebody else
// runs, and returns its superuser's address.
func hosted(t *testing.T) (pg *devstack.Postgres, address string) {
	t.Helper()
	pg, err := devstack.StartPostgres(t.Context(), devstack.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pg.Stop() })
	conn := dial(t, pg.AdminURL)
	var file string
	if err := conn.QueryRow(t.Context(), "SELECT current_setting('hba_file')").Scan(&file); err != nil {
		t.Fatal(err)
	}
	if err := execOn(t.Context(), conn, "ALTER ROLE postgres PASSWORD 'sesame'"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("local all all scram-sha-256\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := execOn(t.Context(), conn, "SELECT pg_reload_conf()"); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(pg.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("postgres", "sesame")
	untilRefused(t, pg.AdminURL)
	return pg, u.String()
}

// untilRefused waits until an address is refused: the server is told to read its
// rules again, and does so when it comes to it.
func untilRefused(t *testing.T, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, address)
		if err != nil && ctx.Err() == nil {
			return
		}
		if err != nil {
			t.Fatal("the server did not read its rules")
		}
		_ = conn.Close(ctx)
	}
}

func dial(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

func names(t *testing.T, s *server) string {
	t.Helper()
	var list string
	err := dial(t, s.admin.String()).QueryRow(t.Context(), "SELECT string_agg(datname, ' ' ORDER BY datname) FROM pg_database").Scan(&list)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// failed is a test that failed, whose cleanup is ours to run.
type failed struct {
	testing.TB
	cleanup []func()
}

func (f *failed) Failed() bool      { return true }
func (f *failed) Cleanup(fn func()) { f.cleanup = append(f.cleanup, fn) }

func TestExternalServer(t *testing.T) {
	// Not parallel: it sets a variable of the environment.
	t.Setenv("PGTEST_KEEP", "1")
	pg, address := hosted(t)
	first, err := external(address)
	if err != nil {
		t.Fatal(err)
	}
	second, err := external(address) // another package's tests
	if err != nil {
		t.Fatal(err)
	}
	var made []string
	for _, s := range []*server{first, second} {
		template, err := s.template()
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, template)
	}
	if made[0] != made[1] {
		t.Errorf("templates %v: one for all was expected", made)
	}

	var db *Database
	t.Run("gives databases", func(t *testing.T) {
		db = second.create(t, made[1])
		for _, tc := range []struct{ address, want string }{
			{db.URL, "scheduler_test"}, {db.OwnerURL, "scheduler_owner_test"}, {db.AdminURL, "postgres"},
		} {
			var got string
			if err := dial(t, tc.address).QueryRow(t.Context(), "SELECT current_user::text").Scan(&got); err != nil || got != tc.want {
				t.Errorf("got %s, want %s (%v)", got, tc.want, err)
			}
		}
		if _, err := pgx.Connect(t.Context(), pg.URL(db.Name, "scheduler_test")); err == nil {
			t.Error("the role logs in without a password: this test shows nothing")
		}
	})
	if strings.Contains(names(t, first), db.Name) {
		t.Error("the database was not dropped")
	}
	t.Run("keeps a failed test's", func(t *testing.T) {
		f := &failed{TB: t}
		db := first.create(f, made[0])
		for _, fn := range f.cleanup {
			fn()
		}
		if !strings.Contains(names(t, first), db.Name) || !first.kept.Load() {
			t.Error("the database was dropped")
		}
	})
	t.Run("is swept after a day", func(t *testing.T) { checkSweep(t, first, address, made[0]) })
}

// checkSweep turns one database's clock back and looks what the next run does.
func checkSweep(t *testing.T, s *server, address, old string) {
	t.Helper()
	var file string
	err := dial(t, s.admin.String()).QueryRow(t.Context(),
		"SELECT current_setting('data_directory') || '/base/' || oid FROM pg_database WHERE datname = $1", old).Scan(&file)
	if err != nil {
		t.Fatal(err)
	}
	before := clock.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(filepath.Join(file, "PG_VERSION"), before, before); err != nil {
		t.Fatal(err)
	}
	kept := names(t, s)
	if _, err := external(address); err != nil {
		t.Fatal(err)
	}
	if got, want := names(t, s), strings.ReplaceAll(kept, old+" ", ""); got != want {
		t.Errorf("after the sweep: %s\nwanted: %s", got, want)
	}
}

func TestExternalAddressIsChecked(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"host=/tmp user=x", "postgres://localhost/x", "http://u:p@localhost/", ":"} {
		if _, err := external(address); err == nil || !strings.Contains(err.Error(), "TEST_DATABASE_URL") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestDatabaseNameFits(t *testing.T) {
	t.Parallel()
	t.Run(strings.Repeat("Long/ä'\"", 20), func(t *testing.T) {
		a, b := databaseName(t), databaseName(t)
		if len(a) != 63 || a == b || !strings.HasPrefix(a, "scheduler_test_") || !strings.Contains(a, "_databasenamefits_long") {
			t.Errorf("names %q and %q", a, b)
		}
	})
}

// A clone of a template to which somebody is connected fails: nothing that
// makes the template may hold on to it.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	for range 8 {
		t.Run("one of many", func(t *testing.T) {
			t.Parallel()
			db := New(t)
			conn := dial(t, db.OwnerURL)
			if err := execOn(t.Context(), conn, "CREATE TABLE mine ()"); err != nil {
				t.Error(err)
			}
			// Left open: dropping the database must not need it closed.
		})
	}
}
