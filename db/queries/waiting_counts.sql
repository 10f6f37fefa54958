-- name: CountWaiting :one
-- Cross-tenant: one promoter at a time. Counts what waits of the next tenants, for a
-- worker or a callback, in all and by job, but for what is being cancelled, and keeps the numbers of those
-- that have many: at_least, or a limit of the tenant that is smaller. Answers the
-- last of these tenants; the nil id where they were the last of all.
WITH RECURSIVE walk AS (
    (SELECT e.tenant_id FROM active_executions e WHERE e.tenant_id > @after::uuid ORDER BY e.tenant_id LIMIT 1)
    UNION ALL
    SELECT (SELECT e.tenant_id FROM active_executions e WHERE e.tenant_id > w.tenant_id ORDER BY e.tenant_id LIMIT 1)
    FROM walk w WHERE w.tenant_id IS NOT NULL
),
seen AS MATERIALIZED (SELECT w.tenant_id FROM walk w LIMIT @tenants::int),
ending AS MATERIALIZED (
    SELECT CASE WHEN count(s.tenant_id) < @tenants::int THEN 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid ELSE (max(s.tenant_id::text))::uuid END AS tenant_id FROM seen s
),
counted AS MATERIALIZED (
    SELECT e.tenant_id, coalesce(e.job_id, '00000000-0000-0000-0000-000000000000') AS job_id, count(*) AS waiting
    FROM active_executions e
    WHERE e.tenant_id = ANY (ARRAY(SELECT s.tenant_id FROM seen s WHERE s.tenant_id IS NOT NULL)) AND (e.status IN ('pending', 'retrying') OR e.awaited_until IS NOT NULL)
      AND NOT EXISTS (SELECT 1 FROM cancellations o WHERE o.job_id = e.job_id AND o.generation >= e.generation AND NOT (o.spare_backfills AND e.backfill_id IS NOT NULL))
    GROUP BY GROUPING SETS ((e.tenant_id, e.job_id), (e.tenant_id))
    HAVING count(*) >= least(@at_least::bigint, (SELECT least(t.max_waiting, t.max_waiting_per_job) FROM tenants t WHERE t.id = e.tenant_id))
),
gone AS (
    DELETE FROM waiting_counts w
    WHERE w.tenant_id > @after::uuid AND w.tenant_id <= (SELECT n.tenant_id FROM ending n)
      AND NOT EXISTS (SELECT 1 FROM counted c WHERE c.tenant_id = w.tenant_id AND c.job_id = w.job_id)
),
kept AS (
    INSERT INTO waiting_counts AS w (tenant_id, job_id, waiting) SELECT c.tenant_id, c.job_id, c.waiting FROM counted c
    ON CONFLICT (tenant_id, job_id) DO UPDATE SET waiting = EXCLUDED.waiting WHERE w.waiting <> EXCLUDED.waiting
)
SELECT CASE WHEN n.tenant_id = 'ffffffff-ffff-ffff-ffff-ffffffffffff' THEN '00000000-0000-0000-0000-000000000000' ELSE n.tenant_id END::uuid AS next_after FROM ending n;

-- name: ListFullBacklogs :many
-- Cross-tenant: promoters look every few seconds where as many wait as may, of a
-- job or (the nil id) of a tenant, and whose limit that is.
SELECT f.tenant_id, f.job_id, f.most::bigint AS most, f.own::boolean AS own
FROM (SELECT w.tenant_id, w.job_id, w.waiting,
             CASE WHEN w.job_id = '00000000-0000-0000-0000-000000000000' THEN coalesce(t.max_waiting, nullif(@max_waiting::int, 0))
                  ELSE coalesce(t.max_waiting_per_job, nullif(@max_waiting_per_job::int, 0)) END AS most,
             CASE WHEN w.job_id = '00000000-0000-0000-0000-000000000000' THEN t.max_waiting IS NOT NULL ELSE t.max_waiting_per_job IS NOT NULL END AS own
      FROM waiting_counts w JOIN tenants t ON t.id = w.tenant_id) f
WHERE f.waiting >= f.most;

-- name: CountSomeWaiting :one
-- How many of a tenant wait, and how many of one of its jobs, of at most so many
-- that are counted of each.
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM active_executions e
            WHERE e.tenant_id = @tenant_id AND (e.status IN ('pending', 'retrying') OR e.awaited_until IS NOT NULL)
              AND NOT EXISTS (SELECT 1 FROM cancellations o WHERE o.job_id = e.job_id AND o.generation >= e.generation AND NOT (o.spare_backfills AND e.backfill_id IS NOT NULL))
            LIMIT @most) few)::bigint AS of_tenant,
       (SELECT count(*) FROM (
            SELECT 1 FROM active_executions e
            WHERE e.tenant_id = @tenant_id AND e.job_id = @job_id AND (e.status IN ('pending', 'retrying') OR e.awaited_until IS NOT NULL)
              AND NOT EXISTS (SELECT 1 FROM cancellations o WHERE o.job_id = e.job_id AND o.generation >= e.generation AND NOT (o.spare_backfills AND e.backfill_id IS NOT NULL))
            LIMIT @most_of_job) few)::bigint AS of_job;
