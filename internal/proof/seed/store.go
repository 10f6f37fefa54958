package seed

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	jobBatch       = 2_000   // in pieces: each job has an entry in the audit log, and those of one transaction make one chain
	executionBatch = 100_000 // that are made by one statement
)

// store writes as the superuser of the installation's own PostgreSQL, because no
// role of the product may write finished executions as it likes.
type store struct {
	conn *pgx.Conn
	say  func(format string, args ...any)
}

func openStore(ctx context.Context, address string, say func(format string, args ...any)) (*store, error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("reach the installation's PostgreSQL: %w", err)
	}
	s := &store{conn: conn, say: say}
	return s, s.run(ctx, `SET synchronous_commit = off`, `SET timezone = 'UTC'`, `SET work_mem = '64MB'`)
}

func (s *store) close() { _ = s.conn.Close(context.Background()) }

func (s *store) run(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := s.conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%.40s: %w", statement, err)
		}
	}
	return nil
}

// copyJobs writes n jobs and the first version of each.
func (s *store) copyJobs(ctx context.Context, of *jobs, n int) error {
	const insert = `WITH asked AS (
			SELECT u.template, u.job, u.spec FROM unnest($1::uuid[], $2::text[]::jsonb[], $3::text[]::jsonb[]) AS u(template, job, spec)
		), made AS (
			INSERT INTO scheduled_jobs
			SELECT (jsonb_populate_record(t, jsonb_build_object('cron_expression', NULL, 'next_execution_at', NULL, 'anchor_at', a.job -> 'created_at') || a.job)).*
			FROM asked a JOIN scheduled_jobs t ON t.id = a.template
		)
		INSERT INTO job_versions (job_id, version, tenant_id, spec, created_by, created_at)
		SELECT (a.job ->> 'id')::uuid, 1, v.tenant_id, v.spec || a.spec, v.created_by, (a.job ->> 'created_at')::timestamptz
		FROM asked a JOIN job_versions v ON v.job_id = a.template AND v.version = 1`
	for first := 1; first <= n; first += jobBatch {
		var templates []uuid.UUID
		var rows, versions []string
		for i := first; i < first+jobBatch && i <= n; i++ {
			one, err := of.copy(i)
			if err != nil {
				return err
			}
			templates, rows, versions = append(templates, one.template), append(rows, one.row), append(versions, one.version)
		}
		if _, err := s.conn.Exec(ctx, insert, templates, rows, versions); err != nil {
			return fmt.Errorf("write jobs: %w", err)
		}
		if done := first + len(rows) - 1; done == n || done%(10*jobBatch) == 0 {
			s.say("%d of %d jobs", done, n)
		}
	}
	return s.run(ctx, `VACUUM ANALYZE job_definitions`, `VACUUM ANALYZE job_schedule`, `VACUUM ANALYZE job_versions`)
}

// history says which executions to write: n, spread evenly from one time to another over
// the jobs of the tenant that the templates are of.
type history struct {
	templates []uuid.UUID
	from, to  time.Time
	n         int
	hostile   bool
}

