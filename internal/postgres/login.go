package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/scheduler-service/scheduler/db"
)

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
