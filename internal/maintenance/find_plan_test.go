package maintenance_test

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// later fills what the question of an idle service reads with rows that are all for later.
const later = `SET session_replication_role = replica;
	INSERT INTO tenants (id, name, status) VALUES (md5('tenant')::uuid, 'tenant', 'active'), (md5('held')::uuid, 'held', 'suspended');
	INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at, status, awaited_until)
	SELECT gen_random_uuid(), md5('tenant')::uuid, gen_random_uuid(), 1, now(), 'manual', 'http', 1, 1000, now(), 'infinity', 'running', now() + interval '1 day' FROM generate_series(1, 20000);
	INSERT INTO job_definitions (id, tenant_id, name, created_by, interval_ms, timezone, job_type, config, max_attempts, timeout_seconds, status, anchor_at, paused_until)
	SELECT md5('job' || i)::uuid, CASE WHEN i % 2 = 0 THEN md5('held') ELSE md5('tenant') END::uuid, 'job ' || i, 'a', 1000, 'UTC', 'http', '{}', 1, 1, CASE WHEN i % 2 = 0 THEN 'paused' ELSE 'active' END, now(),
		CASE WHEN i % 2 = 0 THEN now() + interval '1 day' END FROM generate_series(1, 20000) i;
	INSERT INTO job_schedule (job_id, tenant_id, status, next_execution_at)
	SELECT id, tenant_id, status, now() + interval '1 day' FROM job_definitions;
	INSERT INTO monitors (id, tenant_id, name, interval_seconds, start_grace_seconds, completion_grace_seconds, ping_key, created_by, deadline)
	SELECT gen_random_uuid(), md5('tenant')::uuid, 'monitor ' || i, 60, 1, 1, gen_random_uuid(), 'a', now() + interval '1 day' FROM generate_series(1, 20000) i;
	INSERT INTO notifications (id, tenant_id, name, kind, url, events, created_by, due_at)
	SELECT gen_random_uuid(), CASE WHEN i = 1 THEN md5('tenant')::uuid ELSE gen_random_uuid() END, 'notification ' || i, 'webhook', 'https://a.example', CASE WHEN i = 1 THEN '{job.not_run_by}'::text[] ELSE '{job.failed}' END,
		'a', now() + interval '1 day' FROM generate_series(1, 2000) i;
	INSERT INTO job_deadlines (job_id, tenant_id, checked_to, check_at)
	SELECT id, tenant_id, now(), now() + interval '1 day' FROM job_definitions;
	ANALYZE`

// The question of an idle service costs the same however much there is for later, with a plan for its
// values and with the one for all values, which sessions of the engine keep.
// On the commit before, it read all jobs of each suspended tenant.
func TestFindWorkReadsNoWholeTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exec(t, b.database.AdminURL, nothingToCount)
	exec(t, b.database.AdminURL, later)
	conn, err := b.engine.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	small := map[string]bool{"notifications": true} // as many as people make
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		pgtest.Explain(t, conn.Conn(), mode, uuid.Nil, func(ctx context.Context, s *pgtest.Statement) error {
			_, err := db.New(s).FindWork(ctx, db.FindWorkParams{Settled: 2})
			return err
		}).Walk(func(n pgtest.PlanNode) {
			if n.Touched() > 100 && !small[n.Relation] {
				t.Errorf("%s: a %s of %s touches %v rows", mode, n.Type, n.Relation, n.Touched())
			}
		})
	}
}