// An execution is completed, but for those of jobs that fail each thirteenth time and of those that
// nearly always do. Their errors stand in the table of the same name.
const insertHistory = `INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, status, reason,
		attempt, max_attempts, progress, attempts, worker_id, started_at, attempt_started_at, completed_at, duration_us, result, error_type, error_message, created_at)
	SELECT (lpad(to_hex((extract(epoch FROM h.at) * 1000)::bigint), 12, '0') || '8' || substr(h.hash, 1, 3) || '8' || substr(h.hash, 4, 15))::uuid,
		h.at, h.tenant_id, h.job_id, h.version, CASE WHEN h.i % 40 = 0 THEN 'manual' ELSE 'scheduled' END, CASE WHEN h.i % 40 = 0 THEN 'ada' ELSE '' END, h.job_type, h.priority,
		h.status, CASE h.status WHEN 'skipped' THEN 'as many executions of the job as may were active' WHEN 'missed' THEN 'it was due during an outage' WHEN 'cancelled' THEN 'no longer needed' ELSE '' END,
		CASE WHEN h.ran THEN h.attempt ELSE 0 END, 4, CASE WHEN h.status = 'completed' THEN 100 ELSE 0 END,
		CASE WHEN h.ran AND h.attempt > 1 THEN jsonb_build_array(jsonb_build_object('number', 1, 'startedAt', h.at + interval '20 ms', 'endedAt', h.at + interval '320 ms', 'durationUs', 300000,
			'workerId', '00000000-0000-4000-8000-000000000001', 'error', jsonb_build_object('type', 'NETWORK_ERROR', 'message', 'connection refused'))) ELSE '[]' END,
		CASE WHEN h.ran THEN '00000000-0000-4000-8000-000000000001'::uuid END,
		CASE WHEN h.ran THEN h.at + interval '20 ms' END, CASE WHEN h.ran AND h.attempt > 1 THEN h.at + interval '1.3 s' END,
		h.at + CASE WHEN h.attempt > 1 THEN interval '1.3 s' ELSE interval '20 ms' END + h.ms * interval '1 ms', CASE WHEN h.ran THEN h.ms * 1000 END,
		CASE WHEN h.status = 'completed' AND h.i % 5 = 0 THEN '{"statusCode":200,"body":"{\"ok\":true}"}'::jsonb END, h.error_type, h.error_message, h.at
	FROM (SELECT g.*, o.*, md5(g.i::text) AS hash, f.error_type, f.error_message,
			CASE WHEN f.error_type IS NOT NULL THEN 'failed' WHEN g.i % 401 = 0 THEN 'cancelled' WHEN g.i % 211 = 0 THEN 'skipped' WHEN g.i % 307 = 0 THEN 'missed' ELSE 'completed' END AS status,
			f.error_type IS NOT NULL OR g.i % 401 <> 0 AND g.i % 211 <> 0 AND g.i % 307 <> 0 AS ran,
			CASE WHEN f.error_type IS NOT NULL AND g.i % 3 = 0 OR g.i % 97 = 0 THEN 2 ELSE 1 END AS attempt,
			(20 * exp((g.i * 104729 % 1000) / 200.0))::int AS ms
		FROM (SELECT i, date_trunc('milliseconds', $1::timestamptz + ($2::timestamptz - $1::timestamptz) * (i::float8 / $3::float8)) AS at FROM generate_series($4::bigint, $5::bigint) i) g
		JOIN seed_owners o ON o.n = (g.i * 7919) % (SELECT count(*) FROM seed_owners)
		LEFT JOIN seed_errors f ON f.n = o.n % (SELECT count(*) FROM seed_errors) AND (o.n % 31 = 0 AND g.i % 13 = 0 OR o.n % 997 = 3 AND g.i % 10 <> 0)) h`

// writeHistory writes finished executions, in the order of their scheduled times.
func (s *store) writeHistory(ctx context.Context, h history) error {
	for month := h.from; month.Before(h.to.AddDate(0, 1, 0)); month = month.AddDate(0, 1, 0) {
		if _, err := s.conn.Exec(ctx, `SELECT create_job_executions_partition($1)`, month); err != nil {
			return fmt.Errorf("make a partition: %w", err)
		}
	}
	if err := s.prepare(ctx, h); err != nil {
		return err
	}
	for first := 0; first < h.n; first += executionBatch {
		last := min(first+executionBatch, h.n) - 1
		if _, err := s.conn.Exec(ctx, insertHistory, h.from, h.to, h.n, first, last); err != nil {
			return fmt.Errorf("write executions: %w", err)
		}
		if last+1 == h.n || (last+1)%(5*executionBatch) == 0 {
			s.say("%d of %d executions", last+1, h.n)
		}
	}
	if err := s.finishJobs(ctx); err != nil {
		return err
	}
	if h.hostile {
		if err := s.writeOutput(ctx); err != nil {
			return err
		}
	}
	return s.run(ctx, `DROP TABLE seed_owners, seed_errors`, `VACUUM ANALYZE job_executions`)
}

