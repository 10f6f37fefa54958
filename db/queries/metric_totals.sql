-- name: LockMetricCursor :one
-- Cross-tenant: the collector of metrics, in one transaction with and before what
-- it counts: the service's row is locked, so that no outcome is counted twice.
SELECT t.counted_to, now()::timestamptz AS at, date_bin('30 seconds', now(), '2000-01-01 00:00:00+00')::timestamptz AS slot,
       (t.taken_at IS NOT NULL AND t.taken_at >= date_bin('30 seconds', now(), '2000-01-01 00:00:00+00'))::boolean AS taken
FROM metric_totals t WHERE t.tenant_id = '00000000-0000-0000-0000-000000000000' FOR UPDATE OF t;

-- name: CountOutcomes :exec
-- Cross-tenant: the collector of metrics. Adds the outcomes of an interval of time
-- to the totals of their tenants and of the service; walks
-- job_executions_completed.
INSERT INTO metric_totals AS t (tenant_id, counted_to, completed, failed, cancelled, skipped, timed_out, retried, timed, duration_ms)
SELECT coalesce(e.tenant_id, '00000000-0000-0000-0000-000000000000'), @to_at::timestamptz,
       count(*) FILTER (WHERE e.status = 'completed'), count(*) FILTER (WHERE e.status = 'failed'),
       count(*) FILTER (WHERE e.status = 'cancelled'), count(*) FILTER (WHERE e.status IN ('skipped', 'missed')),
       count(*) FILTER (WHERE e.status = 'failed' AND e.error_type = 'TIMEOUT'),
       count(*) FILTER (WHERE e.status IN ('completed', 'failed') AND e.attempt > 1),
       count(coalesce(e.duration_us, e.duration_ms)) FILTER (WHERE e.status IN ('completed', 'failed')),
       (coalesce(sum(coalesce(e.duration_us, e.duration_ms * 1000)) FILTER (WHERE e.status IN ('completed', 'failed')), 0) / 1000)::bigint
FROM job_executions e
WHERE e.completed_at > @from_at::timestamptz AND e.completed_at <= @to_at::timestamptz
GROUP BY GROUPING SETS ((e.tenant_id), ())
ON CONFLICT (tenant_id) DO UPDATE SET
    counted_to = EXCLUDED.counted_to, completed = t.completed + EXCLUDED.completed, failed = t.failed + EXCLUDED.failed,
    cancelled = t.cancelled + EXCLUDED.cancelled, skipped = t.skipped + EXCLUDED.skipped, timed_out = t.timed_out + EXCLUDED.timed_out,
    retried = t.retried + EXCLUDED.retried, timed = t.timed + EXCLUDED.timed, duration_ms = t.duration_ms + EXCLUDED.duration_ms;

-- name: ListWriters :one
-- Cross-tenant: the collector of metrics. The transactions of this database that
-- have written and have not ended, and when that was. A lock on a transaction's id
-- is released after its commit is seen by others.
SELECT now()::timestamptz AS at, ARRAY(
    SELECT l.virtualtransaction FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND a.datname = current_database())::text[] AS writers;
