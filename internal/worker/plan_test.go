package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// session is one of the administrator's, on a database of its own.
func session(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.New(t).AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// TestStatementsStandBadStatistics has the table taken for empty, as vacuum
// leaves it between two bursts, and then filled. The work of a statement must
// follow from how many executions it is about, and not from how many there are.
func TestStatementsStandBadStatistics(t *testing.T) {
	t.Parallel()
	const waiting, asked = 3000, 100
	conn := session(t)
	worker, token := uuid.New(), uuid.New()
	ids := fill(t, conn, worker, token, waiting)[:asked]

	tokens, text := make([]uuid.UUID, asked), make([]string, asked)
	for i := range tokens {
		tokens[i] = token
	}
	n := make([]int64, asked)
	done := db.CompleteExecutionsParams{
		LeftTypes: []string{},
		Ids:       ids, Attempts: make([]int32, asked), LeaseTokens: tokens, Succeeded: make([]bool, asked), RetryMs: n, DurationsUs: n,
		Results: text, ErrorTypes: text, ErrorMessages: text, ErrorStacks: text, MemoryMb: make([]float32, asked), CpuMs: n,
	}
	for _, test := range []struct {
		name string
		call func(ctx context.Context, q *db.Queries) error
	}{
		{"claim", func(ctx context.Context, q *db.Queries) error {
			_, err := q.ClaimExecutions(ctx, db.ClaimExecutionsParams{WorkerID: &worker, LeaseToken: &token, Ids: ids, LeftTypes: []string{}, MaxRunning: 1000})
			return err
		}},
		{"claim of what waits for a place", func(ctx context.Context, q *db.Queries) error {
			_, err := q.ClaimLimitedExecutions(ctx, db.ClaimLimitedExecutionsParams{WorkerID: &worker, LeaseToken: &token, Ids: ids, LeftTypes: []string{}, MaxRunning: 1000})
			return err
		}},
		{"complete", func(ctx context.Context, q *db.Queries) error {
			_, err := q.CompleteExecutions(ctx, done)
			return err
		}},
		{"release", func(ctx context.Context, q *db.Queries) error {
			_, err := q.ReleaseExecutions(ctx, db.ReleaseExecutionsParams{Ids: ids, LeaseTokens: tokens})
			return err
		}},
		{"pool", func(ctx context.Context, q *db.Queries) error {
			_, err := q.PoolExecutions(ctx, ids)
			return err
		}},
		{"pool what is late", func(ctx context.Context, q *db.Queries) error {
			_, err := q.PoolLateExecutions(ctx, db.PoolLateExecutionsParams{BatchSize: asked})
			return err
		}},
	} {
		if got := touched(t, conn, test.call); got > 60*asked {
			t.Errorf("%s: %.0f rows were touched for %d of %d executions", test.name, got, asked, waiting)
		}
	}
}

// A session of a worker plans a poll once, and often while the table is empty. Then every index
// costs the same, and the plan must take those of what may start: the others would have it
// read all executions of the next burst.
func TestPollsPlannedOnAnEmptyTable(t *testing.T) {
	t.Parallel()
	conn := session(t)
	for _, statement := range []string{"SET enable_seqscan = off", "VACUUM ANALYZE active_executions"} { // as sessions of workers have it
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for name, poll := range map[string]func(ctx context.Context, q *db.Queries) error{
		"the pool": func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListPooledExecutions(ctx, db.ListPooledExecutionsParams{BatchSize: 100, Lines: 100, LeftTypes: []string{}})
			return err
		},
		"concurrency slots and keys": func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListUnblockedExecutions(ctx, db.ListUnblockedExecutionsParams{BatchSize: 100, Step: 100, LeftTypes: []string{}})
			return err
		},
		"whether any waits": func(ctx context.Context, q *db.Queries) error {
			_, err := q.HasUnhintedExecutions(ctx)
			return err
		},
	} {
		plan := pgtest.Explain(t, conn, "force_generic_plan", uuid.Nil, func(ctx context.Context, s *pgtest.Statement) error { return poll(ctx, db.New(s)) })
		plan.Walk(func(n pgtest.PlanNode) {
			switch n.Index {
			case "active_executions_pool", "active_executions_slot_lines", "active_executions_key_lines", "active_executions_turn_lines":
			default:
				if n.Relation == "active_executions" {
					t.Errorf("%s: %s by %q", name, n.Type, n.Index)
				}
			}
		})
	}
}

