package postgres_test

import (
	"fmt"
	"io/fs"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"

	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/migrations"
)

// The rule: a migration never locks a hot table for longer than a second while the
// processes work. No clock says so here, since a loaded machine would decide then:
// a migration is too long if it keeps writers out of a hot table and in the same
// transaction reads or writes more than a few rows of any table, if it writes more
// than a few rows of a hot table, or if it takes so many such locks that waiting
// for all of them takes a second.

// hotTables are those that requests, promoters and workers write all the time.
var hotTables = []string{
	"active_executions", "api_keys", "cancellations", "execution_days", "idempotency_keys", "job_counts", "job_executions",
	"job_versions", "running_counts", "running_keys", "scheduled_jobs", "scheduler_locks", "tenants", "waiting_counts", "workers",
}

// laterTables are hot tables that the baseline has not: a migration divides scheduled_jobs.
var laterTables = []string{"job_definitions", "job_schedule"}

const (
	// hotRows is how many rows a hot table has in these tests, and fewRows how many
	// a migration may touch.
	hotRows, fewRows = 300, 50
	// mostLocks is how many hot tables one migration may lock against writers: it
	// waits half a second for each while it holds those before.
	mostLocks = 3
)

// touched is what one migration did before it was committed.
type touched struct {
	version int64
	locked  []string // hot tables against writers
	busiest string   // the table of which it touched most rows
	rows    int64
	written []string // hot tables of which it wrote more than a few rows
}

func (d touched) breaksTheRule() string {
	switch {
	case len(d.written) > 0:
		return fmt.Sprintf("writes more than %d rows of %v, which stay locked until it is committed", fewRows, d.written)
	case len(d.locked) > 0 && d.rows > fewRows:
		return fmt.Sprintf("keeps writers out of %v while it goes through %d rows of %s", d.locked, d.rows, d.busiest)
	case len(d.locked) > mostLocks:
		return fmt.Sprintf("keeps writers out of %v: that takes %d locks, %d are allowed", d.locked, len(d.locked), mostLocks)
	}
	return ""
}

// observer records in the migration's own transaction, with the row that goose
// writes at its end, which locks it holds and which rows it touched.
const observer = `
CREATE SCHEMA rule;
CREATE TABLE rule.touched (version bigint, locked text[], busiest text, rows bigint, written text[]);
CREATE FUNCTION rule.observe() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
	INSERT INTO rule.touched
	SELECT NEW.version_id,
	       ARRAY(SELECT DISTINCT h.name FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN unnest(TG_ARGV[0]::text[]) h (name)
	             ON coalesce(pg_partition_root(c.oid), c.oid) = to_regclass('public.' || h.name)
	             WHERE l.pid = pg_backend_pid() AND l.granted
	               AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') ORDER BY 1),
	       busy.relname, coalesce(busy.rows, 0),
	       ARRAY(SELECT s.relname FROM pg_stat_xact_user_tables s
	             WHERE s.relname = ANY (TG_ARGV[0]::text[]) AND s.n_tup_ins + s.n_tup_upd + s.n_tup_del > TG_ARGV[1]::int ORDER BY 1)
	FROM (SELECT) one LEFT JOIN (
		SELECT s.relname, s.seq_tup_read + coalesce(s.idx_tup_fetch, 0) + s.n_tup_ins + s.n_tup_upd + s.n_tup_del AS rows
		FROM pg_stat_xact_user_tables s WHERE s.schemaname = 'public' AND s.relname <> 'goose_db_version' ORDER BY 2 DESC LIMIT 1) busy ON true;
	PERFORM pg_stat_force_next_flush(); -- otherwise the next migration's counts begin with these
	RETURN NULL;
END
$$;
CREATE TRIGGER observe AFTER INSERT ON public.goose_db_version FOR EACH ROW EXECUTE FUNCTION rule.observe('{%s}', %d);`

