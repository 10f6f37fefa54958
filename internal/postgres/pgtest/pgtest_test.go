package pgtest_test

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

func ask(t *testing.T, url, query string) string {
	t.Helper()
	var answer string
	if err := connect(t, url).QueryRow(t.Context(), query).Scan(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestNew(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, tc := range []struct{ name, url, query, want string }{
		{"session zone", db.URL, "SELECT current_setting('timezone')", "Australia/Lord_Howe"},
		{"login", db.URL, "SELECT current_user::text", "scheduler"},
		{"owner", db.OwnerURL, "SELECT current_user::text", "scheduler_owner"},
		{"name", db.AdminURL, "SELECT current_database()::text", db.Name},
		{"schema", db.URL, "SELECT (schema_version() > 0)::text", "true"},
		{"members", db.URL, "SELECT (pg_has_role('scheduler_api', 'MEMBER') AND pg_has_role('scheduler_engine', 'MEMBER'))::text", "true"},
		{"owner bypasses nothing", db.AdminURL, "SELECT (rolsuper OR rolbypassrls)::text FROM pg_roles WHERE rolname = 'scheduler_owner'", "false"},
		{"schema's owner", db.AdminURL, "SELECT tableowner::text FROM pg_tables WHERE tablename = 'goose_db_version'", "scheduler_owner"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := ask(t, tc.url, tc.query); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestEmptyHasNoSchema(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	if got := ask(t, db.OwnerURL, "SELECT count(*)::text FROM pg_tables WHERE schemaname = 'public'"); got != "0" {
		t.Errorf("%s tables", got)
	}
}
