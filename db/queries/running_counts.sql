-- name: ListDriftedTenants :many
-- Cross-tenant: reconciling. Tenants whose counts differ from their rows, or that have
-- no counts. Every statement changes both at once, so one snapshot shows them equal,
-- and a difference stays until somebody corrects it.
WITH counted AS (
    SELECT c.tenant_id, (b.key)::text AS job_type, (b.value)::int AS running FROM running_counts c CROSS JOIN jsonb_each_text(c.running_by_type) b
    UNION ALL SELECT c.tenant_id, '', c.running FROM running_counts c
),
ran AS (
    SELECT a.tenant_id, coalesce(a.job_type, '') AS job_type, count(*) AS running
    FROM active_executions a WHERE a.status = 'running' GROUP BY GROUPING SETS ((a.tenant_id, a.job_type), (a.tenant_id))
)
SELECT coalesce(c.tenant_id, r.tenant_id)::uuid AS tenant_id
FROM counted c FULL JOIN ran r ON r.tenant_id = c.tenant_id AND r.job_type = c.job_type
WHERE coalesce(c.running, 0) <> coalesce(r.running, 0)
UNION
SELECT k.tenant_id FROM running_keys k
WHERE NOT EXISTS (SELECT 1 FROM active_executions a WHERE a.id = k.execution_id AND a.status = 'running')
UNION
SELECT t.id FROM tenants t WHERE NOT EXISTS (SELECT 1 FROM running_counts c WHERE c.tenant_id = t.id)
ORDER BY 1;

-- name: EnsureRunningCount :exec
-- Cross-tenant: reconciling, for a tenant that has no counts.
INSERT INTO running_counts (tenant_id) VALUES (@tenant) ON CONFLICT (tenant_id) DO NOTHING;

-- name: LockRunningCount :one
-- Cross-tenant: reconciling. Nothing of the tenant starts or ends until its counts are
-- corrected, in the statement after this one, which sees what was committed before.
SELECT tenant_id FROM running_counts WHERE tenant_id = @tenant FOR UPDATE;

-- name: ReconcileRunning :exec
-- Cross-tenant: reconciling, for a tenant whose counts are held locked.
WITH freed AS (
    DELETE FROM running_keys k
    WHERE k.tenant_id = @tenant AND NOT EXISTS (SELECT 1 FROM active_executions a WHERE a.id = k.execution_id AND a.status = 'running')
)
UPDATE running_counts c SET running = e.running, running_by_type = e.by_type
FROM (SELECT coalesce(sum(t.running), 0)::int AS running, coalesce(jsonb_object_agg(t.job_type, t.running), '{}') AS by_type
      FROM (SELECT a.job_type, count(*) AS running FROM active_executions a WHERE a.tenant_id = @tenant AND a.status = 'running' GROUP BY a.job_type) t) e
WHERE c.tenant_id = @tenant;
