package worker_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// backlogs is a tenant with a backlog of each kind: behind a key that a run holds,
// behind the concurrency slots of a job, behind a key and slots together, and
// behind the tenant's own limit. Every other execution is of another moment than
// the index order of its line.
type backlogs struct {
	conn                  *pgx.Conn
	tenant, worker, token uuid.UUID
	gated, both           uuid.UUID   // jobs
	running               uuid.UUID   // an execution of gated that has a slot
	waiting               []uuid.UUID // some executions of gated that wait
}

func newBacklogs(t *testing.T, each int) backlogs {
	t.Helper()
	conn := session(t)
	c := backlogs{conn: conn, tenant: uuid.New(), worker: uuid.New(), token: uuid.New(), gated: uuid.New(), both: uuid.New(), running: uuid.New()}
	run := func(statement string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	const columns = `INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority, max_attempts, timeout_ms,
		available_at, sweep_at, concurrency_limit, concurrency_key, pooled, status, attempt, worker_id, lease_token, attempt_started_at) `
	const waits = ` 1, now() - i * interval '1 s', 'manual', 'function', i % 3, 1, 1000, now() - i * interval '1 s', 'infinity', `
	run(`INSERT INTO tenants (id, name, max_running) VALUES ($1, 'x', 5)`, c.tenant)
	run(`INSERT INTO workers (id, host, pid, slots, expires_at) VALUES ($1, '', 1, 1, now() + interval '1 hour')`, c.worker)
	run(`INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds, overlap_policy)
		VALUES ($1, $2, 'gated', 'ada', 'function', '{}', 1, 1, 'queue_all')`, c.gated, c.tenant)
	run(columns+`SELECT gen_random_uuid(), $1, gen_random_uuid(), `+waits+`0, 'lathe', false, 'pending', 0, NULL, NULL, NULL FROM generate_series(1, $2::int) i`, c.tenant, each)
	run(columns+`SELECT gen_random_uuid(), $1, $3, `+waits+`2, NULL, false, 'pending', 0, NULL, NULL, NULL FROM generate_series(1, $2::int) i`, c.tenant, each, c.gated)
	run(columns+`SELECT gen_random_uuid(), $1, $3, `+waits+`3, 'lathe', false, 'pending', 0, NULL, NULL, NULL FROM generate_series(1, $2::int) i`, c.tenant, each, c.both)
	run(columns+`SELECT gen_random_uuid(), $1, gen_random_uuid(), `+waits+`0, NULL, true, 'pending', 0, NULL, NULL, NULL FROM generate_series(1, $2::int) i`, c.tenant, each)
	run(columns+`VALUES ($1, $2, $3, 1, now(), 'manual', 'function', 1, 1, 1000, now() - interval '1 day', now(), 2, NULL, false, 'running', 1, $4, $5, now()),
		(gen_random_uuid(), $2, $3, 1, now(), 'manual', 'function', 1, 1, 1000, now(), now(), 0, NULL, true, 'pending', 0, NULL, NULL, NULL)`,
		c.running, c.tenant, c.gated, c.worker, c.token)
	run(`UPDATE running_shards SET runs = 1, runs_by_type = jsonb_build_object('function', 1), backlogged_at = now() WHERE shard = 0 AND tenant_id = $1`, c.tenant)
	run("SET jit = off")
	run("VACUUM ANALYZE active_executions")
	rows, err := conn.Query(t.Context(), "SELECT id FROM active_executions WHERE job_id = $1 AND status = 'pending' AND concurrency_limit > 0 LIMIT 20", c.gated)
	if err != nil {
		t.Fatal(err)
	}
	if c.waiting, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID]); err != nil {
		t.Fatal(err)
	}
	return c
}

// complete is what ends the run that has a slot.
func (c backlogs) complete() db.CompleteExecutionsParams {
	return db.CompleteExecutionsParams{
		LeftTypes: []string{},
		Ids:       []uuid.UUID{c.running}, Attempts: []int32{1}, LeaseTokens: []uuid.UUID{c.token}, Succeeded: []bool{true}, RetryMs: []int64{-1},
		DurationsUs: []int64{1}, Results: []string{""}, ErrorTypes: []string{""}, ErrorMessages: []string{""}, ErrorStacks: []string{""},
		MemoryMb: []float32{0}, CpuMs: []int64{0},
	}
}

