-- name: TakeMetrics :exec
-- Cross-tenant: the collector of metrics. The numbers of every tenant, and of the
-- service as their sum; the workers are everybody's. Twice in one slot is once.
WITH jobs AS (
    SELECT j.tenant_id, count(*) AS total, count(*) FILTER (WHERE j.status = 'active') AS active, count(*) FILTER (WHERE j.status = 'paused') AS paused
    FROM job_definitions j WHERE j.deleted_at IS NULL GROUP BY j.tenant_id
),
queue AS (
    SELECT a.tenant_id, count(*) FILTER (WHERE a.status IN ('pending', 'retrying')) AS waiting, count(*) FILTER (WHERE a.status = 'running') AS running
    FROM active_executions a GROUP BY a.tenant_id
),
fleet AS (SELECT count(*) AS workers FROM workers w WHERE w.tenant_id IS NULL AND NOT w.dead AND w.expires_at > now()),
noted AS (UPDATE metric_totals t SET taken_at = @slot::timestamptz WHERE t.tenant_id = '00000000-0000-0000-0000-000000000000'),
counted AS (SELECT t.id FROM tenants t UNION ALL SELECT '00000000-0000-0000-0000-000000000000'::uuid)
INSERT INTO metric_history (tenant_id, taken_at, coarse, jobs, active_jobs, paused_jobs, waiting, running, workers,
                            completed, failed, cancelled, skipped, timed_out, retried, timed, duration_ms)
SELECT c.id, @slot::timestamptz, date_bin('5 minutes', @slot, '2000-01-01 00:00:00+00') = @slot,
       coalesce(CASE WHEN n.service THEN (SELECT sum(s.total) FROM jobs s) ELSE j.total END, 0),
       coalesce(CASE WHEN n.service THEN (SELECT sum(s.active) FROM jobs s) ELSE j.active END, 0),
       coalesce(CASE WHEN n.service THEN (SELECT sum(s.paused) FROM jobs s) ELSE j.paused END, 0),
       coalesce(CASE WHEN n.service THEN (SELECT sum(s.waiting) FROM queue s) ELSE q.waiting END, 0),
       coalesce(CASE WHEN n.service THEN (SELECT sum(s.running) FROM queue s) ELSE q.running END, 0),
       f.workers, coalesce(m.completed, 0), coalesce(m.failed, 0), coalesce(m.cancelled, 0), coalesce(m.skipped, 0),
       coalesce(m.timed_out, 0), coalesce(m.retried, 0), coalesce(m.timed, 0), coalesce(m.duration_ms, 0)
FROM counted c CROSS JOIN fleet f CROSS JOIN LATERAL (SELECT c.id = '00000000-0000-0000-0000-000000000000' AS service) n
LEFT JOIN jobs j ON j.tenant_id = c.id LEFT JOIN queue q ON q.tenant_id = c.id LEFT JOIN metric_totals m ON m.tenant_id = c.id
ON CONFLICT (tenant_id, taken_at) DO NOTHING;

-- name: GetMetrics :one
-- The newest numbers of a tenant that are not after a given time.
SELECT * FROM metric_history WHERE tenant_id = @tenant_id AND taken_at <= @at::timestamptz ORDER BY taken_at DESC LIMIT 1;

-- name: ListMetrics :many
-- Newest first; from is included, to is not.
SELECT * FROM metric_history
WHERE tenant_id = @tenant_id AND taken_at >= @from_at::timestamptz AND taken_at < @to_at::timestamptz
ORDER BY taken_at DESC LIMIT @page_size;

-- name: DeleteFineMetrics :execrows
-- Cross-tenant: retention. A bounded piece of what lies between two that are kept
-- for longer.
DELETE FROM metric_history m USING (
    SELECT h.tenant_id, h.taken_at FROM metric_history h WHERE NOT h.coarse AND h.taken_at < @before::timestamptz ORDER BY h.taken_at OFFSET @skipped LIMIT @batch_size
) old WHERE m.tenant_id = old.tenant_id AND m.taken_at = old.taken_at;

-- name: DeleteOldMetrics :execrows
-- Cross-tenant: retention. A bounded piece of what is too old.
DELETE FROM metric_history m USING (
    SELECT h.tenant_id, h.taken_at FROM metric_history h WHERE h.coarse AND h.taken_at < @before::timestamptz ORDER BY h.taken_at OFFSET @skipped LIMIT @batch_size
) old WHERE m.tenant_id = old.tenant_id AND m.taken_at = old.taken_at;
