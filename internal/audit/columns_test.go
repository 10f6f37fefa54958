package audit_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// The trigger compares a job whose state alone changes by its columns and every other
// by JSON. Both say the same: the second statement changes a column that neither
// records.
func TestStateOfAJobIsRecordedAsAnyColumnIs(t *testing.T) {
	t.Parallel()
	database, tenant := pgtest.New(t), uuid.New()
	conn, err := pgx.Connect(t.Context(), database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), statement, args...); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	exec("INSERT INTO tenants (id, name) VALUES ($1, 'x')", tenant)
	exec("SELECT set_config('app.tenant_id', $1, false), set_config('app.call', '{}', false)", tenant.String())
	for _, set := range []string{
		"status = 'paused', status_reason = 'a \"reason\"', status_by = 'ada', status_at = now(), paused_until = '2030-01-02 03:04:05.678+05:30', updated_at = now()",
		"status = 'active', status_reason = '', paused_until = NULL, resume_policy = 'skip', next_execution_at = now()",
		"status = 'inactive', status_reason = 'deleted', deleted_at = '2030-01-01', next_execution_at = NULL",
		"status = 'paused', name = 'another', config = '{\"a\": [1, 2]}', version = version + 1",
	} {
		var entries [2][]string
		for i, more := range []string{"", ", execution_count = execution_count + 1"} {
			id := uuid.New()
			exec(`INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds, status_reason, paused_until)
				VALUES ($1, $2, 'x', 'ada', 'http', '{}', 1, 1, 'before', '2029-01-01')`, id, tenant)
			exec("UPDATE scheduled_jobs SET "+set+more+" WHERE id = $1", id)
			rows, err := conn.Query(t.Context(), "SELECT concat_ws('|', change, before, after) FROM audit_log WHERE object_id = $1::text AND change <> 'create'", id)
			if err != nil {
				t.Fatal(err)
			}
			if entries[i], err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(entries[i]) != 1 {
				t.Fatalf("%d entries: %v", len(entries[i]), err)
			}
		}
		if diff := cmp.Diff(entries[1], entries[0]); diff != "" {
			t.Errorf("%s differs (-by JSON +by columns):\n%s", set, diff)
		}
	}
}