// A concurrency key, a concurrency slot or room of a tenant that becomes free costs
// a few index reads, however many wait for it.
func TestBacklogsCostNothing(t *testing.T) {
	t.Parallel()
	const each = 10_000 // of four kinds; they fill some 2,600 pages
	c := newBacklogs(t, each)
	far := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name string
		most float64 // pages
		call func(ctx context.Context, q *db.Queries) error
	}{
		{"a slot is freed", 150, func(ctx context.Context, q *db.Queries) error {
			_, err := q.CompleteExecutions(ctx, c.complete())
			return err
		}},
		{"a key is freed", 800, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListNextExecutions(ctx, db.ListNextExecutionsParams{
				WindowSize: 32, Most: 64, TenantIds: []uuid.UUID{}, KeyTenantIds: []uuid.UUID{c.tenant}, Keys: []string{"lathe"},
			})
			return err
		}},
		{"room of a tenant is freed", 1200, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListNextExecutions(ctx, db.ListNextExecutionsParams{
				WindowSize: 32, Most: 64, TenantIds: []uuid.UUID{c.tenant}, KeyTenantIds: []uuid.UUID{}, Keys: []string{},
			})
			return err
		}},
		{"a look for places and keys", 1200, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListUnblockedExecutions(ctx, db.ListUnblockedExecutionsParams{BatchSize: 64, Step: 256, LeftTypes: []string{}})
			return err
		}},
		{"a claim of what waits for a slot", 300, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ClaimLimitedExecutions(ctx, db.ClaimLimitedExecutionsParams{WorkerID: &c.worker, LeaseToken: &c.token, Ids: c.waiting, LeftTypes: []string{}})
			return err
		}},
		{"places are counted", 400, func(ctx context.Context, q *db.Queries) error {
			var err error
			q.CountActiveOfJob(ctx, []db.CountActiveOfJobParams{{TenantID: c.tenant, JobID: c.gated}}).QueryRow(func(_ int, _ db.CountActiveOfJobRow, e error) { err = e })
			return err
		}},
		{"obstacles of a page", 300, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListObstacles(ctx, db.ListObstaclesParams{TenantID: c.tenant, Ids: c.waiting})
			return err
		}},
		{"a page of the job", 200, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListExecutions(ctx, db.ListExecutionsParams{TenantID: c.tenant, JobID: &c.gated, ToAt: far, PlaceAt: far, PlaceID: uuid.Max, PageSize: 21})
			return err
		}},
	} {
		explain := func() pgtest.PlanNode {
			return pgtest.Explain(t, c.conn, "auto", c.tenant, func(ctx context.Context, s *pgtest.Statement) error { return test.call(ctx, db.New(s)) })
		}
		explain() // plans what functions ask, which reads the catalogue
		plan := explain()
		t.Logf("%s: %.0f pages, %.2f ms", test.name, plan.Buffers(), plan.Took)
		if got := plan.Buffers(); got > test.most {
			t.Errorf("%s: %.0f pages were read with %d waiting, %.0f are enough", test.name, got, each, test.most)
		}
	}
}

// A claim of what has no key and waits for no slot writes to no index.
func TestOrdinaryClaimsStayHOT(t *testing.T) {
	t.Parallel()
	c := newBacklogs(t, 10)
	tx, err := c.conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	rows, err := tx.Query(t.Context(), `INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at)
		SELECT gen_random_uuid(), $1, gen_random_uuid(), 1, now(), 'scheduled', 'function', 1, 1000, now(), now() + interval '4 seconds' FROM generate_series(1, 3) RETURNING id`, c.tenant)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := db.New(tx).ClaimExecutions(t.Context(), db.ClaimExecutionsParams{WorkerID: &c.worker, LeaseToken: &c.token, Ids: ids, LeftTypes: []string{}})
	if err != nil || len(claimed) != len(ids) {
		t.Fatalf("claimed %d of %d: %v", len(claimed), len(ids), err)
	}
	var hot int
	if err := tx.QueryRow(t.Context(), "SELECT pg_stat_get_xact_tuples_hot_updated('active_executions'::regclass)").Scan(&hot); err != nil {
		t.Fatal(err)
	}
	if hot != len(ids) {
		t.Errorf("%d of %d claims were HOT updates", hot, len(ids))
	}
}

// An execution that stands behind more others than a poll passes over is found through
// the line of its other obstacle.
func TestALineHidesNobody(t *testing.T) {
	t.Parallel()
	c := newBacklogs(t, 300) // 100 of a priority
	var want uuid.UUID
	for _, step := range []string{
		// A run holds the key of all that wait of the job but the youngest.
		"INSERT INTO running_keys (tenant_id, key, execution_id) VALUES ($2, 'lathe', $1) RETURNING execution_id",
		`UPDATE active_executions SET concurrency_key = 'press' WHERE id = (
			SELECT id FROM active_executions WHERE job_id = $1 AND tenant_id = $2 ORDER BY available_at DESC LIMIT 1) RETURNING id`,
	} {
		if err := c.conn.QueryRow(t.Context(), step, c.both, c.tenant).Scan(&want); err != nil {
			t.Fatal(err)
		}
	}
	found, err := db.New(c.conn).ListUnblockedExecutions(t.Context(), db.ListUnblockedExecutionsParams{BatchSize: 64, Step: 256, LeftTypes: []string{}})
	if err != nil || !slices.Equal(found.Ids, []uuid.UUID{want}) {
		t.Errorf("found %v (%v), want %v alone: of the other job no slot is free", found.Ids, err, want)
	}
}

// A hinted execution that a limit of its tenant leaves behind goes into the pool: the end
// of a run looks there for the next.
func TestWhatALimitLeavesBehindIsPooled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	left := b.pending(nil)
	b.hinted()
	b.exec("UPDATE tenants SET max_running = 0 WHERE id = $1", b.who.TenantID)
	b.hint(b.start(nil), left.ID)
	if n := b.exec("SELECT FROM active_executions WHERE id = $1 AND pooled", left.ID); n != 1 {
		t.Error("it is not in the pool")
	}
}

// A run that somebody asks for counts the slots of a job whose runs may not overlap, and
// reads no executions of another.
func TestSlotsAreCountedWhereRunsMayNotOverlap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for overlap, want := range map[job.Overlap]int64{job.OverlapAllow: 0, job.OverlapSkip: 1} {
		made := b.pending(func(s *job.Spec) { s.Overlap = overlap })
		_, _, tx := holding(t, b, dispatch.Config{})
		var got db.CountActiveOfJobRow
		var err error
		db.New(tx).CountActiveOfJob(t.Context(), []db.CountActiveOfJobParams{{TenantID: made.TenantID, JobID: made.JobID}}).QueryRow(func(_ int, row db.CountActiveOfJobRow, failed error) { got, err = row, failed })
		if err != nil || got.Taken != want {
			t.Errorf("%s: %d slots are taken, want %d, %v", overlap, got.Taken, want, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
