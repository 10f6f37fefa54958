package pgtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/devstack"
	"github.com/scheduler-service/scheduler/internal/devstack/leaktest"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/migrations"
)

// server is where the tests' databases are.
type server struct {
	// admin is the superuser's address.
	admin *url.URL
	// password is that of the roles made here; empty for a private server,
	// which asks for none.
	password string
	// cloning is how a template is copied: file by file where nothing waits for
	// the disk, otherwise as the server thinks best.
	cloning string
	// migrated makes the template at its first call and returns its name.
	migrated func() (string, error)
}

// shared is the server of this package's tests, found or started by the first
// test that asks. It is global as the tests have nothing else in common.
var shared = sync.OnceValues(func() (*server, error) {
	s, err := open(os.Getenv("TEST_DATABASE_URL"))
	if err != nil {
		return nil, err
	}
	s.migrated = sync.OnceValues(s.migrate)
	return s, s.alone(s.makeOwner)
})

func open(address string) (*server, error) {
	if address != "" {
		return external(address)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	pg, err := devstack.StartPostgres(ctx, devstack.Options{Install: true, Log: log})
	if err != nil {
		return nil, err
	}
	leaktest.AtEnd(pg.Stop)
	admin, err := url.Parse(pg.AdminURL)
	return &server{admin: admin, cloning: "STRATEGY file_copy"}, err
}

// external is a server that somebody else runs.
func external(address string) (*server, error) {
	admin, err := url.Parse(address)
	if err != nil || admin.User == nil || !strings.HasPrefix(admin.Scheme, "postgres") {
		return nil, errors.New("TEST_DATABASE_URL must be a superuser's address like postgres://user:password@host/postgres")
	}
	// The same in every process that uses the server, and known only to those
	// who may connect to it as its superuser.
	sum := sha256.Sum256([]byte("pgtest " + address))
	return &server{admin: admin, password: hex.EncodeToString(sum[:16])}, nil
}

// url is the address of a database for a role; for the superuser when the role
// is empty.
func (s *server) url(database, role string) string {
	u := *s.admin
	u.Path = "/" + database
	switch {
	case role != "" && s.password != "":
		u.User = url.UserPassword(role, s.password)
	case role != "":
		u.User = url.User(role)
	}
	return u.String()
}

// exec runs statements one by one as the superuser.
func (s *server) exec(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, s.admin.String())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return execOn(ctx, conn, statements...)
}

func execOn(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) template() (string, error) { return s.migrated() }

// ownLock excludes the other packages' tests on a server that is not ours
// while roles or a template are made. The number is arbitrary.
const ownLock = 7_310_529_114

// alone runs fn as the superuser while no other process does.
func (s *server) alone(fn func(ctx context.Context, conn *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.admin.String())
	if err != nil {
		return err
	}
	defer conn.Close(ctx) // which gives the lock back
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", ownLock); err != nil {
		return err
	}
	return fn(ctx, conn)
}

// makeOwner makes the role that owns the schema, unless it is there.
func (s *server) makeOwner(ctx context.Context, conn *pgx.Conn) error {
	return execOn(ctx, conn,
		fmt.Sprintf(`DO $$ BEGIN
			IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '%[1]s') THEN
				CREATE ROLE %[1]s LOGIN CREATEDB CREATEROLE NOSUPERUSER NOBYPASSRLS;
			END IF; END $$`, owner),
		fmt.Sprintf("ALTER ROLE %s PASSWORD '%s'", owner, s.password))
}

// migrate makes the template unless it is there, and returns its name. It is
// built under another name, so that a template that is there is complete.
func (s *server) migrate() (name string, err error) {
	sum, err := migrationsHash()
	if err != nil {
		return "", err
	}
	name = "scheduler_template_" + sum
	return name, s.alone(func(ctx context.Context, conn *pgx.Conn) error {
		var there bool
		err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&there)
		if err != nil || there {
			return err
		}
		return s.build(ctx, conn, name)
	})
}

func (s *server) build(ctx context.Context, conn *pgx.Conn, name string) error {
	unfinished := name + "_unfinished"
	err := execOn(ctx, conn,
		"DROP DATABASE IF EXISTS "+unfinished+" WITH (FORCE)",
		"CREATE DATABASE "+unfinished+" OWNER "+owner,
		"ALTER DATABASE "+unfinished+" SET timezone = '"+zone+"'")
	if err != nil {
		return err
	}
	ownerURL := s.url(unfinished, owner)
	if _, err := postgres.Migrate(ctx, ownerURL); err != nil {
		return err
	}
	err = postgres.AsOwner(ctx, ownerURL, func(q *db.Queries) error {
		_, err := partition.Keep(ctx, q, time.Time{})
		return err
	})
	if err != nil {
		return err
	}
	if err := postgres.EnsureLogin(ctx, ownerURL, s.url(unfinished, login)); err != nil {
		return err
	}
	return execOn(ctx, conn, "ALTER DATABASE "+unfinished+" RENAME TO "+name)
}

// migrationsHash names the schema: the text of every migration.
func migrationsHash() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(migrations.FS, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := migrations.FS.ReadFile(path)
		fmt.Fprintf(sum, "%s %d\n", path, len(text))
		sum.Write(text)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)[:6]), err
}

func (s *server) keep(t testing.TB, db *Database) {
	t.Logf("kept: psql '%s'", db.OwnerURL)
}

func random() string { return strings.ToLower(rand.Text()[:8]) }
