package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// store reads what a run left in the tables, across tenants, as the product's
// processes could. Its queries are of no use to the product, and so they are not
// among the product's queries.
type store struct{ db *postgres.DB }

func openStore(ctx context.Context, url string, conns int) (*store, error) {
	opened, err := postgres.Open(ctx, postgres.Config{
		URL: url, Role: postgres.Engine, Name: "scheduler-bench", MaxConns: conns, StatementTimeout: time.Minute,
	})
	if err != nil {
		return nil, err
	}
	return &store{db: opened}, nil
}

func (s *store) queries() *db.Queries { return db.New(s.db.Pool()) }

// waiting counts what is promoted and not done.
func (s *store) waiting(ctx context.Context) (n int, err error) {
	if err := s.db.Pool().QueryRow(ctx, `SELECT count(*) FROM active_executions`).Scan(&n); err != nil {
		return 0, fmt.Errorf("count what waits: %w", postgres.Fault(err))
	}
	return n, nil
}

// walBytes is how much the server wrote to its log ahead since it was made.
func (s *store) walBytes(ctx context.Context) (n float64, err error) {
	if err := s.db.Pool().QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8`).Scan(&n); err != nil {
		return 0, fmt.Errorf("read how much was written ahead: %w", postgres.Fault(err))
	}
	return n, nil
}

// clearWaiting removes what is promoted and not done.
func (s *store) clearWaiting(ctx context.Context) error {
	if _, err := s.db.Pool().Exec(ctx, `DELETE FROM active_executions`); err != nil {
		return fmt.Errorf("remove what waits: %w", postgres.Fault(err))
	}
	return nil
}

// lag is the distribution of the time from the scheduled time to the claim, or to the arrival
// of the call at its target.
type lag struct{ p50, p99, max time.Duration }

// lags reads that of the executions due in [from, to).
func (s *store) lags(ctx context.Context, from, to time.Time) (lag, error) {
	const query = `SELECT coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY late), 0)::float8,
			coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY late), 0)::float8, coalesce(max(late), 0)::float8
		FROM (SELECT extract(epoch FROM started_at - scheduled_at) AS late
			FROM job_executions WHERE scheduled_at >= $1 AND scheduled_at < $2) l`
	var p50, p99, most float64
	if err := s.db.Pool().QueryRow(ctx, query, from, to).Scan(&p50, &p99, &most); err != nil {
		return lag{}, fmt.Errorf("read the lags: %w", postgres.Fault(err))
	}
	return lag{seconds(p50), seconds(p99), seconds(most)}, nil
}

// promotionLags reads the time from the scheduled time to the transaction that
// made the execution, of those due in [from, to).
func (s *store) promotionLags(ctx context.Context, from, to time.Time) (lag, error) {
	const query = `SELECT coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY late), 0)::float8,
			coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY late), 0)::float8, coalesce(max(late), 0)::float8
		FROM (SELECT extract(epoch FROM created_at - scheduled_at) AS late
			FROM job_executions WHERE scheduled_at >= $1 AND scheduled_at < $2) l`
	var p50, p99, most float64
	if err := s.db.Pool().QueryRow(ctx, query, from, to).Scan(&p50, &p99, &most); err != nil {
		return lag{}, fmt.Errorf("read how late executions were made: %w", postgres.Fault(err))
	}
	return lag{seconds(p50), seconds(p99), seconds(most)}, nil
}

// jobLags reads the time from the scheduled time to the start of a job's runs, and
// how many there are.
func (s *store) jobLags(ctx context.Context, job uuid.UUID) (l lag, n int, err error) {
	const query = `SELECT coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY late), 0)::float8,
			coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY late), 0)::float8, coalesce(max(late), 0)::float8, count(*)
		FROM (SELECT extract(epoch FROM started_at - scheduled_at) AS late FROM job_executions WHERE job_id = $1 AND status = 'completed') l`
	var p50, p99, most float64
	if err := s.db.Pool().QueryRow(ctx, query, job).Scan(&p50, &p99, &most, &n); err != nil {
		return lag{}, 0, fmt.Errorf("read the lags of a job: %w", postgres.Fault(err))
	}
	return lag{seconds(p50), seconds(p99), seconds(most)}, n, nil
}

// insertBacklog makes runs that wait since an hour, as after an outage: in the pool, or for their keys.
func (s *store) insertBacklog(ctx context.Context, b backlog) error {
	insert := `INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority, max_attempts,
			timeout_ms, pooled, concurrency_key, concurrency_limit, available_at, sweep_at)
		SELECT ` + idOf("now() - i * interval '1 ms'", "j.id::text || i || $3::boolean") + `, j.tenant_id, j.id, j.version, now() - i * interval '1 ms', 'manual', j.job_type, j.priority, 1, 10000, NOT $3::boolean AND $4 = 0,
		       CASE WHEN $3::boolean THEN 'key ' || i END, $4::int, now() - interval '1 hour', 'infinity'
		FROM scheduled_jobs j, generate_series(1, $2::int) i WHERE j.id = ANY ($1)`
	if _, err := s.db.Pool().Exec(ctx, insert, b.jobs, b.size/len(b.jobs), b.keyed, b.slots); err != nil {
		return fmt.Errorf("insert the backlog: %w", postgres.Fault(err))
	}
	return nil
}

// idOf is the id of an execution as SQL: it begins with the milliseconds of its scheduled
// time, by which the API finds it, and ends in a digest of the seed.
func idOf(at, seed string) string {
	return fmt.Sprintf(`(lpad(to_hex(floor(extract(epoch FROM %[1]s) * 1000)::bigint), 12, '0') || '8' || substr(md5(%[2]s), 1, 3) || '8' || substr(md5(%[2]s), 4, 15))::uuid`, at, seed)
}

// anyWaiting says whether any execution waits or runs.
func (s *store) anyWaiting(ctx context.Context) (more bool, err error) {
	if err := s.db.Pool().QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM active_executions)`).Scan(&more); err != nil {
		return false, fmt.Errorf("ask whether anything waits: %w", postgres.Fault(err))
	}
	return more, nil
}

