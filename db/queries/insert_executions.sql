-- name: InsertDueExecutions :exec
-- Cross-tenant: the promoter. Inserting a run twice is a no-op by two look-ups, in this table
-- and in one partition of the history. Nobody else inserts it meanwhile: the promoter holds the job
-- locked. ON CONFLICT would cost each execution 50 B of WAL. The look-ups are no joins, so that no
-- plan reads a whole table. That of the history names tenant and job, so that each index finds one entry,
-- and the first and the last scheduled time, so that a kept plan opens the partitions of these alone.
INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority,
                               max_attempts, timeout_ms, concurrency_limit, concurrency_key, generation, pooled, available_at, sweep_at, created_at)
SELECT u.id, u.tenant_id, u.job_id, u.job_version, u.scheduled_at, 'scheduled', u.job_type, u.priority,
       u.max_attempts, u.timeout_ms, u.concurrency_limit, nullif(u.concurrency_key, ''), u.generation, u.pooled, greatest(u.available_at, n.at),
       -- An execution in the pool has no hint that could be lost.
       CASE WHEN u.pooled THEN 'infinity' ELSE greatest(u.available_at, n.at) + interval '5 seconds' END, n.at
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@job_ids::uuid[]) AS job_id,
             unnest(@job_versions::int[]) AS job_version, unnest(@scheduled_at::timestamptz[]) AS scheduled_at,
             unnest(@job_types::text[]) AS job_type, unnest(@priorities::smallint[]) AS priority,
             unnest(@max_attempts::int[]) AS max_attempts, unnest(@timeouts_ms::int[]) AS timeout_ms,
             unnest(@concurrency_limits::smallint[]) AS concurrency_limit, unnest(@concurrency_keys::text[]) AS concurrency_key,
             unnest(@generations::int[]) AS generation, unnest(@pooled::boolean[]) AS pooled, unnest(@available_at::timestamptz[]) AS available_at) u,
     (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at) n
WHERE (SELECT h.id FROM job_executions h WHERE h.tenant_id = u.tenant_id AND h.job_id = u.job_id AND h.id = u.id AND h.scheduled_at = u.scheduled_at
         AND h.scheduled_at >= @first_at::timestamptz AND h.scheduled_at <= @last_at::timestamptz) IS NULL
  AND (SELECT e.id FROM active_executions e WHERE e.id = u.id) IS NULL;

-- name: InsertRequestedExecution :exec
-- It is in the pool and, if there is room, gets a hint too: the first worker
-- claims it. So the API need not know what the queue is like.
INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, triggered_by, job_type, priority,
                               parameters, max_attempts, timeout_ms, concurrency_limit, concurrency_key, generation, pooled, available_at, sweep_at, created_at)
VALUES (@id, @tenant_id, @job_id, @job_version, @scheduled_at, @trigger_type, @triggered_by, @job_type, @priority,
        sqlc.narg(parameters), @max_attempts, @timeout_ms, @concurrency_limit, sqlc.narg(concurrency_key), @generation, @pooled, @now,
        CASE WHEN @pooled THEN 'infinity' ELSE @sweep_at::timestamptz END, @now);
