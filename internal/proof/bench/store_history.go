package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/statistics/collect"
	"github.com/scheduler-service/scheduler/internal/statistics/rollup"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

// historyBatch is how many executions are made by one statement.
const historyBatch = 100_000

// fillOnce fills the database for all measurements of the API.
func (s *stack) fillOnce(ctx context.Context) error {
	if s.filled {
		return nil
	}
	s.say("%d jobs and %d executions of %d months", s.Jobs, s.History, apiMonths)
	if err := s.fill(ctx); err != nil {
		return err
	}
	s.filled = true
	return s.rollUp(ctx)
}

// fill makes jobs that are not due for a day and a history of executions that
// they might have had, over the months up to now. It writes what
// completions write, and the indexes are in place meanwhile.
func (s *stack) fill(ctx context.Context) error {
	for _, who := range s.tenants {
		template, _, err := s.jobs.Create(ctx, who, job.Spec{
			Name: "nightly", Type: "http", Retry: job.DefaultRetry(), Tags: []string{"bench"},
			Config: []byte(`{"url":"https://example.com/nightly","method":"POST"}`),
			Policy: job.Policy{CronExpression: "0 0 2 1 1 *"},
		}.WithDefaults(), idempotency.Key{})
		if err != nil {
			return fmt.Errorf("create a job: %w", err)
		}
		if err := copyJob(ctx, s.api, who.TenantID, template.ID, s.Jobs/len(s.tenants)-1); err != nil {
			return err
		}
	}
	to := clock.Now().Add(-time.Minute)
	from := to.AddDate(0, 1-apiMonths, 0)
	for month := from; month.Before(to.AddDate(0, 1, 0)); month = month.AddDate(0, 1, 0) {
		if _, err := s.store.db.Pool().Exec(ctx, `SELECT create_job_executions_partition($1)`, month); err != nil {
			return fmt.Errorf("make a partition: %w", postgres.Fault(err))
		}
	}
	return s.store.remember(ctx, from, to, s.History)
}

// remember writes n executions, spread evenly over the time and the jobs, 3 %
// of them failed, in the order of their scheduled times as they would have come; they took
// from 20 ms to a second.
func (s *store) remember(ctx context.Context, from, to time.Time, n int) error {
	conn, err := s.db.Pool().Acquire(ctx)
	if err != nil {
		return postgres.Fault(err)
	}
	defer conn.Release()
	for _, prepare := range []string{
		`SET synchronous_commit = off`, `SET statement_timeout = 0`,
		`CREATE TEMP TABLE owners AS SELECT id, tenant_id, version, row_number() OVER (ORDER BY id) - 1 AS n FROM scheduled_jobs`,
		`CREATE UNIQUE INDEX ON owners (n)`, `ANALYZE owners`,
	} {
		if _, err := conn.Exec(ctx, prepare); err != nil {
			return fmt.Errorf("prepare the history: %w", postgres.Fault(err))
		}
	}
	insert := `INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, attempt, max_attempts,
			progress, worker_id, started_at, completed_at, duration_us, result, error_type, error_message, created_at)
		SELECT ` + idOf("h.at", "h.i::text") + `,
			h.at, o.tenant_id, o.id, o.version, 'scheduled', 'http', CASE WHEN h.failed THEN 'failed' ELSE 'completed' END, 1, 4,
			100, '00000000-0000-4000-8000-000000000001', h.at + interval '20 ms', h.at + interval '20 ms' + h.ms * interval '1 ms', h.ms * 1000,
			'{"statusCode":200,"headers":{"Content-Type":"application/json"},"body":"{\"ok\":true}"}',
			CASE WHEN h.failed THEN 'NETWORK_ERROR' END, CASE WHEN h.failed THEN 'connection refused' END, h.at
		FROM (SELECT i, date_trunc('milliseconds', $1::timestamptz + ($2::timestamptz - $1::timestamptz) * (i::float8 / $3::float8)) AS at, i % 33 = 0 AS failed,
				(20 * exp((i * 104729 % 1000) / 250.0))::int AS ms
			FROM generate_series($4::bigint, $5::bigint) i) h JOIN owners o ON o.n = (h.i * 7919) % (SELECT count(*) FROM owners)`
	for first := 0; first < n; first += historyBatch {
		if _, err := conn.Exec(ctx, insert, from, to, n, first, min(first+historyBatch, n)-1); err != nil {
			return fmt.Errorf("write the history: %w", postgres.Fault(err))
		}
	}
	for _, finish := range []string{`DROP TABLE owners`, `RESET synchronous_commit`, `RESET statement_timeout`} {
		if _, err := conn.Exec(ctx, finish); err != nil {
			return fmt.Errorf("finish the history: %w", postgres.Fault(err))
		}
	}
	return nil
}

