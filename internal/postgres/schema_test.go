package postgres_test

import (
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/migrations"
)

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func count(t *testing.T, conn *pgx.Conn, sql string, args ...any) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// migrationCount is how many there are; their numbers may have gaps.
func migrationCount(t *testing.T) int {
	t.Helper()
	files, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	return len(files)
}

func TestMigrationsGoUpAndDownAndUp(t *testing.T) {
	t.Parallel()
	database := pgtest.Empty(t)
	up := func() int {
		t.Helper()
		n, err := postgres.Migrate(t.Context(), database.OwnerURL, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	want := migrationCount(t)
	if got := up(); got != want {
		t.Errorf("%d migrations applied, want %d", got, want)
	}
	if got := up(); got != 0 {
		t.Errorf("%d applied the second time", got)
	}
	if err := postgres.MigrateDown(t.Context(), database.OwnerURL); err != nil {
		t.Fatal(err)
	}
	left := count(t, connect(t, database.AdminURL), `SELECT count(*) FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v') AND relname NOT LIKE 'goose%'`)
	if left != 0 {
		t.Errorf("%d tables are left after all went down", left)
	}
	if got := up(); got != want {
		t.Errorf("%d migrations applied again, want %d", got, want)
	}
}

func TestMigratorsAtOnceApplyOnce(t *testing.T) {
	t.Parallel()
	database := pgtest.Empty(t)
	applied := make([]int, 3)
	var group errgroup.Group
	for i := range applied {
		group.Go(func() (err error) {
			applied[i], err = postgres.Migrate(t.Context(), database.OwnerURL, slog.New(slog.DiscardHandler))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	want := migrationCount(t)
	if sum := applied[0] + applied[1] + applied[2]; sum != want {
		t.Errorf("applied %v, want %d in all", applied, want)
	}
}

// Each table of the schema has a line in docs/run/storage.md that says what bounds it
// and who removes its rows, and each line a table.
func TestEveryTableSaysWhatBoundsIt(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.New(t).AdminURL)
	rows, err := conn.Query(t.Context(), `SELECT relname::text FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition AND relname <> 'goose_db_version' ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/run/storage.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "## What bounds each table")
	section, _, _ := strings.Cut(after, "\n## ")
	var lines []string
	for _, line := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(section, -1) {
		lines = append(lines, line[1])
	}
	if diff := cmp.Diff(tables, lines); diff != "" {
		t.Errorf("tables and their lines in docs/run/storage.md, in order (-schema +docs):\n%s", diff)
	}
}

// The indexes of the history, and how many entries an execution has in them, are as docs/run/storage.md says.
func TestIndexesOfTheHistoryAreAsTheDocsSay(t *testing.T) {
	t.Parallel()
	rows, err := connect(t, pgtest.New(t).AdminURL).Query(t.Context(), `SELECT relname::text, indisprimary,
		(SELECT string_agg(pg_get_indexdef(indexrelid, k, true), ', ' ORDER BY k) FROM generate_series(1, indnkeyatts::int) k), coalesce(pg_get_expr(indpred, indrelid), '')
		FROM pg_index JOIN pg_class ON oid = indexrelid WHERE indrelid = 'job_executions'::regclass ORDER BY NOT indisprimary, relname`)
	if err != nil {
		t.Fatal(err)
	}
	words := strings.NewReplacer("tenant_id", "tenant", "job_id", "job", "scheduled_at", "scheduled time", "completed_at", "end").Replace
	const notCompleted, failed = "(status <> 'completed'::text)", "(status = 'failed'::text)"
	of := map[string]string{"": "", notCompleted: "; not completed ones", failed: "; failed ones"}
	var indexes []string
	entries := map[string]int{} // by condition, beside that in the primary key
	var name, columns, condition string
	var primary bool
	if _, err := pgx.ForEachRow(rows, []any{&name, &primary, &columns, &condition}, func() error {
		if name = "`" + strings.TrimPrefix(name, "job_executions_") + "`"; primary {
			name = "primary key"
		} else {
			entries[condition]++
		}
		indexes = append(indexes, fmt.Sprintf("%s (%s%s)", name, words(columns), of[condition]))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/run/storage.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "| index | who needs it |\n| --- | --- |\n")
	table, _, _ := strings.Cut(after, "\n\n")
	var lines []string
	for line := range strings.SplitSeq(table, "\n") {
		lines = append(lines, strings.TrimPrefix(strings.Split(line, " | ")[0], "| "))
	}
	if diff := cmp.Diff(indexes, lines); diff != "" {
		t.Errorf("indexes and their lines in docs/run/storage.md, in order (-schema +docs):\n%s", diff)
	}
	number, each := []string{"no", "one", "two", "three", "four", "five", "six", "seven"}, entries[""]
	sentence := fmt.Sprintf("A completed execution has an entry in the primary key and in %s indexes, another one in %s, a failed one in %s.",
		number[each], number[each+entries[notCompleted]], number[each+entries[notCompleted]+entries[failed]])
	if !strings.Contains(string(text), sentence) {
		t.Errorf("docs/run/storage.md does not say: %s", sentence)
	}
}

// Over the catalogue, so that a table or partition of tomorrow is covered: every
// relation that holds a tenant's rows forces row-level security, with a policy
// for the tenant's role, and nobody but the owner may touch a partition.
func TestEveryTenantTableForcesRowLevelSecurity(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	conn := connect(t, database.AdminURL)
	rows, err := conn.Query(t.Context(), `
		SELECT c.relname::text, c.relrowsecurity AND c.relforcerowsecurity,
		       EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = c.oid AND p.polroles @> ARRAY['scheduler_api'::regrole::oid]),
		       c.relispartition, c.relacl::text
		FROM pg_class c
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
		  AND (c.relname = 'tenants' OR EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped))`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	tables, partitions := 0, 0
	for rows.Next() {
		var name string
		var forced, policy, isPartition bool
		var grants *string
		if err := rows.Scan(&name, &forced, &policy, &isPartition, &grants); err != nil {
			t.Fatal(err)
		}
		tables++
		if !forced || !policy {
			t.Errorf("%s: row-level security forced %v, policy for the tenant's role %v", name, forced, policy)
		}
		if isPartition {
			partitions++
			if grants != nil {
				t.Errorf("partition %s is granted to %s", name, *grants)
			}
		}
	}
	if rows.Err() != nil || tables < 8 || partitions < partition.Ahead+1 {
		t.Errorf("%d tables, %d partitions: %v", tables, partitions, rows.Err())
	}
}

// fill makes two tenants with one job and one finished execution each.
func fill(t *testing.T, admin *pgx.Conn) (a, b uuid.UUID) {
	t.Helper()
	a, b = uuid.New(), uuid.New()
	for _, tenant := range []uuid.UUID{a, b} {
		job := uuid.New()
		exec(t, admin, "INSERT INTO tenants (id, name) VALUES ($1, 'x')", tenant)
		exec(t, admin, `INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds)
			VALUES ($1, $2, 'x', 'x', 'http', '{}', 1, 1)`, job, tenant)
		exec(t, admin, `INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, completed_at, created_at)
			VALUES (gen_random_uuid(), now(), $1, $2, 1, 'manual', 'http', 'completed', now(), now())`, tenant, job)
	}
	return a, b
}

// The second wall: whatever a statement asks for, the API's role sees the rows
// of the tenant that the transaction names, and none when it names none.
func TestTheAPIsRoleSeesOneTenant(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	a, b := fill(t, connect(t, database.AdminURL))
	conn := connect(t, database.URL)
	exec(t, conn, "SET ROLE scheduler_api")
	for _, table := range []string{"tenants", "scheduled_jobs", "job_executions", "executions"} {
		if n := count(t, conn, "SELECT count(*) FROM "+table); n != 0 {
			t.Errorf("%s: %d rows are seen without a tenant", table, n)
		}
		exec(t, conn, fmt.Sprintf("SET app.tenant_id = '%s'", a))
		if n := count(t, conn, "SELECT count(*) FROM "+table); n != 1 {
			t.Errorf("%s: %d rows of tenant a are seen, want 1", table, n)
		}
		exec(t, conn, "RESET app.tenant_id")
	}
	exec(t, conn, fmt.Sprintf("SET app.tenant_id = '%s'", a))
	if _, err := conn.Exec(t.Context(), "UPDATE scheduled_jobs SET tenant_id = $1", b); err == nil {
		t.Error("a job was moved to another tenant")
	}
	for _, sql := range []string{
		"UPDATE job_executions SET status = 'failed'", "DELETE FROM job_executions", "DELETE FROM scheduled_jobs",
		"UPDATE job_versions SET spec = '{}'", "TRUNCATE active_executions", "SELECT * FROM goose_db_version",
	} {
		if _, err := conn.Exec(t.Context(), sql); err == nil {
			t.Errorf("the API's role may %s", sql)
		}
	}
	var part string
	if err := conn.QueryRow(t.Context(), "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'job_executions'::regclass LIMIT 1").Scan(&part); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "SELECT * FROM "+part); err == nil {
		t.Errorf("partition %s can be read directly", part)
	}
}

// A terminal outcome cannot be changed by the processes, by grant.
func TestTheEnginesRoleCannotChangeTheHistory(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	fill(t, connect(t, database.AdminURL))
	conn := connect(t, database.URL)
	exec(t, conn, "SET ROLE scheduler_engine")
	if n := count(t, conn, "SELECT count(*) FROM job_executions"); n != 2 {
		t.Errorf("the engine sees %d of 2 rows", n)
	}
	for _, sql := range []string{
		"UPDATE job_executions SET status = 'failed'", "TRUNCATE job_executions",
		"UPDATE scheduled_jobs SET config = '{}'", "INSERT INTO tenants (id, name) VALUES (gen_random_uuid(), 'x')",
		"CREATE TABLE mine (x int)", "ALTER TABLE workers ADD COLUMN x int",
	} {
		if _, err := conn.Exec(t.Context(), sql); err == nil {
			t.Errorf("the engine's role may %s", sql)
		}
	}
	// It may remove only the rows of deleted tenants.
	tag, err := conn.Exec(t.Context(), "DELETE FROM job_executions")
	if err != nil || tag.RowsAffected() != 0 {
		t.Errorf("the engine's role deleted %d rows of a tenant that is there, %v", tag.RowsAffected(), err)
	}
	exec(t, connect(t, database.AdminURL), "UPDATE tenants SET status = 'deleting'")
	if tag, err = conn.Exec(t.Context(), "DELETE FROM job_executions"); err != nil || tag.RowsAffected() != 2 {
		t.Errorf("of a deleted tenant, %d of 2 rows were removed, %v", tag.RowsAffected(), err)
	}
}

// unrecorded are the tables that the API's role writes and whose changes are
// not in the audit log, each with the reason.
var unrecorded = map[string]string{
	"idempotency_keys":     "remembered answers, written with the change itself",
	"job_versions":         "written with the job, whose entry says so",
	"job_credentials":      "written with the job, and sealed",
	"job_executions":       "written when a waiting run is cancelled, whose entry says so",
	"running_counts":       "a counter, made with the tenant",
	"execution_days":       "a counter, written with the run",
	"scheduler_locks":      "the health check takes a lease",
	"execution_retries":    "written with the new execution, whose entry says so",
	"function_versions":    "written with the function, whose entry says version and digest",
	"function_modules":     "written with the function",
	"notification_secrets": "written with the notification, whose entry says so, and sealed",
	"dead_letters":         "removed by a retry, whose entry says so, or discarded, which a row of dead_letter_discards records",
	"job_deadlines":        "written with the job, whose entry says so",
	"job_schedule":         "written with the job, whose entry says so; where a schedule is, is not recorded",
	"cancellations":        "what is left of a change that is recorded with its job or tenant",
}

// Over the catalogue, so that nobody adds a table whose changes nobody sees.
func TestEveryChangeOfTheAPIsRoleIsRecorded(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.New(t).AdminURL)
	rows, err := conn.Query(t.Context(), `
		SELECT c.relname::text, EXISTS (SELECT 1 FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid
		                                WHERE g.tgrelid = c.oid AND p.proname = 'record_change' AND g.tgdeferrable AND g.tginitdeferred)
		FROM pg_class c
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
		  AND (has_any_column_privilege('scheduler_api', c.oid, 'INSERT, UPDATE') OR has_table_privilege('scheduler_api', c.oid, 'DELETE'))`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	written := 0
	for rows.Next() {
		var name string
		var recorded bool
		if err := rows.Scan(&name, &recorded); err != nil {
			t.Fatal(err)
		}
		written++
		switch _, excepted := unrecorded[name]; {
		case excepted == recorded && recorded:
			t.Errorf("%s is recorded: take it off the list", name)
		case !recorded && !excepted:
			t.Errorf("the API's role writes %s and no trigger records it: add one, as the migration of the audit log does", name)
		}
	}
	if rows.Err() != nil || written < 10 {
		t.Errorf("%d tables: %v", written, rows.Err())
	}
}

// Roles belong to the whole cluster, so migrators of several databases meet at
// them, and all of them succeed.
func TestMigratorsOfSeveralDatabasesMakeOneLogin(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	app, err := url.Parse(database.URL)
	if err != nil {
		t.Fatal(err)
	}
	name := "login_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	app.User = url.UserPassword(name, "x")
	defer func() { exec(t, connect(t, database.AdminURL), "DROP ROLE "+name) }()
	var group errgroup.Group
	for range 8 {
		group.Go(func() error { return postgres.EnsureLogin(t.Context(), database.OwnerURL, app.String()) })
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}
