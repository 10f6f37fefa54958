package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// EnsureDatabase makes, as the superuser of a private server, the database and
// its owner, who may create roles and nothing else that matters. Existing roles
// already stays.
func EnsureDatabase(ctx context.Context, adminURL, database, owner string) error {
	conn, err := pgx.Connect(ctx, adminURL)
	if err != nil {
		return fmt.Errorf("connect to the private server: %w", Fault(err))
	}
	defer conn.Close(ctx) // its error says nothing about the work
	for _, statement := range []string{
		"CREATE ROLE " + pgx.Identifier{owner}.Sanitize() + " LOGIN CREATEROLE NOSUPERUSER NOBYPASSRLS",
		"CREATE DATABASE " + pgx.Identifier{database}.Sanitize() + " OWNER " + pgx.Identifier{owner}.Sanitize(),
	} {
		if _, err := conn.Exec(ctx, statement); err != nil && !isDuplicate(err) {
			return fmt.Errorf("prepare the private server: %w", Fault(err))
		}
	}
	return nil
}

// isDuplicate reports whether something was not made because it is there:
// duplicate_object and duplicate_database.
func isDuplicate(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && (pe.Code == "42710" || pe.Code == "42P04")
}