// rollUp counts the history ahead, as the promoters do after an upgrade.
func (s *stack) rollUp(ctx context.Context) error {
	leases := lease.NewStore(lease.Config{DB: s.store.db, Holder: "bench", TTL: time.Minute, Metrics: telemetry.NewMetrics(telemetry.NewRegistry())})
	collector, mark := collect.NewCollector(s.store.db), clock.Start()
	for complete := false; !complete; {
		_, err := leases.Run(ctx, lease.Metrics, func(ctx context.Context, held lease.Lease) error {
			_, err := collector.Pass(ctx, held)
			return err
		})
		if err != nil {
			return fmt.Errorf("roll up the history: %w", err)
		}
		if err := s.store.db.Pool().QueryRow(ctx, `SELECT rolled_from IS NULL FROM rollup_cursor`).Scan(&complete); err != nil {
			return fmt.Errorf("ask how far the roll-ups are: %w", postgres.Fault(err))
		}
	}
	took := mark.Elapsed()
	var rows, bytes int64
	err := s.store.db.Pool().QueryRow(ctx, `SELECT count(*), pg_total_relation_size('outcome_rollups') FROM outcome_rollups`).Scan(&rows, &bytes)
	if err != nil {
		return fmt.Errorf("measure the roll-ups: %w", postgres.Fault(err))
	}
	each := float64(s.History)
	s.say("rolled up: %.1f µs, %.2f rows and %.0f bytes for each execution", float64(took.Microseconds())/each, float64(rows)/each, float64(bytes)/each)
	return nil
}

// rolledUp says whether all executions that were due since a time, and are done, are in the
// roll-ups.
func (s *store) rolledUp(ctx context.Context, since time.Time) (all bool, err error) {
	const query = `SELECT c.rolled_from IS NULL AND c.rolled_to >= (SELECT max(e.completed_at) FROM job_executions e WHERE e.scheduled_at >= $1) FROM rollup_cursor c`
	if err := s.db.Pool().QueryRow(ctx, query, since).Scan(&all); err != nil {
		return false, fmt.Errorf("ask what is rolled up: %w", postgres.Fault(err))
	}
	return all, nil
}

// rolled is how many executions the roll-ups of one span count.
type rolled struct {
	jobs         map[uuid.UUID]int64 // completed at the first attempt, of the jobs asked for
	others       int64               // with another outcome, of those jobs
	parts, whole int64               // of any job and outcome, told apart by job and not
}

// unfolded stands for the span and the part of what is counted and in no roll-up yet, which
// statistics add to all of them.
const unfolded = -1

// rollUps reads the roll-ups of hours, days and weeks since the week of a time, each with what
// is counted and not folded into them yet.
func (s *store) rollUps(ctx context.Context, jobs map[uuid.UUID]int64, since time.Time) (held [3]rolled, err error) {
	for span := range held {
		held[span].jobs = map[uuid.UUID]int64{}
	}
	// In one statement, because folding moves rows from one table to the other.
	const query = `SELECT span, part, cells FROM outcome_rollups WHERE at >= $1
		UNION ALL SELECT $2, $2, cells FROM outcome_deltas WHERE at >= $1`
	rows, err := s.db.Pool().Query(ctx, query, rollup.Week.Begin(since), unfolded)
	if err != nil {
		return held, fmt.Errorf("read the roll-ups: %w", postgres.Fault(err))
	}
	defer rows.Close()
	for rows.Next() {
		var span, part int
		var cells []byte
		if err := rows.Scan(&span, &part, &cells); err != nil {
			return held, fmt.Errorf("read the roll-ups: %w", postgres.Fault(err))
		}
		for i := range held {
			if span != i && span != unfolded {
				continue
			}
			if err := held[i].add(jobs, part, cells); err != nil {
				return held, fmt.Errorf("read the roll-ups: %w", err)
			}
		}
	}
	return held, rows.Err()
}

// add counts what one roll-up holds.
func (r *rolled) add(jobs map[uuid.UUID]int64, part int, cells []byte) error {
	return rollup.Walk(cells, nil, func(c *rollup.Cell, _ bool) {
		if part == rollup.Whole || part == unfolded {
			r.whole += c.Rows
		}
		if part == rollup.Whole {
			return
		}
		r.parts += c.Rows
		if _, asked := jobs[c.Job]; !asked {
			return
		}
		if c.Kind.Status != "completed" {
			r.others += c.Rows
			return
		}
		r.jobs[c.Job] += c.Rows - c.Retried
		r.others += c.Retried
	})
}

// stored is an execution of the history.
type stored struct {
	id, job     uuid.UUID
	scheduledAt time.Time
}

// some answers executions of a tenant, from all over a history of so many. It reads ten
// times as many as it answers, or all: in fewer pages there are fewer jobs.
func (s *store) some(ctx context.Context, tenant uuid.UUID, n, history int) ([]stored, error) {
	const query = `SELECT id, job_id, scheduled_at FROM job_executions TABLESAMPLE SYSTEM ($3) WHERE tenant_id = $1 ORDER BY random() LIMIT $2`
	rows, err := s.db.Pool().Query(ctx, query, tenant, n, min(100, 100*10*float64(n*tenants)/float64(history)))
	if err != nil {
		return nil, fmt.Errorf("read some executions: %w", postgres.Fault(err))
	}
	defer rows.Close()
	var all []stored
	for rows.Next() {
		var one stored
		if err := rows.Scan(&one.id, &one.job, &one.scheduledAt); err != nil {
			return nil, fmt.Errorf("read some executions: %w", postgres.Fault(err))
		}
		all = append(all, one)
	}
	return all, rows.Err()
}