// observe applies migrations to a database with data and answers what each did.
func observe(t *testing.T, database *pgtest.Database, folder fs.FS) (all []touched) {
	t.Helper()
	admin := connect(t, database.AdminURL)
	exec(t, admin, fmt.Sprintf(observer, strings.Join(slices.Concat(hotTables, laterTables), ","), fewRows))
	// Workers of a parallel index build count what they read for themselves.
	exec(t, admin, fmt.Sprintf("ALTER DATABASE %s SET max_parallel_maintenance_workers = 0", pgx.Identifier{database.Name}.Sanitize()))
	if _, err := postgres.MigrateFiles(t.Context(), database.OwnerURL, folder, slog.New(slog.DiscardHandler), 1); err != nil {
		t.Fatal(err)
	}
	rows, err := admin.Query(t.Context(), "SELECT version, locked, coalesce(busiest, ''), rows, written FROM rule.touched ORDER BY version")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var d touched
		if err := rows.Scan(&d.version, &d.locked, &d.busiest, &d.rows, &d.written); err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	return all
}

// fillHotTables writes hotRows rows into each hot table.
var fillHotTables = []string{
	"INSERT INTO tenants (id, name) SELECT gen_random_uuid(), 'tenant ' || n FROM generate_series(1, $1::int) n",
	`INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds, next_execution_at)
	 SELECT gen_random_uuid(), id, name, 'x', 'http', '{}', 1, 1, now() FROM tenants LIMIT $1::int`,
	"INSERT INTO job_versions (job_id, version, tenant_id, spec, created_by) SELECT id, 1, tenant_id, '{}', 'x' FROM scheduled_jobs LIMIT $1::int",
	`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at)
	 SELECT gen_random_uuid(), tenant_id, id, 1, now(), 'scheduled', 'http', 1, 1000, now(), now() FROM scheduled_jobs LIMIT $1::int`,
	`INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, completed_at, created_at)
	 SELECT gen_random_uuid(), now(), tenant_id, id, 1, 'scheduled', 'http', 'completed', now(), now() FROM scheduled_jobs LIMIT $1::int`,
	"INSERT INTO job_counts (tenant_id, strand, jobs) SELECT id, 7, 1 FROM tenants LIMIT $1::int",
	`INSERT INTO api_keys (id, tenant_id, name, prefix, hash, scopes, created_by)
	 SELECT gen_random_uuid(), id, 'x', 'x', decode(repeat('00', 32), 'hex'), '{}', 'x' FROM tenants LIMIT $1::int`,
	"INSERT INTO running_keys (tenant_id, key, execution_id) SELECT tenant_id, 'x', id FROM active_executions LIMIT $1::int",
	"INSERT INTO execution_days (tenant_id, day, executions) SELECT id, now(), 1 FROM tenants LIMIT $1::int ON CONFLICT DO NOTHING",
	"INSERT INTO waiting_counts (tenant_id, job_id, waiting) SELECT tenant_id, id, 1 FROM scheduled_jobs LIMIT $1::int ON CONFLICT DO NOTHING",
	"INSERT INTO workers (id, host, pid, slots, expires_at) SELECT gen_random_uuid(), 'x', n, 1, now() FROM generate_series(1, $1::int) n",
	`INSERT INTO scheduler_locks (name, owner, holder, acquired_at, expires_at)
	 SELECT 'lock ' || n, gen_random_uuid(), 'x', now(), now() FROM generate_series(1, $1::int) n`,
	`INSERT INTO cancellations (tenant_id, job_id, generation, spare_backfills, requested_at, reason, cancelled_by)
	 SELECT tenant_id, id, 1, false, now(), 'x', 'x' FROM scheduled_jobs LIMIT $1::int`,
	`INSERT INTO idempotency_keys (tenant_id, key, route, body_sha256, status, response, expires_at)
	 SELECT id, 'x', 'x', '', 200, '{}', now() FROM tenants LIMIT $1::int`,
}

