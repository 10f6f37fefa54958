package postgres_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// The database refuses settings that no definition may have, from every role, when a
// job is inserted and when it is changed.
func TestTheDatabaseBoundsSettings(t *testing.T) {
	t.Parallel()
	conn, tenant, id := connect(t, pgtest.New(t).AdminURL), uuid.New(), uuid.New()
	if _, err := conn.Exec(t.Context(), "INSERT INTO tenants (id, name) VALUES ($1, 'x')", tenant); err != nil {
		t.Fatal(err)
	}
	const insert = `INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds) VALUES ($1, $2, 'x', 'ada', 'http', '{}', 1, 1)`
	if _, err := conn.Exec(t.Context(), insert, id, tenant); err != nil {
		t.Fatal(err)
	}
	for column, values := range map[string][]string{
		"name": {"''", "repeat('x', 201)"}, "cron_expression": {"repeat('x', 257)"}, "interval_ms": {"999"}, "max_executions": {"0"},
		"jitter_seconds": {"-1", "86401"}, "dst_gap": {"'both'"}, "dst_overlap": {"'shift'"}, "max_attempts": {"0", "102"},
		"timeout_seconds": {"0", "86401"}, "execution_timeout_seconds": {"0", "2592001"}, "complete_within_seconds": {"59", "604801"}, "priority": {"-1", "10"}, "max_concurrent": {"0", "1001"}, "concurrency_key": {"repeat('x', 201)"},
		"overlap_policy": {"'queue'"}, "overlap_queue_limit": {"0", "1001"}, "misfire_policy": {"''"}, "misfire_limit": {"0", "1001"},
		"misfire_grace_seconds": {"0", "86401"}, "disable_after_failures": {"0", "1001"},
		"status": {"'deleted'"}, "resume_policy": {"'queue'"}, "version": {"0"},
	} {
		for _, value := range values {
			_, changed := conn.Exec(t.Context(), fmt.Sprintf("UPDATE scheduled_jobs SET %s = %s WHERE id = $1", column, value), id)
			_, copied := conn.Exec(t.Context(), fmt.Sprintf(`INSERT INTO scheduled_jobs SELECT (jsonb_populate_record(j,
				jsonb_build_object('id', gen_random_uuid(), '%s', %s))).* FROM scheduled_jobs j WHERE j.id = $1`, column, value), id)
			for how, err := range map[string]error{"changed": changed, "inserted": copied} {
				var refused *pgconn.PgError
				if want := "scheduled_jobs_" + column + "_check"; !errors.As(err, &refused) || refused.Code != "23514" || refused.ConstraintName != want {
					t.Errorf("%s with %s = %s: %v, want a violation of %s", how, column, value, err, want)
				}
			}
		}
	}
	var refused *pgconn.PgError
	_, err := conn.Exec(t.Context(), "UPDATE scheduled_jobs SET cron_expression = '* * * * * *', interval_ms = 1000 WHERE id = $1", id)
	if !errors.As(err, &refused) || refused.ConstraintName != "scheduled_jobs_one_schedule" {
		t.Errorf("two schedules: %v", err)
	}
}
