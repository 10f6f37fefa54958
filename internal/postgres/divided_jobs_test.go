package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/migrations"
)

// upTo are the migrations up to one with a number.
func upTo(t *testing.T, last int64) fstest.MapFS {
	t.Helper()
	folder := fstest.MapFS{}
	for name, text := range texts(t, migrations.FS) {
		if number, err := goose.NumericComponent(name); err != nil {
			t.Fatal(err)
		} else if number <= last {
			folder[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return folder
}

// jobsOf are all jobs, each column of them.
func jobsOf(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), "SELECT to_jsonb(j)::text FROM scheduled_jobs j ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The migrations that divide the table of the jobs keep each column of each job, those that
// are written meanwhile too.
func TestDividedJobsAreTheSame(t *testing.T) {
	t.Parallel()
	database := pgtest.Empty(t)
	apply(t, database, upTo(t, 700))
	conn := connect(t, database.AdminURL)
	tenant, before, between, after := uuid.New(), uuid.New(), uuid.New(), uuid.New()
	exec(t, conn, "INSERT INTO tenants (id, name) VALUES ($1, 'x')", tenant)
	const insert = `INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds, status, next_execution_at,
			last_execution_at, execution_count, catch_up_until, audited_at, audit_difference)
		SELECT CASE n WHEN 1 THEN $2 ELSE gen_random_uuid() END, $1, 'job ' || n, 'ada', 'http', '{}', 1, 1, (ARRAY['active', 'paused', 'inactive'])[n % 3 + 1],
			now() + n * interval '1 s', now() - n * interval '1 s', n, now() + n * interval '2 s', now() - n * interval '3 s', -n
		FROM generate_series(1, $3::int) n`
	exec(t, conn, insert, tenant, before, 2500) // more than two pieces
	apply(t, database, upTo(t, 710))
	exec(t, conn, insert, tenant, between, 1)
	exec(t, conn, "DELETE FROM scheduled_jobs WHERE name = 'job 7'")
	const change = `UPDATE scheduled_jobs SET status = 'paused', next_execution_at = '2030-01-01', last_execution_at = '2029-01-01', execution_count = execution_count + 1,
		catch_up_until = '2031-01-01', audited_at = '2032-01-01', audit_difference = 7 WHERE id = $1`
	exec(t, conn, change, before)
	apply(t, database, upTo(t, 711))
	exec(t, conn, insert, tenant, after, 1)
	exec(t, conn, change, between)
	exec(t, conn, "DELETE FROM scheduled_jobs WHERE name = 'job 8'")
	want := jobsOf(t, conn)
	if len(want) != 2500 {
		t.Fatalf("%d jobs, want 2500", len(want))
	}
	apply(t, database, migrations.FS)
	if diff := cmp.Diff(want, jobsOf(t, conn)); diff != "" {
		t.Errorf("jobs before and after (-before +after):\n%s", diff)
	}
	exec(t, conn, "DELETE FROM scheduled_jobs WHERE name = 'job 9'")
	if n := count(t, conn, "SELECT count(*) FROM job_schedule s FULL JOIN job_definitions d ON d.id = s.job_id WHERE d.id IS NULL OR s.job_id IS NULL"); n != 0 {
		t.Errorf("%d jobs have a definition or a schedule alone", n)
	}
}

// Each column of a job can be written through the view, and no other changes with it. A job
// keeps its id and its tenant.
func TestAJobIsWrittenThroughItsView(t *testing.T) {
	t.Parallel()
	conn, tenant, id := connect(t, pgtest.New(t).AdminURL), uuid.New(), uuid.New()
	exec(t, conn, "INSERT INTO tenants (id, name) VALUES ($1, 'x')", tenant)
	exec(t, conn, `INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds)
		VALUES ($1, $2, 'x', 'ada', 'http', '{}', 1, 1)`, id, tenant)
	values := map[string]string{}
	for value, columns := range map[string][]string{
		"'y'":                 {"name", "description", "created_by", "timezone", "job_type", "concurrency_key", "status_reason", "status_by", "set_name"},
		"'{y}'":               {"tags", "secret_names"},
		`'{"y": 1}'`:          {"calendars", "config", "retry_config"},
		"'2030-01-01 00:00Z'": {"created_at", "updated_at", "deleted_at", "run_at", "anchor_at", "start_date", "end_date", "status_at", "paused_until", "next_execution_at", "last_execution_at", "catch_up_until", "audited_at"},
		"2":                   {"version", "max_executions", "jitter_seconds", "max_attempts", "timeout_seconds", "priority", "max_concurrent", "overlap_queue_limit", "misfire_limit", "misfire_grace_seconds", "disable_after_failures", "execution_count", "generation", "audit_difference", "execution_timeout_seconds"},
		"1000":                {"interval_ms", "complete_within_seconds"},
		"'0 0 * * * *'":       {"cron_expression"},
		"'skip'":              {"dst_gap", "misfire_policy", "resume_policy"},
		"'both'":              {"dst_overlap"},
		"'allow'":             {"overlap_policy"},
		"'paused'":            {"status"},
	} {
		for _, column := range columns {
			values[column] = value
		}
	}
	rows, err := conn.Query(t.Context(), "SELECT attname::text FROM pg_attribute WHERE attrelid = 'scheduled_jobs'::regclass AND attnum > 0 AND attname NOT IN ('id', 'tenant_id')")
	if err != nil {
		t.Fatal(err)
	}
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(columns) != len(values) {
		t.Fatalf("%d columns, and values for %d; %v", len(columns), len(values), err)
	}
	for _, column := range columns {
		was := jobsOf(t, conn)[0]
		exec(t, conn, fmt.Sprintf("UPDATE scheduled_jobs SET %s = %s WHERE id = $1", column, values[column]), id)
		var changed []string
		err := conn.QueryRow(t.Context(), `SELECT array_agg(n.key::text) FROM scheduled_jobs j, jsonb_each(to_jsonb(j)) n WHERE n.value <> $1::jsonb -> n.key`, was).Scan(&changed)
		if err != nil || len(changed) != 1 || changed[0] != column {
			t.Errorf("%s = %s changes %v; %v", column, values[column], changed, err)
		}
		// Back, because of the three schedules a job has one.
		exec(t, conn, fmt.Sprintf("UPDATE scheduled_jobs SET %[1]s = (jsonb_populate_record(NULL::scheduled_jobs, $2::text::jsonb)).%[1]s WHERE id = $1", column), id, was)
		if diff := cmp.Diff([]string{was}, jobsOf(t, conn)); diff != "" {
			t.Errorf("%s and back (-before +after):\n%s", column, diff)
		}
	}
	if n := count(t, conn, `SELECT count(*) FROM (
		SELECT attname FROM pg_attribute WHERE attrelid IN ('job_definitions'::regclass, 'job_schedule'::regclass) AND attnum > 0 AND NOT attisdropped AND attname <> 'job_id'
		EXCEPT SELECT attname FROM pg_attribute WHERE attrelid = 'scheduled_jobs'::regclass) missing`); n != 0 {
		t.Errorf("%d columns of the tables are not in the view", n)
	}
	for _, column := range []string{"id", "tenant_id"} {
		if _, err := conn.Exec(t.Context(), fmt.Sprintf("UPDATE scheduled_jobs SET %s = gen_random_uuid()", column)); err == nil {
			t.Errorf("%s of a job was changed", column)
		}
	}
}

// meanwhile has a session make a change while another statement waits for the job.
type meanwhile struct{ conn, holder, watch *pgx.Conn }

func meanwhileIn(t *testing.T, database *pgtest.Database) meanwhile {
	t.Helper()
	return meanwhile{connect(t, database.AdminURL), connect(t, database.AdminURL), connect(t, database.AdminURL)}
}

func (m meanwhile) change(t *testing.T, change string, then func() error) {
	t.Helper()
	exec(t, m.holder, "BEGIN")
	exec(t, m.holder, change)
	ended := make(chan error, 1)
	go func() { ended <- then() }()
	const blocked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	for begun := clock.Now(); count(t, m.watch, blocked) == 0; {
		if clock.Now().Sub(begun) > pgtest.Patience {
			t.Fatal("nobody waits for the job")
		}
	}
	exec(t, m.holder, "COMMIT")
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// addJob stores a job through the view.
func addJob(t *testing.T, conn *pgx.Conn) (tenant, id uuid.UUID) {
	t.Helper()
	tenant, id = uuid.New(), uuid.New()
	exec(t, conn, "INSERT INTO tenants (id, name) VALUES ($1, 'x')", tenant)
	exec(t, conn, `INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds, next_execution_at)
		VALUES ($1, $2, 'x', 'ada', 'http', '{}', 1, 1, '2030-01-01')`, id, tenant)
	return tenant, id
}

// A statement that waited for somebody who holds a job leaves it alone through the view, as it
// would find it another one in a table; and one that asks for a run sees what was committed.
func TestAJobThatChangedMeanwhile(t *testing.T) {
	t.Parallel()
	m := meanwhileIn(t, pgtest.New(t))
	tenant, id := addJob(t, m.conn)
	var version int32
	m.change(t, "UPDATE scheduled_jobs SET version = 2, name = 'y'", func() (err error) {
		db.New(m.conn).LockJobToRun(t.Context(), []db.LockJobToRunParams{{TenantID: tenant, ID: id}}).QueryRow(func(_ int, row db.LockJobToRunRow, e error) {
			version, err = row.Version, e
		})
		return err
	})
	if version != 2 {
		t.Errorf("a run of version %d of the job, want 2: the edit was committed before it was locked", version)
	}
	for _, test := range []struct{ change, statement string }{
		{"UPDATE scheduled_jobs SET status = 'paused'", "UPDATE scheduled_jobs SET status = 'inactive' WHERE status = 'active'"},
		{"UPDATE scheduled_jobs SET status = 'inactive'", "DELETE FROM scheduled_jobs WHERE status = 'paused'"},
		{"UPDATE scheduled_jobs SET deleted_at = now()", "UPDATE scheduled_jobs SET last_execution_at = now() WHERE deleted_at IS NULL"},
	} {
		m.change(t, test.change, func() error {
			tag, err := m.conn.Exec(t.Context(), test.statement)
			if n := tag.RowsAffected(); n != 0 {
				t.Errorf("%s: %d jobs were written, want 0", test.statement, n)
			}
			return err
		})
	}
}

// A statement that waited for a job writes what it sets, as LockJobToRun of the version before does,
// and no column that somebody else wrote meanwhile. It returns the job as it is now.
func TestAWriteKeepsWhatChangedMeanwhile(t *testing.T) {
	t.Parallel()
	m := meanwhileIn(t, pgtest.New(t))
	addJob(t, m.conn)
	const advance = `UPDATE scheduled_jobs SET next_execution_at = next_execution_at + interval '1 day', execution_count = execution_count + 1,
		last_execution_at = '2029-01-01', catch_up_until = '2031-01-01'`
	for _, test := range []struct{ name, change, statement string }{
		{"an advance, and a run", advance, "UPDATE scheduled_jobs SET last_execution_at = '2029-06-01'"},
		{"an advance, and an audit", advance, "UPDATE scheduled_jobs SET audited_at = '2032-01-01', audit_difference = 7"},
		{"an advance, and another's count", advance, "UPDATE scheduled_jobs SET execution_count = execution_count + 1"},
		{"an edit, and a run", "UPDATE scheduled_jobs SET version = version + 1, name = 'y', config = '{\"y\": 1}'", "UPDATE scheduled_jobs SET last_execution_at = '2029-07-01'"},
		{"a pause, and a cancellation", "UPDATE scheduled_jobs SET status = 'paused', status_by = 'ada', paused_until = '2030-01-01'", "UPDATE scheduled_jobs SET generation = generation + 1"},
		{"two cancellations", "UPDATE scheduled_jobs SET generation = generation + 1", "UPDATE scheduled_jobs SET generation = generation + 1"},
		{"a cancellation, and a new name", "UPDATE scheduled_jobs SET generation = generation + 1", "UPDATE scheduled_jobs SET tags = '{a,b}', set_name = 'y', updated_at = '2029-01-01'"},
	} {
		was := jobsOf(t, m.conn)
		exec(t, m.holder, "BEGIN")
		exec(t, m.holder, test.change)
		exec(t, m.holder, test.statement)
		want := jobsOf(t, m.holder)
		exec(t, m.holder, "ROLLBACK")
		if cmp.Equal(was, want) {
			t.Errorf("%s: nothing changes", test.name)
		}
		var returned []string
		m.change(t, test.change, func() error {
			rows, err := m.conn.Query(t.Context(), "WITH j AS ("+test.statement+" RETURNING *) SELECT to_jsonb(j)::text FROM j")
			if err == nil {
				returned, err = pgx.CollectRows(rows, pgx.RowTo[string])
			}
			return err
		})
		for what, got := range map[string][]string{"the job": jobsOf(t, m.conn), "what was returned": returned} {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s, as it would be one after the other (-want +got):\n%s", test.name, what, diff)
			}
		}
	}
}

// A deleted definition takes its schedule with it, and a status that no schedule follows is refused.
func TestNoScheduleIsLeftAlone(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.New(t).AdminURL)
	_, id := addJob(t, conn)
	exec(t, conn, "SET session_replication_role = replica")
	exec(t, conn, "DELETE FROM job_definitions WHERE id = $1", id)
	exec(t, conn, "RESET session_replication_role")
	if n := count(t, conn, "SELECT count(*) FROM job_schedule"); n != 0 {
		t.Errorf("%d schedules are left without a job", n)
	}
	_, id = addJob(t, conn)
	exec(t, conn, "DELETE FROM job_schedule WHERE job_id = $1", id)
	_, err := conn.Exec(t.Context(), "UPDATE job_definitions SET status = 'paused' WHERE id = $1", id)
	if err == nil || !strings.Contains(err.Error(), "the schedule of job "+id.String()) {
		t.Errorf("a status that no schedule follows is written; %v", err)
	}
}
