-- name: ListDriftedTenants :many
-- Cross-tenant: reconciling. Tenants whose counts differ from their rows, or that have
-- no counts. Every statement changes both at once, so one snapshot shows them equal,
-- and a difference stays until somebody corrects it. An attempt that awaits a callback
-- counts against no limit, and keeps its key.
WITH counted AS (
    SELECT s.tenant_id, (b.key)::text AS job_type, sum((b.value)::bigint) AS running
    FROM running_shards s CROSS JOIN jsonb_each_text(s.runs_by_type) b GROUP BY 1, 2
    UNION ALL SELECT c.tenant_id, '', c.running FROM running_totals c
),
ran AS (
    SELECT a.tenant_id, coalesce(a.job_type, '') AS job_type, count(*) AS running
    FROM active_executions a WHERE a.status = 'running' AND a.awaited_until IS NULL GROUP BY GROUPING SETS ((a.tenant_id, a.job_type), (a.tenant_id))
)
SELECT coalesce(c.tenant_id, r.tenant_id)::uuid AS tenant_id
FROM counted c FULL JOIN ran r ON r.tenant_id = c.tenant_id AND r.job_type = c.job_type
WHERE coalesce(c.running, 0) <> coalesce(r.running, 0)
UNION
SELECT k.tenant_id FROM running_keys k
WHERE NOT EXISTS (SELECT 1 FROM active_executions a WHERE a.id = k.execution_id AND a.status = 'running' OFFSET 0)
UNION
SELECT t.id FROM tenants t
WHERE NOT EXISTS (SELECT 1 FROM running_counts c WHERE c.tenant_id = t.id) OR NOT EXISTS (SELECT 1 FROM running_shards s WHERE s.tenant_id = t.id)
ORDER BY 1;

-- name: EnsureRunningCount :exec
-- Cross-tenant: reconciling, for a tenant that has no counts.
WITH count AS (INSERT INTO running_counts (tenant_id) VALUES (@tenant) ON CONFLICT (tenant_id) DO NOTHING)
INSERT INTO running_shards (tenant_id, shard) SELECT @tenant, n FROM generate_series(0, 15) n ON CONFLICT DO NOTHING;

-- name: LockRunningCount :many
-- Cross-tenant: reconciling. Nothing of the tenant starts or ends until its counts are
-- corrected, in the statement after this one, which sees what was committed before.
SELECT shard FROM running_shards WHERE tenant_id = @tenant ORDER BY shard FOR UPDATE;

-- name: ReconcileRunning :exec
-- Cross-tenant: reconciling, for a tenant whose counts are held locked.
WITH freed AS (
    DELETE FROM running_keys k
    WHERE k.tenant_id = @tenant AND NOT EXISTS (SELECT 1 FROM active_executions a WHERE a.id = k.execution_id AND a.status = 'running' OFFSET 0)
),
old AS (
    UPDATE running_counts c SET running = 0, running_by_type = '{}' WHERE c.tenant_id = @tenant AND (c.running <> 0 OR c.running_by_type <> '{}')
)
UPDATE running_shards s SET runs = CASE WHEN s.shard = 0 THEN e.running ELSE 0 END, runs_by_type = CASE WHEN s.shard = 0 THEN e.by_type ELSE '{}' END,
    permits = 0, permits_of = NULL -- they belonged to the runs as they were counted
FROM (SELECT coalesce(sum(t.running), 0) AS running, coalesce(jsonb_object_agg(t.job_type, t.running), '{}') AS by_type
      FROM (SELECT a.job_type, count(*) AS running FROM active_executions a WHERE a.tenant_id = @tenant AND a.status = 'running' AND a.awaited_until IS NULL GROUP BY a.job_type) t) e
WHERE s.tenant_id = @tenant;