// filled writes hotRows rows into each hot table.
func filled(t *testing.T, database *pgtest.Database) {
	t.Helper()
	admin := connect(t, database.AdminURL)
	exec(t, admin, "SELECT create_job_executions_partition(now()), create_job_executions_partition(now() + interval '1 month')")
	for _, statement := range fillHotTables {
		exec(t, admin, statement, hotRows)
	}
	for _, table := range hotTables {
		if n := count(t, admin, "SELECT count(*) FROM "+table); n < hotRows {
			t.Errorf("%s has %d rows: the test shows nothing of it", table, n)
		}
	}
}

func TestNoMigrationLocksAHotTableForLong(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name         string
		from, folder fs.FS
	}{
		{"on the way from before 1.0", before10(), toBaseline(t)},
		{"after the baseline", baseline(t), migrations.FS},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			database := pgtest.Empty(t)
			apply(t, database, test.from)
			filled(t, database)
			apart := map[int64]bool{} // committed in pieces, see TestMigrationsWithoutATransactionOnlyWorkConcurrently
			for name, text := range texts(t, test.folder) {
				if number, err := goose.NumericComponent(name); err == nil {
					apart[number] = strings.Contains(text, "NO TRANSACTION")
				}
			}
			for _, did := range observe(t, database, test.folder) {
				if why := did.breaksTheRule(); why != "" && !apart[did.version] {
					t.Errorf("migration %06d %s: add the column or index in a way that reads no rows, and fill it in pieces afterwards", did.version, why)
				}
			}
		})
	}
}

// The rule refuses what it is there for, and lets through what is short.
func TestTheRuleRefusesLongLocks(t *testing.T) {
	t.Parallel()
	type step struct{ name, up, want string }
	steps := []step{
		{"a column with a constant", "ALTER TABLE scheduled_jobs ADD COLUMN a integer NOT NULL DEFAULT 7;", ""},
		{"a column with a new value for each row", "ALTER TABLE scheduled_jobs ADD COLUMN b uuid DEFAULT gen_random_uuid();", "scheduled_jobs"},
		{"another type", "ALTER TABLE job_versions ALTER COLUMN restored_from TYPE bigint;", "job_versions"},
		{"an index", "CREATE INDEX one ON workers (host);", "workers"},
		{"a constraint that reads", "ALTER TABLE tenants ADD CONSTRAINT c CHECK (length(name) < 300);", "tenants"},
		{"a constraint for new rows", "ALTER TABLE tenants ADD CONSTRAINT d CHECK (length(name) < 300) NOT VALID;", ""},
		{"NOT NULL", "ALTER TABLE scheduled_jobs ALTER COLUMN a SET NOT NULL, ALTER COLUMN next_execution_at SET NOT NULL;", "scheduled_jobs"},
		{"an update of all rows", "ALTER TABLE tenants NO FORCE ROW LEVEL SECURITY; UPDATE tenants SET version = 2; ALTER TABLE tenants FORCE ROW LEVEL SECURITY;", "tenants"},
		{"a partition's rows", "ALTER TABLE job_executions ADD CONSTRAINT e CHECK (attempt >= 0);", "job_executions"},
		{"a cold table's rows under a hot one's lock", "ALTER TABLE workers ADD COLUMN f integer; CREATE TABLE f AS SELECT generate_series(1, 300);", "rows of f"},
		{"many locks", "LOCK TABLE tenants, workers, scheduled_jobs, active_executions IN SHARE ROW EXCLUSIVE MODE;", "4 locks"},
		{"a new table", "CREATE TABLE g (tenant_id uuid REFERENCES tenants (id)); INSERT INTO g SELECT NULL FROM generate_series(1, 40);", ""},
	}
	folder, database := baseline(t), pgtest.Empty(t)
	apply(t, database, folder)
	filled(t, database)
	for i, s := range steps {
		folder[fmt.Sprintf("9%05d_step.sql", i)] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + s.up)}
	}
	all := observe(t, database, folder)
	if len(all) != len(steps) {
		t.Fatalf("%d migrations were observed, want %d", len(all), len(steps))
	}
	for i, s := range steps {
		why := all[i].breaksTheRule()
		if (why == "") != (s.want == "") || !strings.Contains(why, s.want) {
			t.Errorf("%s: %q, want %q (%+v)", s.name, why, s.want, all[i])
		}
	}
}

