package postgres_test

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// Passes over all jobs read those that they take, and look up the other table of each. A
// condition on the view would reach one of the tables only, and the walk of the other would read
// it whole.
func TestPassesOverAllJobsReadWhatTheyTake(t *testing.T) {
	t.Parallel()
	admin := connect(t, pgtest.New(t).AdminURL)
	exec(t, admin, "INSERT INTO tenants (id, name) SELECT gen_random_uuid(), n::text FROM generate_series(1, 20) n")
	exec(t, admin, `INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds, next_execution_at, status, paused_until)
		SELECT gen_random_uuid(), t.id, n::text, 'ada', 'http', '{}', 1, 1, now() + n * interval '1 minute', CASE n % 2 WHEN 0 THEN 'active' ELSE 'paused' END,
			CASE n % 2 WHEN 1 THEN now() + (n - 10) * interval '1 minute' END
		FROM tenants t, generate_series(1, 400) n`)
	exec(t, admin, "ANALYZE job_definitions, job_schedule")
	exec(t, admin, "SET ROLE scheduler_engine;"+postgres.EnginePlans())
	for _, test := range []struct {
		name string
		most float64
		ask  func(*db.Queries, context.Context) error
	}{
		{"reconciled schedules, from an id on", 400, func(q *db.Queries, ctx context.Context) error { // half of those that it walks are active
			_, err := q.ListJobsToAudit(ctx, db.ListJobsToAuditParams{FromID: uuid.MustParse("80000000-0000-0000-0000-000000000000"), SampleSize: 100})
			return err
		}},
		{"reconciled schedules, past all ids", 1, func(q *db.Queries, ctx context.Context) error {
			_, err := q.ListJobsToAudit(ctx, db.ListJobsToAuditParams{FromID: uuid.Max, SampleSize: 100})
			return err
		}},
		{"pauses that have ended", 120, func(q *db.Queries, ctx context.Context) error { // 100 are
			_, err := q.ResumePausedJobs(ctx, nil)
			return err
		}},
	} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			pgtest.Explain(t, admin, mode, uuid.Nil, func(ctx context.Context, s *pgtest.Statement) error { return test.ask(db.New(s), ctx) }).Walk(func(n pgtest.PlanNode) {
				if (n.Relation == "job_definitions" || n.Relation == "job_schedule") && n.Loops > 0 && n.Touched() > test.most {
					t.Errorf("%s, %s: %s on %s touches %v rows, want %v at most", test.name, mode, n.Type, n.Index, n.Touched(), test.most)
				}
			})
		}
	}
}
