package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// oldestServer is the first version of PostgreSQL that has all that statements use,
// as server_version_num counts.
const oldestServer = 150000

// server is what decides whether a server, and a login on it, will do at all.
// Advice names what it should have beside that.
type server struct {
	version        string
	number         int
	encoding       string
	standby        bool
	login          string
	database       string
	mayCreate      bool // tables, in the schema public
	mayCreateRoles bool
	hasRoles       bool // of the processes
}

const serverQuery = `SELECT current_setting('server_version'), current_setting('server_version_num')::int, current_setting('server_encoding'),
	pg_is_in_recovery(), session_user::text, current_database()::text, has_schema_privilege('public', 'CREATE'),
	(SELECT rolcreaterole OR rolsuper FROM pg_roles WHERE rolname = current_user),
	(SELECT count(*) = 2 FROM pg_roles WHERE rolname IN ('scheduler_api', 'scheduler_engine'))`

func readServer(row pgx.Row) (s server, err error) {
	err = row.Scan(&s.version, &s.number, &s.encoding, &s.standby, &s.login, &s.database, &s.mayCreate, &s.mayCreateRoles, &s.hasRoles)
	return s, err
}

// missing lists what keeps any process from working, each a sentence that says what
// to do.
func (s server) missing() (all []string) {
	if s.number < oldestServer {
		all = append(all, fmt.Sprintf("PostgreSQL is version %s and must be 15 or newer", s.version))
	}
	if s.encoding != "UTF8" {
		all = append(all, fmt.Sprintf("the encoding of the database is %s and must be UTF8: make it with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0", s.encoding))
	}
	return all
}

// missingForOwner lists what keeps the owner of the schema from migrating.
func (s server) missingForOwner() []string {
	all, login := s.missing(), pgx.Identifier{s.login}.Sanitize()
	if s.standby {
		all = append(all, "the server is a standby and takes no writes: give the address of the primary")
	}
	if !s.mayCreate {
		all = append(all, fmt.Sprintf("%s may not create tables in the schema public: as an administrator, ALTER DATABASE %s OWNER TO %[1]s",
			login, pgx.Identifier{s.database}.Sanitize()))
	}
	if !s.mayCreateRoles && !s.hasRoles {
		all = append(all, fmt.Sprintf("%s may not create roles, and the roles of the processes do not exist: as an administrator, ALTER ROLE %[1]s CREATEROLE, or CREATE ROLE scheduler_api; CREATE ROLE scheduler_engine", login))
	}
	return all
}

// checkOwner fails with everything that the owner of the schema lacks, before
// anything is changed.
func checkOwner(ctx context.Context, ownerURL string) error {
	return asOwner(ctx, ownerURL, func(conn *pgx.Conn) error {
		s, err := readServer(conn.QueryRow(ctx, serverQuery))
		if err != nil {
			return fmt.Errorf("ask the server what it can do: %w", Fault(err))
		}
		return lacking(s.missingForOwner())
	})
}

// checkServer fails with everything that the server of the processes lacks.
func (d *DB) checkServer(ctx context.Context) error {
	s, err := readServer(d.pool.QueryRow(ctx, serverQuery))
	if err != nil {
		return fmt.Errorf("ask the server what it can do: %w", Fault(err))
	}
	return lacking(s.missing())
}

func lacking(all []string) error {
	if len(all) == 0 {
		return nil
	}
	return errors.New("the database will not do (docs/run/databases.md): " + strings.Join(all, "; "))
}

// noMember says of an error that the login may not act as a role, where that is
// so.
func noMember(err error, login string, role Role) error {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return nil
	}
	quoted := pgx.Identifier{login}.Sanitize()
	switch {
	case refused.Code == "42501" && strings.Contains(refused.Message, "set role"):
		return fmt.Errorf("DATABASE_URL logs in as %s, which may not act as %s: give the processes a role of their own, and run migrate with this DATABASE_URL or GRANT %[2]s TO %[1]s", quoted, role)
	case refused.Code == "22023" && strings.Contains(refused.Message, string(role)):
		return fmt.Errorf("the role %s does not exist: run migrate first", role)
	}
	return nil
}
