package worker_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
)

// A poll answers for most keys without next_for_key. It names the same executions, whichever types,
// priorities, times and slots those have that wait for a key, and whether they are being cancelled.
func TestPollsNameWhatIsNextOfEachKey(t *testing.T) {
	t.Parallel()
	conn := session(t)
	for _, statement := range []string{
		// One to four executions wait for each key. In most keys one differs from the others in one way. Some that need a slot find it taken.
		`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority, max_attempts, timeout_ms,
			available_at, sweep_at, concurrency_key, concurrency_limit, generation, cancel_requested_at)
		SELECT gen_random_uuid(), '00000000-0000-0000-0000-00000000000a', gen_random_uuid(), 1, now(), 'manual',
		       CASE WHEN odd AND way = 0 THEN 'http' ELSE 'function' END, CASE WHEN odd AND way = 1 THEN 9 ELSE 0 END, 1, 60000,
		       now() + CASE WHEN odd AND way = 2 THEN interval '1 hour' WHEN way = 3 THEN interval '-1 hour' ELSE (nth - 100) * interval '1 s' END,
		       'infinity', to_char(key, 'FM000'), CASE WHEN odd AND way = 4 THEN 1 ELSE 0 END, 1, CASE WHEN odd AND way = 5 THEN now() END
		FROM (SELECT key, nth, key / 4 % 7 AS way, nth = 1 + key / 28 % (1 + key % 4) AS odd FROM generate_series(0, 251) key, generate_series(1, 4) nth WHERE nth <= 1 + key % 4) e`,
		`INSERT INTO cancellations (tenant_id, job_id, generation, spare_backfills, requested_at, reason, cancelled_by)
		SELECT DISTINCT ON (concurrency_key) tenant_id, job_id, generation, false, now(), '', '' FROM active_executions WHERE concurrency_key LIKE '%7' ORDER BY concurrency_key, available_at`,
		`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at, status, concurrency_limit)
		SELECT gen_random_uuid(), tenant_id, job_id, 1, now(), 'manual', job_type, 1, 60000, now(), 'infinity', 'running', 1 FROM active_executions WHERE awaits_slot AND concurrency_key < '100'`,
		`INSERT INTO running_keys (tenant_id, key, execution_id)
		SELECT DISTINCT ON (concurrency_key) tenant_id, concurrency_key, gen_random_uuid() FROM active_executions WHERE concurrency_key LIKE '%5'`,
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for _, left := range [][]string{{}, {"http"}, {"function"}} {
		rows, err := conn.Query(t.Context(), `SELECT n.id FROM (SELECT DISTINCT tenant_id, concurrency_key FROM active_executions WHERE awaits_turn) k
				CROSS JOIN LATERAL next_for_key(k.tenant_id, k.concurrency_key, $1, false, now()) n
			UNION SELECT n.id FROM (SELECT DISTINCT job_id FROM active_executions WHERE awaits_slot) j CROSS JOIN LATERAL next_for_slot(j.job_id, $1, now(), 0, 256) n`, left)
		if err != nil {
			t.Fatal(err)
		}
		want, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil || len(want) == 0 {
			t.Fatal(want, err)
		}
		found, err := db.New(conn).ListUnblockedExecutions(t.Context(), db.ListUnblockedExecutionsParams{BatchSize: 500, Step: 500, LeftTypes: left})
		if err != nil {
			t.Fatal(err)
		}
		if len(found.Ids) != len(want) {
			t.Errorf("left to others %v: it named %d executions, want %d", left, len(found.Ids), len(want))
		}
		for _, id := range found.Ids {
			if !slices.Contains(want, id) {
				t.Errorf("left to others %v: it named %v, which is not next", left, id)
			}
		}
	}
}