// doneOf counts the completed executions of jobs, and says how many seconds passed from the
// first start to the last end.
func (s *store) doneOf(ctx context.Context, jobs []uuid.UUID) (n int, took float64, err error) {
	const query = `SELECT count(*), coalesce(extract(epoch FROM max(completed_at) - min(started_at)), 0)::float8
		FROM job_executions WHERE job_id = ANY ($1) AND status = 'completed'`
	if err := s.db.Pool().QueryRow(ctx, query, jobs).Scan(&n, &took); err != nil {
		return 0, 0, fmt.Errorf("count what is done: %w", postgres.Fault(err))
	}
	return n, took, nil
}

// copyJob makes n copies of a tenant's job, due at times over the day that
// begins in an hour.
func copyJob(ctx context.Context, api *postgres.DB, tenant, id uuid.UUID, n int) error {
	conn, err := api.Pool().Acquire(ctx)
	if err != nil {
		return postgres.Fault(err)
	}
	defer conn.Release()
	const insert = `INSERT INTO scheduled_jobs
		SELECT (jsonb_populate_record(j, jsonb_build_object('id', gen_random_uuid(), 'next_execution_at', now() + interval '1 hour' + i * interval '800 milliseconds'))).*
		FROM scheduled_jobs j, generate_series($2::int, $3::int) i WHERE j.id = $1`
	type step struct {
		sql  string
		args []any
	}
	// In pieces: each copy has an entry in the audit log, and those of one
	// transaction make one chain, whose end is written as often.
	const piece = 2000
	for first := 1; first <= n; first += piece {
		for _, s := range []step{
			{"BEGIN", nil},
			{"SET LOCAL statement_timeout = '60s'", nil},
			{"SELECT set_config('app.tenant_id', $1, true)", []any{tenant.String()}},
			{insert, []any{id, first, min(first+piece-1, n)}},
			{"COMMIT", nil},
		} {
			if _, err := conn.Exec(ctx, s.sql, s.args...); err != nil {
				return fmt.Errorf("copy a job: %w", postgres.Fault(err))
			}
		}
	}
	return nil
}

// ends is when the executions due in [from, to) were claimed and done: the
// first claim, the last completion, and how many were due and not done at an
// scheduled time.
type ends struct {
	first, last time.Time
	backlog     int
}

func (s *store) ends(ctx context.Context, from, to, at time.Time) (e ends, err error) {
	const query = `SELECT min(started_at), max(completed_at), count(*) FILTER (WHERE scheduled_at <= $3 AND completed_at > $3)
		FROM job_executions WHERE scheduled_at >= $1 AND scheduled_at < $2`
	if err := s.db.Pool().QueryRow(ctx, query, from, to, at).Scan(&e.first, &e.last, &e.backlog); err != nil {
		return ends{}, fmt.Errorf("read when the executions were done: %w", postgres.Fault(err))
	}
	return e, nil
}

// doneBetween counts completions in [from, to), whenever they were due.
func (s *store) doneBetween(ctx context.Context, from, to time.Time) (n int, err error) {
	const query = `SELECT count(*) FROM job_executions WHERE completed_at >= $1 AND completed_at < $2`
	if err := s.db.Pool().QueryRow(ctx, query, from, to).Scan(&n); err != nil {
		return 0, fmt.Errorf("count completions: %w", postgres.Fault(err))
	}
	return n, nil
}

// found is what there is of the executions that there should be.
type found struct {
	rows         int // all of them
	runsPerJob   int // different pairs of job and second, of those that should be
	notCompleted int // rows with any other status, or still active
	repeated     int // attempts beyond the first
	strangers    int // rows of other jobs, or at no scheduled time
}

// census counts the executions that were due in the time of a load.
func (s *store) census(ctx context.Context, l load) (f found, err error) {
	const query = `SELECT count(*), count(DISTINCT (e.job_id, e.second)) FILTER (WHERE e.expected),
			count(*) FILTER (WHERE e.status <> 'completed'), coalesce(sum(greatest(e.attempt - 1, 0)), 0),
			count(*) FILTER (WHERE NOT e.expected)
		FROM (SELECT r.*, date_trunc('second', r.scheduled_at) AS second,
				j.id IS NOT NULL AND ($4 OR r.scheduled_at = date_trunc('second', r.scheduled_at)) AS expected
			FROM executions r LEFT JOIN unnest($3::uuid[]) j (id) ON j.id = r.job_id) e
		WHERE e.scheduled_at >= $1 AND e.scheduled_at < $2`
	row := s.db.Pool().QueryRow(ctx, query, l.from, l.to, l.jobs, l.spread)
	if err := row.Scan(&f.rows, &f.runsPerJob, &f.notCompleted, &f.repeated, &f.strangers); err != nil {
		return found{}, fmt.Errorf("count what is in the tables: %w", postgres.Fault(err))
	}
	return f, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