func (s *store) prepare(ctx context.Context, h history) error {
	if err := s.run(ctx, `CREATE TEMP TABLE seed_owners (n bigint PRIMARY KEY, job_id uuid, tenant_id uuid, version int, job_type text, priority smallint)`,
		`CREATE TEMP TABLE seed_errors (n bigint PRIMARY KEY, error_type text, error_message text)`); err != nil {
		return err
	}
	_, err := s.conn.Exec(ctx, `INSERT INTO seed_owners
		SELECT row_number() OVER (ORDER BY j.id) - 1, j.id, j.tenant_id, j.version, j.job_type, j.priority
		FROM scheduled_jobs j JOIN (SELECT DISTINCT t.tenant_id FROM scheduled_jobs t WHERE t.id = ANY ($1)) w USING (tenant_id) WHERE j.deleted_at IS NULL`, h.templates)
	if err != nil {
		return fmt.Errorf("list the jobs: %w", err)
	}
	types, messages := []string{"TIMEOUT", "NETWORK_ERROR", "USER_ERROR", "SYSTEM_ERROR", "USER_ERROR"},
		[]string{"the attempt took longer than 30 s", "dial tcp 10.2.0.14:443: connection refused", "the answer has status 422: an invoice has no currency", "the worker is gone", "the answer has status 503: try later"}
	if h.hostile {
		for _, text := range hostile {
			types, messages = append(types, "USER_ERROR"), append(messages, text)
		}
	}
	if _, err = s.conn.Exec(ctx, `INSERT INTO seed_errors SELECT u.n - 1, u.type, u.message FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u(type, message, n)`, types, messages); err != nil {
		return fmt.Errorf("list the errors: %w", err)
	}
	return s.run(ctx, `ANALYZE seed_owners`)
}

// finishJobs gives each job the count of its executions and its last one. Nobody changed
// it by that, so no change is recorded.
func (s *store) finishJobs(ctx context.Context) error {
	return s.run(ctx, `BEGIN`, `SET LOCAL session_replication_role = replica`,
		`UPDATE job_schedule j SET execution_count = greatest(j.execution_count, h.executions), last_execution_at = greatest(j.last_execution_at, h.last_at)
			FROM (SELECT e.job_id, count(*) AS executions, max(e.scheduled_at) AS last_at FROM job_executions e WHERE e.job_id IN (SELECT o.job_id FROM seed_owners o) GROUP BY 1) h
			WHERE j.job_id = h.job_id`, `COMMIT`)
}

// writeOutput gives the newest executions lines that an attacker would write.
func (s *store) writeOutput(ctx context.Context) error {
	const insert = `INSERT INTO execution_output (execution_id, attempt, last_line, tenant_id, lines, written_at)
		SELECT e.id, e.attempt, cardinality($1::text[]), e.tenant_id,
			(SELECT jsonb_agg(jsonb_build_object('n', u.n, 'at', (extract(epoch FROM e.started_at) * 1000000)::bigint, 't', u.line)) FROM unnest($1::text[]) WITH ORDINALITY AS u(line, n))::text, e.completed_at
		FROM (SELECT h.* FROM job_executions h JOIN seed_owners o ON o.job_id = h.job_id WHERE h.attempt > 0 ORDER BY h.scheduled_at DESC LIMIT 200) e
		ON CONFLICT DO NOTHING`
	if _, err := s.conn.Exec(ctx, insert, append([]string{"\u001b[31mred\u001b[0m \ufffd invalid", "</pre><script>alert(2)</script>"}, hostile...)); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// forgetRollUps has the whole history counted again, as after an upgrade from a version
// without roll-ups.
func (s *store) forgetRollUps(ctx context.Context) error {
	return s.run(ctx, `BEGIN`, `UPDATE rollup_cursor SET rolled_from = rolled_to`, `TRUNCATE outcome_rollups, outcome_deltas, fold_backlogs`, `COMMIT`)
}

// counted reports whether all of it is counted.
func (s *store) counted(ctx context.Context) (complete bool, err error) {
	if err := s.conn.QueryRow(ctx, `SELECT rolled_from IS NULL FROM rollup_cursor`).Scan(&complete); err != nil {
		return false, fmt.Errorf("ask how far the roll-ups are: %w", err)
	}
	return complete, nil
}