var (
	block = regexp.MustCompile(`(?s)DO \$\$\n.*?\n\$\$;`)
	// A block that is one loop, takes a bounded number of ids, and commits after each of such pieces.
	pieces = regexp.MustCompile(`(?s)^DO \$\$\n(DECLARE\n[^;]*;(\n *[^;\n]*;)*\n)?BEGIN\n    LOOP\n *ids := ARRAY\([^;]*\bLIMIT [0-9]+\);\n(.*)\n        COMMIT;\n    END LOOP;\nEND\n\$\$;$`)
	// The statements that such a piece may have.
	piece = regexp.MustCompile(`(?s)^\s*(EXIT WHEN .*|after := .*|(INSERT|UPDATE|DELETE) .*= ANY \(ids\).*)?$`)
)

// inPieces says whether a block writes the rows of its ids alone, and commits after each piece.
func inPieces(code string) bool {
	found := pieces.FindStringSubmatch(code)
	if found == nil {
		return false
	}
	for statement := range strings.SplitSeq(found[len(found)-1], ";") {
		if !piece.MatchString(statement) {
			return false
		}
	}
	return true
}

// locksLong is a statement of a migration without a transaction that may keep others waiting for long,
// or is empty. Such a migration is not observed, so it may do nothing that takes a strong lock.
func locksLong(text string) string {
	text = block.ReplaceAllStringFunc(text, func(code string) string {
		if inPieces(code) {
			return ""
		}
		return code
	})
	for statement := range strings.SplitSeq(text, ";") {
		var code []string
		for line := range strings.Lines(statement) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
				code = append(code, line)
			}
		}
		said := strings.Join(code, " ")
		if said != "" && said != "SELECT 1" && !strings.Contains(said, "CONCURRENTLY") && !strings.Contains(said, "VALIDATE CONSTRAINT") {
			return said
		}
	}
	return ""
}

func TestMigrationsWithoutATransactionOnlyWorkConcurrently(t *testing.T) {
	t.Parallel()
	for name, text := range texts(t, migrations.FS, toBaseline(t)) {
		if said := locksLong(text); strings.Contains(text, "NO TRANSACTION") && said != "" {
			t.Errorf("%s: %q neither works concurrently nor in pieces", name, said)
		}
	}
	for _, text := range []string{
		"UPDATE tenants t SET version = 2 WHERE EXISTS (SELECT 1 FROM workers);",
		"DO $$\nBEGIN\n    UPDATE tenants SET version = 2;\n    COMMIT;\nEND\n$$;",
		"DO $$\nBEGIN\n    LOOP\n        ids := ARRAY(SELECT id FROM tenants);\n        COMMIT;\n    END LOOP;\nEND\n$$;",
		"DO $$\nBEGIN\n    UPDATE tenants SET version = 2;\n    LOOP\n        ids := ARRAY(SELECT id FROM tenants LIMIT 1000);\n        COMMIT;\n    END LOOP;\nEND\n$$;",
		"DO $$\nBEGIN\n    LOOP\n        ids := ARRAY(SELECT id FROM tenants LIMIT 1000);\n        LOCK TABLE tenants;\n        COMMIT;\n    END LOOP;\nEND\n$$;",
		"DO $$\nBEGIN\n    LOOP\n        ids := ARRAY(SELECT id FROM tenants LIMIT 1000);\n        UPDATE tenants SET version = 2;\n        COMMIT;\n    END LOOP;\nEND\n$$;",
		"SELECT 1;\nALTER TABLE tenants ADD COLUMN a integer;\nSELECT 1;",
	} {
		if locksLong(text) == "" {
			t.Errorf("%q is let through", text)
		}
	}
}
