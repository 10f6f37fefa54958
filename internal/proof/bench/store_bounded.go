package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/postgres/refusal"
)

// setup is the superuser on a database of an adversary. It makes in seconds
// what a tenant makes in hours by the API, as the product would have stored it.
type setup struct{ conn *pgx.Conn }

func newSetup(ctx context.Context, url string) (*setup, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("connect for the set-up: %w", err)
	}
	return &setup{conn}, nil
}

func (s *setup) close(ctx context.Context) error { return s.conn.Close(ctx) }

// drop removes the database of an adversary, so that the next one has its space.
func (s *setup) drop(ctx context.Context, database string) error {
	return s.do(ctx, "drop a database", "DROP DATABASE IF EXISTS "+pgx.Identifier{database}.Sanitize()+" WITH (FORCE)")
}

// do runs one statement of the set-up.
func (s *setup) do(ctx context.Context, what, sql string, args ...any) error {
	if _, err := s.conn.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// settle brings statistics and disk to where they are after some minutes.
func (s *setup) settle(ctx context.Context) error {
	if err := s.do(ctx, "vacuum", "VACUUM (ANALYZE)"); err != nil {
		return err
	}
	return s.do(ctx, "checkpoint", "CHECKPOINT")
}

// logStatements has the server log each statement with the program that sent it, or
// none.
func (s *setup) logStatements(ctx context.Context, on bool) error {
	settings := []string{"RESET log_statement", "RESET log_line_prefix"}
	if on {
		settings = []string{"SET log_statement = 'all'", "SET log_line_prefix = '%a '"}
	}
	for _, one := range settings {
		if err := s.do(ctx, "log statements", "ALTER SYSTEM "+one); err != nil {
			return err
		}
	}
	return s.do(ctx, "log statements", "SELECT pg_reload_conf()")
}

// unlogged runs set-up without the triggers of the product, whose audit chain
// would take minutes, and without waiting for the disk.
func (s *setup) unlogged(ctx context.Context, fn func() error) error {
	if err := s.do(ctx, "begin", "SET session_replication_role = replica; SET synchronous_commit = off"); err != nil {
		return err
	}
	err := fn()
	return errors.Join(err, s.do(ctx, "end", "RESET session_replication_role; RESET synchronous_commit"))
}

// copies makes n copies of a job, with their version.
func (s *setup) copies(ctx context.Context, job uuid.UUID, n int) error {
	return s.unlogged(ctx, func() error {
		const jobs = `WITH made AS (
				INSERT INTO job_definitions
				SELECT (jsonb_populate_record(j, jsonb_build_object('id', gen_random_uuid(), 'created_at', j.created_at - i * interval '1 ms'))).*
				FROM job_definitions j, generate_series(1, $2::int) i WHERE j.id = $1 RETURNING id
			)
			INSERT INTO job_schedule
			SELECT (jsonb_populate_record(s, jsonb_build_object('job_id', m.id))).* FROM made m, job_schedule s WHERE s.job_id = $1`
		const versions = `INSERT INTO job_versions
			SELECT (jsonb_populate_record(v, jsonb_build_object('job_id', j.id))).*
			FROM job_versions v, scheduled_jobs o, scheduled_jobs j
			WHERE v.job_id = $1 AND o.id = $1 AND j.tenant_id = o.tenant_id AND j.name = o.name AND j.id <> o.id`
		const counted = `INSERT INTO job_counts AS c (tenant_id, strand, jobs) SELECT tenant_id, 0, $2 FROM scheduled_jobs WHERE id = $1
			ON CONFLICT (tenant_id, strand) DO UPDATE SET jobs = c.jobs + EXCLUDED.jobs`
		return errors.Join(
			s.do(ctx, "copy a job", jobs, job, n),
			s.do(ctx, "copy its version", versions, job),
			s.do(ctx, "count the copies", counted, job, n))
	})
}

// overdue makes the jobs of a name due since so long: active ones as after an
// outage of all promoters, paused ones as after a pause of so long.
func (s *setup) overdue(ctx context.Context, tenant uuid.UUID, name string, since time.Duration, status string) error {
	const sql = `WITH made AS (
			UPDATE job_definitions SET status = $4,
				created_at = created_at - $3::interval, anchor_at = anchor_at - $3::interval, status_at = now() - $3::interval
			WHERE tenant_id = $1 AND name = $2 RETURNING id
		)
		UPDATE job_schedule s SET status = $4, next_execution_at = date_trunc('second', now() - $3::interval) FROM made m WHERE s.job_id = m.id`
	return s.unlogged(ctx, func() error { return s.do(ctx, "make jobs overdue", sql, tenant, name, since, status) })
}

// dueAt makes the jobs of a name due at one time.
func (s *setup) dueAt(ctx context.Context, tenant uuid.UUID, name string, at time.Time) error {
	const sql = `UPDATE job_schedule SET next_execution_at = $3
		WHERE job_id IN (SELECT id FROM job_definitions WHERE tenant_id = $1 AND name = $2)`
	return s.unlogged(ctx, func() error { return s.do(ctx, "make jobs due", sql, tenant, name, at) })
}

// waiting makes n runs of a job that wait in the pool, with a concurrency key
// where there is one.
func (s *setup) waiting(ctx context.Context, job uuid.UUID, n int, key string) error {
	sql := `INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority, max_attempts,
			timeout_ms, concurrency_key, pooled, available_at, sweep_at)
		SELECT ` + idOf("now() - i * interval '1 ms'", "$1 || ':' || i") + `,
			j.tenant_id, j.id, j.version, date_trunc('milliseconds', now()) - i * interval '1 ms', 'manual', j.job_type, j.priority, 1, 300000, nullif($3, ''), $3 = '',
			now() - i * interval '1 ms', 'infinity'
		FROM scheduled_jobs j, generate_series(1, $2::int) i WHERE j.id = $1::text::uuid`
	return s.do(ctx, "make runs that wait", sql, job.String(), n, key)
}

// lostRuns makes n runs of a job whose worker is gone for good.
func (s *setup) lostRuns(ctx context.Context, job uuid.UUID, n int) error {
	if err := s.waiting(ctx, job, n, ""); err != nil {
		return err
	}
	const sql = `UPDATE active_executions SET status = 'running', pooled = false, attempt = 1, lost_count = 3, worker_id = gen_random_uuid(),
			lease_token = gen_random_uuid(), started_at = now(), attempt_started_at = now(), deadline_at = now(), sweep_at = now() WHERE job_id = $1`
	const counted = `UPDATE running_shards SET runs = runs + $2, runs_by_type = add_by_type(runs_by_type, array_fill('function'::text, ARRAY[$2::int]), 1)
		WHERE shard = 0 AND tenant_id = (SELECT tenant_id FROM scheduled_jobs WHERE id = $1)`
	return errors.Join(s.do(ctx, "lose runs", sql, job), s.do(ctx, "count them", counted, job, n))
}

// history makes n completed executions of the jobs that share a job's tenant
// and name, over the two months up to now.
func (s *setup) history(ctx context.Context, job uuid.UUID, n int) error {
	for month := range 3 {
		if err := s.do(ctx, "make a partition", "SELECT create_job_executions_partition(now() - $1::int * interval '1 month')", month); err != nil {
			return err
		}
	}
	sql := `INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, status, attempt, max_attempts,
			progress, worker_id, started_at, completed_at, duration_ms, created_at)
		SELECT ` + idOf("h.at", "h.i || o.id::text") + `,
			h.at, o.tenant_id, o.id, 1, 'scheduled', '', 'function', 'completed', 1, 1, 100, '00000000-0000-4000-8000-000000000001', h.at, h.at, 20, h.at
		FROM (SELECT i, date_trunc('milliseconds', now() - i * interval '50 days' / $2::float8) AS at FROM generate_series($3::int, $4::int) i) h
		JOIN (SELECT id, tenant_id, row_number() OVER (ORDER BY id) - 1 AS n, count(*) OVER () AS of FROM scheduled_jobs
			WHERE (tenant_id, name) = (SELECT tenant_id, name FROM scheduled_jobs WHERE id = $1)) o ON o.n = h.i % o.of`
	return s.unlogged(ctx, func() error {
		for first := 1; first <= n; first += historyBatch {
			if err := s.do(ctx, "write a history", sql, job, n, first, min(first+historyBatch-1, n)); err != nil {
				return err
			}
		}
		return nil
	})
}

// versions gives a job n versions, each with so many bytes that differ from
// the one before.
func (s *setup) versions(ctx context.Context, job uuid.UUID, n, bytes int) error {
	const sql = `INSERT INTO job_versions SELECT (jsonb_populate_record(v, jsonb_build_object('version', i, 'spec', jsonb_set(v.spec, '{config,parameters}',
			jsonb_build_object('version', i, 'text', (SELECT string_agg(md5(i || ':' || k), '') FROM generate_series(1, $3::int / 32) k)))))).*
		FROM job_versions v, generate_series(2, $2::int) i WHERE v.job_id = $1 AND v.version = 1`
	const current = `UPDATE job_definitions SET version = $2 WHERE id = $1`
	return s.unlogged(ctx, func() error {
		return errors.Join(s.do(ctx, "write versions", sql, job, n, bytes), s.do(ctx, "name the last version", current, job, n))
	})
}

// expiredKeys makes n idempotency keys that have expired.
func (s *setup) expiredKeys(ctx context.Context, tenant uuid.UUID, n int) error {
	const sql = `INSERT INTO idempotency_keys (tenant_id, key, route, body_sha256, status, response, created_at, expires_at)
		SELECT $1, 'key ' || i, 'POST /jobs', sha256(i::text::bytea), 201, jsonb_build_object('id', gen_random_uuid(), 'text', repeat('x', 500)),
			now() - interval '25 hours', now() - interval '1 hour' + i * interval '1 ms' FROM generate_series(1, $2::int) i`
	return s.do(ctx, "write expired keys", sql, tenant, n)
}

// refuse has PostgreSQL refuse the rows of a job in a table, from now on.
func (s *setup) refuse(ctx context.Context, table, event string, job uuid.UUID, code string) error {
	r := refusal.Refusal{
		Name: "r" + job.String()[24:] + code, Table: table, Event: event, SQLSTATE: code, Rows: fmt.Sprintf("NEW.job_id = '%s'", job),
	}
	return s.do(ctx, "refuse rows", r.Begin())
}

// keepSnapshot begins a transaction that sees what there is now for as long as
// the connection lives.
func (s *setup) keepSnapshot(ctx context.Context) error {
	return s.do(ctx, "keep a snapshot", "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM workers")
}

// count asks for one number.
func (s *setup) count(ctx context.Context, sql string, args ...any) (n int, err error) {
	err = s.conn.QueryRow(ctx, sql, args...).Scan(&n)
	return n, err
}

func (s *setup) activeOf(ctx context.Context, tenant uuid.UUID) (int, error) {
	return s.count(ctx, "SELECT count(*) FROM active_executions WHERE tenant_id = $1", tenant)
}

func (s *setup) waitingOf(ctx context.Context, job uuid.UUID) (int, error) {
	return s.count(ctx, "SELECT count(*) FROM active_executions WHERE job_id = $1", job)
}

func (s *setup) keysExpired(ctx context.Context) (int, error) {
	return s.count(ctx, "SELECT count(*) FROM idempotency_keys WHERE expires_at < now()")
}

// parked counts the jobs of a tenant that are not active any more.
func (s *setup) parked(ctx context.Context, tenant uuid.UUID) (int, error) {
	return s.count(ctx, "SELECT count(*) FROM scheduled_jobs WHERE tenant_id = $1 AND status = 'inactive'", tenant)
}

// done counts the outcomes of a tenant since a time.
func (s *setup) done(ctx context.Context, tenant uuid.UUID, since time.Time) (int, error) {
	return s.count(ctx, "SELECT count(*) FROM job_executions WHERE tenant_id = $1 AND completed_at >= $2", tenant, since)
}

// startsOf is how late a job that is due each second started between two
// scheduled times.
func (s *setup) startsOf(ctx context.Context, job uuid.UUID, from, to time.Time) ([]time.Duration, error) {
	const sql = `SELECT extract(epoch FROM coalesce((SELECT e.started_at FROM executions e WHERE e.job_id = $1 AND e.scheduled_at = s.at), clock_timestamp()) - s.at)::float8
		FROM generate_series($2::timestamptz, $3::timestamptz - interval '1 microsecond', interval '1 second') s (at)`
	return s.durations(ctx, sql, job, from, to)
}

// promotionsOf is how late the runs of such a job were made.
func (s *setup) promotionsOf(ctx context.Context, job uuid.UUID, from, to time.Time) ([]time.Duration, error) {
	const sql = `SELECT extract(epoch FROM coalesce((SELECT e.created_at FROM executions e WHERE e.job_id = $1 AND e.scheduled_at = s.at), clock_timestamp()) - s.at)::float8
		FROM generate_series($2::timestamptz, $3::timestamptz - interval '1 microsecond', interval '1 second') s (at)`
	return s.durations(ctx, sql, job, from, to)
}

// startsSince is how late runs started after the times at which they were
// asked for.
func (s *setup) startsSince(ctx context.Context, runs []uuid.UUID, asked []time.Time) ([]time.Duration, error) {
	const sql = `SELECT extract(epoch FROM coalesce((SELECT e.started_at FROM executions e WHERE e.id = a.id), clock_timestamp()) - a.at)::float8
		FROM unnest($1::uuid[], $2::timestamptz[]) a (id, at)`
	return s.durations(ctx, sql, runs, asked)
}

// rowsSince is how late the rows of such runs were made.
func (s *setup) rowsSince(ctx context.Context, runs []uuid.UUID, asked []time.Time) ([]time.Duration, error) {
	const sql = `SELECT extract(epoch FROM coalesce((SELECT e.created_at FROM executions e WHERE e.id = a.id), clock_timestamp()) - a.at)::float8
		FROM unnest($1::uuid[], $2::timestamptz[]) a (id, at)`
	return s.durations(ctx, sql, runs, asked)
}

// startsOfName is how late the only runs of a tenant's jobs of one name started after a
// time or, where that is later, after the first run of another tenant that was due
// before it was made: until then no promoter had looked back so far.
func (s *setup) startsOfName(ctx context.Context, tenant, other uuid.UUID, name string, since time.Time) ([]time.Duration, error) {
	const sql = `WITH first AS (SELECT greatest($4, min(e.created_at)) AS at FROM executions e
			WHERE e.tenant_id = $2 AND e.scheduled_at < $4 AND e.created_at >= $4)
		SELECT extract(epoch FROM coalesce((SELECT min(e.started_at) FROM executions e WHERE e.job_id = j.id), clock_timestamp()) - first.at)::float8
		FROM scheduled_jobs j CROSS JOIN first WHERE j.tenant_id = $1 AND j.name = $3`
	return s.durations(ctx, sql, tenant, other, name, since)
}

func (s *setup) durations(ctx context.Context, sql string, args ...any) ([]time.Duration, error) {
	rows, err := s.conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read when runs started: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (time.Duration, error) {
		var late float64
		err := row.Scan(&late)
		return seconds(late), err
	})
}
