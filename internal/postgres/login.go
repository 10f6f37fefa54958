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
		return fmt.Errorf("connect as the owner to %s: %w", redacted(ownerURL), Fault(err))
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
	// An owner who may not create roles gives a login that an administrator made.
	err := conn.QueryRow(ctx, `SELECT CASE WHEN r.oid IS NULL THEN
		format('CREATE ROLE %I LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD %L;', l.name, nullif($2::text, '')) ELSE '' END
		|| CASE WHEN pg_has_role(r.oid, 'scheduler_api', 'MEMBER') AND pg_has_role(r.oid, 'scheduler_engine', 'MEMBER') THEN '' ELSE
		format('GRANT scheduler_api, scheduler_engine TO %I', l.name) END
		FROM (SELECT $1::text AS name) l LEFT JOIN pg_roles r ON r.rolname = l.name`, app.User, app.Password).Scan(&statement)
	if err != nil {
		return fmt.Errorf("prepare the login role: %w", err)
	}
	if app.User == conn.Config().User || statement == "" {
		return nil // the check of each process at its start says what is wrong with that
	}
	if _, err := conn.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("give %q the processes' roles (an administrator can: %s): %w", app.User, grant(app.User), err)
	}
	return nil
}

// grant is what an administrator can do for an owner who may not.
func grant(login string) string {
	return "GRANT scheduler_api, scheduler_engine TO " + pgx.Identifier{login}.Sanitize()
}
