package pgtest

import (
	"context"
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
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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
	// owner owns the schema. It may create roles, as the migrations do, and is
	// no superuser, for whom no policy would hold.
	owner string
	// login is what the processes log in as, a member of their two roles.
	login string
	// password is that of the two; empty for a private server, which asks for
	// none.
	password string
	// cloning is how a template is copied: file by file where nothing waits for
	// the disk, otherwise as the server thinks best.
	cloning string
	// template makes the migrated database at its first call and returns its
	// name.
	template func() (string, error)
	// kept says that a failed test's database is to be looked into.
	kept atomic.Bool
}

// shared is the server of this package's tests, found or started by the first
// test that asks. It is global because the tests have nothing else in common.
var shared = sync.OnceValues(func() (*server, error) {
	if address := os.Getenv("TEST_DATABASE_URL"); address != "" {
		return external(address)
	}
	return private()
})

// private starts a server for this package's tests alone. That takes a tenth of
// a second, and nothing has to outlive the process, as a server shared by all
// packages of a run would.
func private() (*server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // it may have to be installed
	defer cancel()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	stock, err := stockAsked()
	if err != nil {
		return nil, err
	}
	pg, err := devstack.StartPostgres(ctx, devstack.Options{Log: log, Stock: stock})
	if err != nil {
		return nil, err
	}
	s := &server{owner: "scheduler_owner", login: "scheduler"}
	if !stock {
		s.cloning = "STRATEGY file_copy"
	}
	leaktest.AtEnd(func() error {
		if !s.kept.Load() {
			return pg.Stop()
		}
		pid, err := pg.Detach()
		fmt.Fprintf(os.Stderr, "PostgreSQL was left running for the kept databases; kill -INT %d ends it\n", pid)
		return err
	})
	if s.admin, err = url.Parse(pg.AdminURL); err != nil {
		return nil, err
	}
	return s, s.prepare()
}

// stockAsked says that the tests are to run on a server with all defaults.
func stockAsked() (bool, error) {
	switch asked := os.Getenv("SCHEDULER_TEST_POSTGRES"); asked {
	case "":
		return false, nil
	case "stock":
		return true, nil
	default:
		return false, fmt.Errorf("SCHEDULER_TEST_POSTGRES is %q, not stock", asked)
	}
}

// external is a server that somebody else runs, perhaps also for the program
// itself: roles that may log in there get names of their own.
func external(address string) (*server, error) {
	admin, err := url.Parse(address)
	if err != nil || admin.User == nil || !strings.HasPrefix(admin.Scheme, "postgres") {
		return nil, errors.New("TEST_DATABASE_URL must be a superuser's address like postgres://user:password@host/postgres")
	}
	// The same in every process that uses the server, and known only to those
	// who may connect to it as its superuser.
	sum := sha256.Sum256([]byte("pgtest " + admin.User.String()))
	s := &server{admin: admin, owner: "scheduler_owner_test", login: "scheduler_test", password: hex.EncodeToString(sum[:16])}
	return s, s.prepare()
}

func (s *server) prepare() error {
	s.template = sync.OnceValues(s.migrate)
	return s.alone(func(ctx context.Context, conn *pgx.Conn) error {
		if s.password != "" {
			sweep(ctx, conn)
		}
		return s.makeOwner(ctx, conn)
	})
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
		if err := execPatiently(ctx, conn, statement); err != nil {
			return err
		}
	}
	return nil
}

// execPatiently tries again while somebody is connected to the database that a
// statement copies, renames or drops: a session that was ended, and autovacuum,
// take a moment to leave, for which PostgreSQL itself waits five seconds only.
func execPatiently(ctx context.Context, conn *pgx.Conn, statement string) error {
	const tries, inUse = 12, "55006"
	for try := 1; ; try++ {
		_, err := conn.Exec(ctx, statement)
		var refused *pgconn.PgError
		if try == tries || !errors.As(err, &refused) || refused.Code != inUse {
			return err
		}
	}
}

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

// makeOwner makes the role that owns the schema, unless it is there. From
// PostgreSQL 16 on, a role that may create roles may grant only its own; those
// of the processes may be another owner's here.
func (s *server) makeOwner(ctx context.Context, conn *pgx.Conn) error {
	return execOn(ctx, conn,
		fmt.Sprintf(`DO $$ DECLARE r text; BEGIN
			IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '%[1]s') THEN
				CREATE ROLE %[1]s LOGIN CREATEDB CREATEROLE NOSUPERUSER NOBYPASSRLS;
			END IF;
			FOR r IN SELECT rolname FROM pg_roles WHERE rolname IN ('scheduler_api', 'scheduler_engine')
				AND current_setting('server_version_num')::int >= 160000 LOOP
				EXECUTE format('GRANT %%I TO %[1]s WITH ADMIN TRUE, INHERIT FALSE, SET FALSE', r);
			END LOOP; END $$`, s.owner),
		fmt.Sprintf("ALTER ROLE %s PASSWORD '%s'", s.owner, s.password))
}

// sweep drops what is older than a day: databases of tests that were killed, and
// templates, whose partitions were made for the months to come. A database is
// as old as a file that is written when it is made; who may not see that file
// cannot sweep, and need not.
func sweep(ctx context.Context, conn *pgx.Conn) {
	rows, err := conn.Query(ctx, `SELECT datname::text FROM pg_database
		WHERE (starts_with(datname, $1) OR starts_with(datname, $2))
		AND (pg_stat_file(format('base/%s/PG_VERSION', oid), true)).modification < now() - interval '1 day'`,
		prefix, templatePrefix)
	if err != nil {
		return
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return
	}
	for _, name := range names {
		// Not by force: who is connected to it is looking into it.
		_, _ = conn.Exec(ctx, "DROP DATABASE IF EXISTS "+quote(name))
	}
}

// templatePrefix begins the name of each template.
const templatePrefix = "scheduler_template_"

// migrate makes the template unless it is there, and returns its name. It is
// built under another name, so that a template that is there is complete.
func (s *server) migrate() (name string, err error) {
	sum, err := migrationsHash()
	if err != nil {
		return "", err
	}
	name = templatePrefix + sum
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
		"CREATE DATABASE "+unfinished+" OWNER "+s.owner,
		"ALTER DATABASE "+unfinished+" SET timezone = '"+zone+"'")
	if err != nil {
		return err
	}
	ownerURL := s.url(unfinished, s.owner)
	if _, err := postgres.Migrate(ctx, ownerURL, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	if _, err := partition.Prepare(ctx, ownerURL, partition.Month, partition.Ahead); err != nil {
		return err
	}
	if err := postgres.EnsureLogin(ctx, ownerURL, s.url(unfinished, s.login)); err != nil {
		return err
	}
	if err := makeLastMonth(ctx, ownerURL); err != nil {
		return err
	}
	return execOn(ctx, conn,
		fmt.Sprintf("ALTER ROLE %s PASSWORD '%s'", s.login, s.password),
		"ALTER DATABASE "+unfinished+" RENAME TO "+name)
}

// makeLastMonth makes the partition of the month before this one: tests write
// what was over some minutes ago, also in the first minutes of a month.
func makeLastMonth(ctx context.Context, ownerURL string) error {
	conn, err := pgx.Connect(ctx, ownerURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return execOn(ctx, conn, "SELECT create_job_executions_partition(now() - interval '1 month')")
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