// fill makes a table that the planner takes for one row and that holds more.
func fill(t *testing.T, conn *pgx.Conn, worker, token uuid.UUID, n int) []uuid.UUID {
	t.Helper()
	run := func(statement string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	insert := func() []uuid.UUID {
		t.Helper()
		rows, err := conn.Query(t.Context(), `INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at,
				trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at, status, worker_id, lease_token)
			SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 1, now(), 'scheduled', 'function', 1, 1000, now(), now(),
				CASE WHEN i % 2 = 0 THEN 'running' ELSE 'pending' END, $1, $2 FROM generate_series(1, $3::int) i RETURNING id`, worker, token, n)
		if err != nil {
			t.Fatal(err)
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	first := insert()
	// The last row stays, so that vacuum cannot give the pages back.
	run("DELETE FROM active_executions WHERE id <> $1", first[n-1])
	run("VACUUM ANALYZE active_executions")
	run("INSERT INTO workers (id, host, pid, slots, expires_at) VALUES ($1, '', 1, 1, now() + interval '1 hour')", worker)
	ids := insert()
	run("INSERT INTO running_counts (tenant_id) SELECT DISTINCT tenant_id FROM active_executions")
	return ids
}

// Writing an outcome locks the partition that it is written to and no other.
func TestAnOutcomeLocksOnePartition(t *testing.T) {
	t.Parallel()
	conn := session(t)
	months := make([]time.Time, 12)
	for i := range months {
		months[i] = clock.Now().AddDate(0, -i, 0)
	}
	if _, err := partition.Make(t.Context(), db.New(conn), months); err != nil {
		t.Fatal(err)
	}
	worker, token := uuid.New(), uuid.New()
	id := fill(t, conn, worker, token, 2)[0]
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), "UPDATE active_executions SET status = 'running', attempt = 1, worker_id = $2, lease_token = $3, started_at = now() WHERE id = $1", id, worker, token); err != nil {
		t.Fatal(err)
	}
	rows, err := db.New(tx).CompleteExecutions(t.Context(), db.CompleteExecutionsParams{
		LeftTypes: []string{}, Ids: []uuid.UUID{id}, Attempts: []int32{1}, LeaseTokens: []uuid.UUID{token}, Succeeded: []bool{true}, RetryMs: []int64{-1}, DurationsUs: []int64{1},
		Results: []string{""}, ErrorTypes: []string{""}, ErrorMessages: []string{""}, ErrorStacks: []string{""}, MemoryMb: []float32{0}, CpuMs: []int64{0},
	})
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	var locked int
	err = tx.QueryRow(t.Context(), `SELECT count(DISTINCT i.inhrelid) FROM pg_inherits i JOIN pg_locks l ON l.relation = i.inhrelid AND l.pid = pg_backend_pid()
		WHERE i.inhparent = 'job_executions'::regclass`).Scan(&locked)
	if err != nil || locked != 1 {
		t.Errorf("%d partitions are locked, want 1; %v", locked, err)
	}
}

// touched is how many rows the whole plan of a statement produced, compared or
// threw away.
func touched(t *testing.T, conn *pgx.Conn, ask func(context.Context, *db.Queries) error) (total float64) {
	t.Helper()
	plan := pgtest.Explain(t, conn, "auto", uuid.Nil, func(ctx context.Context, s *pgtest.Statement) error { return ask(ctx, db.New(s)) })
	plan.Walk(func(n pgtest.PlanNode) { total += n.Touched() })
	return total
}

// The next in line, and what a page of executions waits for, follow from a few
// of the tenant's rows and not from all of them.
func TestNextInLineReadsLittle(t *testing.T) {
	t.Parallel()
	const waiting, window = 20_000, 100
	conn := session(t)
	who := uuid.New()
	for _, statement := range []string{
		`INSERT INTO tenants (id, name) VALUES ($1, 'x')`,
		`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at, concurrency_key)
			SELECT gen_random_uuid(), CASE WHEN i % 2 = 0 THEN $1 ELSE gen_random_uuid() END, gen_random_uuid(), 1, now() - i * interval '1 s', 'scheduled', 'function', 1, 1000, now(), now(),
			       CASE WHEN i % 20 = 0 THEN 'key-' || i % 4000 END FROM generate_series(1, 20000) i`,
	} {
		if _, err := conn.Exec(t.Context(), statement, who); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Exec(t.Context(), "ANALYZE active_executions"); err != nil {
		t.Fatal(err)
	}
	rows, err := conn.Query(t.Context(), "SELECT id FROM active_executions WHERE tenant_id = $1 LIMIT 100", who)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		t.Fatal(err)
	}
	next := func(ctx context.Context, q *db.Queries) error {
		_, err := q.ListNextExecutions(ctx, db.ListNextExecutionsParams{
			MaxRunning: 1000, TenantIds: []uuid.UUID{who}, WindowSize: window, Most: 10, KeyTenantIds: []uuid.UUID{who}, Keys: []string{"key-20"},
		})
		return err
	}
	obstacles := func(ctx context.Context, q *db.Queries) error {
		_, err := q.ListObstacles(ctx, db.ListObstaclesParams{TenantID: who, Ids: ids})
		return err
	}
	if got := touched(t, conn, next); got > 30*window {
		t.Errorf("next: %.0f rows were touched for the first of %d", got, waiting)
	}
	if got := touched(t, conn, obstacles); got > 30*window {
		t.Errorf("obstacles: %.0f rows were touched for a page of %d", got, len(ids))
	}
}

// A poll for free keys reads a few pages for each key, for which two executions wait, however many others the tenant's
// executions wait for, also where the planner takes the table for empty. It looks at no key of a tenant that is at its limit.
// The ends of runs read two pages for a key that nobody waits for.
func TestEachKeyIsReadAlone(t *testing.T) {
	t.Parallel()
	const step = 100
	conn := session(t)
	for _, statement := range []string{
		"SET enable_seqscan = off; SET enable_bitmapscan = off", // as the engine's sessions
		"VACUUM ANALYZE active_executions",
		`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at, concurrency_key)
			SELECT gen_random_uuid(), '00000000-0000-0000-0000-00000000000a', gen_random_uuid(), 1, now(), 'scheduled', 'function', 1, 1000, now() - i * interval '1 ms', now(), 'key ' || i / 2 FROM generate_series(1, 5000) i`,
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	tenants, keys := make([]uuid.UUID, step), make([]string, step)
	for i := range keys {
		tenants[i], keys[i] = uuid.UUID{15: 10}, fmt.Sprint("another key ", i)
	}
	poll := func(ctx context.Context, q *db.Queries) error {
		_, err := q.ListUnblockedExecutions(ctx, db.ListUnblockedExecutionsParams{BatchSize: 64, Step: step, LeftTypes: []string{}})
		return err
	}
	for _, test := range []struct {
		name  string
		limit any     // of the tenant
		most  float64 // pages a key
		ask   func(ctx context.Context, q *db.Queries) error
	}{
		{"a poll", nil, 15, poll},
		{"a poll, of a tenant at its limit", 0, 5, poll},
		{"ends of runs", nil, 4, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListNextExecutions(ctx, db.ListNextExecutionsParams{WindowSize: 32, Most: 64, TenantIds: []uuid.UUID{}, KeyTenantIds: tenants, Keys: keys})
			return err
		}},
	} {
		if _, err := conn.Exec(t.Context(), "INSERT INTO tenants (id, name, max_running) VALUES ($1, 'x', $2) ON CONFLICT (id) DO UPDATE SET max_running = EXCLUDED.max_running", tenants[0], test.limit); err != nil {
			t.Fatal(err)
		}
		look := func() float64 {
			return pgtest.Explain(t, conn, "force_generic_plan", uuid.Nil, func(ctx context.Context, s *pgtest.Statement) error { return test.ask(ctx, db.New(s)) }).Buffers()
		}
		look() // plans what functions ask, which reads the catalogue
		if got := look(); got > test.most*step {
			t.Errorf("%s: %.0f pages were read for %d keys, %.0f are enough", test.name, got, step, test.most*step)
		} else {
			t.Logf("%s: %.0f pages for %d keys", test.name, got, step)
		}
	}
}
