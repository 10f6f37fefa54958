package postgres_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// A trigger counts the active executions of its job. It reads no other executions of the
// tenant, even if PostgreSQL made its plan while the table was empty.
func TestSlotsAreCountedByJob(t *testing.T) {
	t.Parallel()
	const (
		insert = `INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at, concurrency_limit)
			SELECT gen_random_uuid(), $1, CASE WHEN n <= 3 THEN $2::uuid ELSE gen_random_uuid() END, 1, now(), 'manual', 'http', 1, 1000, now(), now(), CASE WHEN n = 1 THEN 0 ELSE 1 END
			FROM generate_series(1, 2000) n`
		ask  = `SELECT sum(taken)::int, sum(waiting)::int FROM count_active(ARRAY[$1::uuid])`
		read = `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'active_executions'`
	)
	tenant, busy, idle := uuid.New(), uuid.New(), uuid.New()
	database := pgtest.New(t)
	admin, session := connect(t, database.AdminURL), connect(t, database.AdminURL)
	exec(t, admin, "SET session_replication_role = replica") // the tenant has no row
	if _, err := admin.Exec(t.Context(), insert, tenant, busy); err != nil {
		t.Fatal(err)
	}
	exec(t, admin, "DELETE FROM active_executions")
	exec(t, admin, "VACUUM (ANALYZE) active_executions")
	exec(t, session, "SET ROLE scheduler_api")
	if _, err := session.Exec(t.Context(), "SELECT set_config('app.tenant_id', $1, false)", tenant.String()); err != nil {
		t.Fatal(err)
	}
	count := func(job uuid.UUID) (taken, waiting, rows int) {
		t.Helper()
		tx, err := session.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(t.Context()) }()
		if err := tx.QueryRow(t.Context(), ask, job).Scan(&taken, &waiting); err != nil {
			t.Fatal(err)
		}
		if err := tx.QueryRow(t.Context(), read).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return taken, waiting, rows
	}
	count(idle) // makes the plans that are kept
	if _, err := admin.Exec(t.Context(), insert, tenant, busy); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		job                  uuid.UUID
		taken, waiting, most int
	}{{idle, 0, 0, 0}, {busy, 1, 2, 6}} { // each count may read all three of the job
		if taken, waiting, rows := count(test.job); taken != test.taken || waiting != test.waiting || rows > test.most {
			t.Errorf("%d slots are taken and %d runs wait, of %d rows read; want %d, %d and %d rows at most", taken, waiting, rows, test.taken, test.waiting, test.most)
		}
	}
}

// A claim that counts its tenant exactly reads the executions that it claims. It reads no others
// of the tenant, even if PostgreSQL made its plan while the table was empty.
func TestExactCountsReadWhatIsClaimed(t *testing.T) {
	t.Parallel()
	const (
		fill = `INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at)
			SELECT gen_random_uuid(), $1, gen_random_uuid(), 1, now(), 'manual', 'http', 1, 1000, now(), now() FROM generate_series(1, 20000)`
		ask  = `SELECT count(*) FROM start_some_runs($1::uuid[], 100, now(), 0::smallint)`
		read = `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'active_executions'`
	)
	tenant := uuid.New()
	database := pgtest.New(t)
	admin, session := connect(t, database.AdminURL), connect(t, database.AdminURL)
	exec(t, admin, "SET session_replication_role = replica") // the tenant and its jobs have no rows
	exec(t, admin, "INSERT INTO running_counts (tenant_id) VALUES ('"+tenant.String()+"')")
	insert := func() {
		t.Helper()
		if _, err := admin.Exec(t.Context(), fill, tenant); err != nil {
			t.Fatal(err)
		}
	}
	insert()
	exec(t, admin, "DELETE FROM active_executions WHERE ctid <> (SELECT max(ctid) FROM active_executions)")
	exec(t, admin, "VACUUM (ANALYZE) active_executions")
	exec(t, session, "SET ROLE scheduler_engine;"+postgres.EnginePlans())
	exec(t, session, "SELECT count(*) FROM start_some_runs(ARRAY[gen_random_uuid()], 100, now(), 0::smallint)") // makes the plans that are kept
	insert()
	var ids []uuid.UUID
	if err := admin.QueryRow(t.Context(), "SELECT array_agg(id) FROM (SELECT id FROM active_executions LIMIT 3) a_few").Scan(&ids); err != nil {
		t.Fatal(err)
	}
	tx, err := session.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	var started, rows int
	if err := tx.QueryRow(t.Context(), ask, ids).Scan(&started); err != nil {
		t.Fatal(err)
	}
	if err := tx.QueryRow(t.Context(), read).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	if started != 3 || rows > 6 {
		t.Errorf("%d runs start, of %d rows read; want 3, and no more than 6 rows", started, rows)
	}
}
