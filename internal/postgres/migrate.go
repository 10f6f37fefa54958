package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/migrations"
)

// Migrate brings the schema to the version embedded in this binary, as the
// owner of the schema. Several at once are safe: one applies, the others wait.
// It answers how many migrations it applied.
func Migrate(ctx context.Context, ownerURL string) (applied int, err error) {
	conn, provider, err := openProvider(ownerURL)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	results, err := provider.Up(ctx)
	if err != nil {
		return 0, fmt.Errorf("migrate: %w", err)
	}
	return len(results), nil
}

// MigrateDown takes every migration back: for tests of the down parts.
func MigrateDown(ctx context.Context, ownerURL string) (err error) {
	conn, provider, err := openProvider(ownerURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := provider.DownTo(ctx, 0); err != nil {
		return fmt.Errorf("migrate down: %w", err)
	}
	return nil
}

func openProvider(ownerURL string) (*sql.DB, *goose.Provider, error) {
	config, err := pgx.ParseConfig(ownerURL)
	if err != nil {
		return nil, nil, errors.New("DATABASE_OWNER_URL does not parse") // the driver's text repeats the password
	}
	config.RuntimeParams["application_name"] = "scheduler-migrate"
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		_, err := conn.Exec(ctx, "SET lock_timeout = 10000").ReadAll() // a pooler refuses it as a start-up parameter
		return err
	}
	conn := stdlib.OpenDB(*config)
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60))
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("migration lock: %w", err), conn.Close())
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, conn, migrations.FS, goose.WithSessionLocker(locker))
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("read the migrations: %w", err), conn.Close())
	}
	return conn, provider, nil
}

// EnsureLogin makes the login role named in appURL a member of the processes'
// two roles, creating it with that address's password when it does not exist.
// It needs an owner that may create roles.
func EnsureLogin(ctx context.Context, ownerURL, appURL string) error {
	app, err := pgx.ParseConfig(appURL)
	if err != nil {
		return errors.New("DATABASE_URL does not parse")
	}
	return asOwner(ctx, ownerURL, func(conn *pgx.Conn) error { return ensureLogin(ctx, conn, app) })
}

// AsOwner runs fn on one connection of the schema's owner.
func AsOwner(ctx context.Context, ownerURL string, fn func(q *db.Queries) error) error {
	return asOwner(ctx, ownerURL, func(conn *pgx.Conn) error { return fn(db.New(conn)) })
}

func asOwner(ctx context.Context, ownerURL string, fn func(conn *pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, ownerURL)
	if err != nil {
		return fmt.Errorf("connect as the owner to %s: %w", Redacted(ownerURL), Fault(err))
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	return fn(conn)
}

// ensureLogin makes the login and grants it the processes' roles. Roles are the
// whole cluster's, so another database's migrator may be at it in the same
// moment, and no lock that we can take keeps it out: who was second looks again.
func ensureLogin(ctx context.Context, conn *pgx.Conn, app *pgx.ConnConfig) (err error) {
	for range 5 {
		if err = makeLogin(ctx, conn, app); !overtaken(err) {
			return err
		}
	}
	return err
}

// overtaken says that somebody else made the same row of the catalogue first.
func overtaken(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && slices.Contains([]string{
		"23505", "42710", "XX000", // unique_violation, duplicate_object, "tuple concurrently updated"
	}, refused.Code)
}

func makeLogin(ctx context.Context, conn *pgx.Conn, app *pgx.ConnConfig) error {
	var statement string
	// Role names and passwords are no parameters of DDL: the server quotes them.
	err := conn.QueryRow(ctx, `SELECT CASE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = $1) THEN '' ELSE
		format('CREATE ROLE %I LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD %L;', $1::text, nullif($2::text, '')) END
		|| format('GRANT scheduler_api, scheduler_engine TO %I', $1::text)`, app.User, app.Password).Scan(&statement)
	if err != nil {
		return fmt.Errorf("prepare the login role: %w", err)
	}
	if app.User == conn.Config().User {
		return nil // the check of each process at its start says what is wrong with that
	}
	if _, err := conn.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("grant the processes' roles to %q: %w", app.User, err)
	}
	return nil
}

// SchemaVersion is the version that this binary needs: the number of its
// newest migration.
func SchemaVersion() (int64, error) {
	entries, err := migrations.FS.ReadDir(".")
	if err != nil {
		return 0, fmt.Errorf("read the migrations: %w", err)
	}
	return goose.NumericComponent(entries[len(entries)-1].Name())
}

// CheckSchema reports whether the database's schema is at least the one that
// this binary needs.
func (d *DB) CheckSchema(ctx context.Context) error {
	want, err := SchemaVersion()
	if err != nil {
		return err
	}
	var got int64
	if err := d.pool.QueryRow(ctx, "SELECT schema_version()").Scan(&got); err != nil {
		return fmt.Errorf("the schema is not there yet: run the migrations: %w", Fault(err))
	}
	if got < want {
		return fmt.Errorf("the schema is at version %d and this program needs %d: run the migrations", got, want)
	}
	return nil
}
