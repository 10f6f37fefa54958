-- name: CountNextWaiting :one
-- Cross-tenant: one promoter at a time. Counts what waits among the next rows after a
-- place, most of them at once: those of its tenant (within) or those of the tenants after
-- it. Counts by job what waits for a worker or a callback, but for what is being
-- cancelled. rows_read is how many rows there were, and the last of them is the next
-- place. own is the smaller one of the limits of the tenant's own; 0 is none.
WITH seen AS MATERIALIZED (
    (SELECT e.tenant_id, e.job_id, e.scheduled_at, e.id, e.generation, e.backfill_id,
            e.status IN ('pending', 'retrying') OR e.awaited_until IS NOT NULL AS waits
     FROM active_executions e
     WHERE @within::boolean AND e.tenant_id = @after_tenant::uuid AND (e.scheduled_at, e.id) < (@after_at::timestamptz, @after_id::uuid)
     ORDER BY e.scheduled_at DESC, e.id DESC
     LIMIT (SELECT @most::int)) -- a number that is known would have all rows sorted
    UNION ALL
    (SELECT e.tenant_id, e.job_id, e.scheduled_at, e.id, e.generation, e.backfill_id,
            e.status IN ('pending', 'retrying') OR e.awaited_until IS NOT NULL AS waits
     FROM active_executions e
     WHERE NOT @within::boolean AND e.tenant_id > @after_tenant::uuid
     ORDER BY e.tenant_id, e.scheduled_at DESC, e.id DESC
     LIMIT (SELECT @most::int))
),
ending AS MATERIALIZED (
    SELECT s.tenant_id, s.scheduled_at, s.id FROM seen s ORDER BY s.tenant_id DESC, s.scheduled_at, s.id LIMIT 1
),
counted AS MATERIALIZED (
    SELECT s.tenant_id, s.job_id, count(*) AS waiting FROM seen s
    WHERE s.waits AND NOT EXISTS (SELECT 1 FROM cancellations o WHERE o.job_id = s.job_id AND o.generation >= s.generation AND NOT (o.spare_backfills AND s.backfill_id IS NOT NULL))
    GROUP BY s.tenant_id, s.job_id
)
SELECT (SELECT count(*) FROM seen)::int AS rows_read,
       coalesce((SELECT f.tenant_id FROM ending f), @after_tenant)::uuid AS last_tenant,
       coalesce((SELECT f.scheduled_at FROM ending f), @after_at)::timestamptz AS last_at,
       coalesce((SELECT f.id FROM ending f), @after_id)::uuid AS last_id,
       coalesce(array_agg(c.tenant_id), '{}')::uuid[] AS tenant_ids, coalesce(array_agg(c.job_id), '{}')::uuid[] AS job_ids,
       coalesce(array_agg(c.waiting), '{}')::bigint[] AS waiting,
       coalesce(array_agg(coalesce((SELECT least(t.max_waiting, t.max_waiting_per_job) FROM tenants t WHERE t.id = c.tenant_id), 0)), '{}')::int[] AS own
FROM counted c;

-- name: KeepWaiting :exec
-- Cross-tenant: one promoter at a time. Keeps the numbers of what waits, of tenants and
-- jobs from one up to but without another, and removes those that are not among them.
WITH counted AS MATERIALIZED (
    SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@job_ids::uuid[]) AS job_id, unnest(@waiting::bigint[]) AS waiting
),
gone AS (
    DELETE FROM waiting_counts w
    WHERE (w.tenant_id, w.job_id) >= (@from_tenant::uuid, @from_job::uuid) AND (w.tenant_id, w.job_id) < (@until_tenant::uuid, @until_job::uuid)
      AND NOT EXISTS (SELECT 1 FROM counted c WHERE c.tenant_id = w.tenant_id AND c.job_id = w.job_id)
)
INSERT INTO waiting_counts AS w (tenant_id, job_id, waiting) SELECT c.tenant_id, c.job_id, c.waiting FROM counted c
ON CONFLICT (tenant_id, job_id) DO UPDATE SET waiting = EXCLUDED.waiting WHERE w.waiting <> EXCLUDED.waiting;

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
