-- name: LockJobDefinition :one
-- The definition from which a backfill is planned, and the time from which its
-- interval counts. Locked, so that the count of running backfills and the
-- new one are one step; NO KEY UPDATE also waits for a deletion.
SELECT j.version, j.anchor_at, v.spec
FROM scheduled_jobs j JOIN job_versions v ON v.job_id = j.id AND v.version = j.version
WHERE j.tenant_id = @tenant_id AND j.id = @job_id AND j.deleted_at IS NULL
FOR NO KEY UPDATE OF j;

-- name: CountRunningBackfills :one
SELECT count(*) FROM backfills WHERE tenant_id = @tenant_id AND job_id = @job_id AND status = 'running';

-- name: InsertBackfill :one
INSERT INTO backfills (id, tenant_id, job_id, job_version, from_at, to_at, cursor_at, rate_per_minute, parameters, total, next_batch_at, requested_by, created_at, anchor_at, daily_share)
VALUES (@id, @tenant_id, @job_id, @job_version, @from_at, @to_at, @cursor_at, @rate_per_minute, sqlc.narg(parameters), @total, @now, @requested_by, @now, @anchor_at::timestamptz, @daily_share)
RETURNING *;

-- name: GetBackfill :one
-- With how many of its executions are not over, by one snapshot.
SELECT sqlc.embed(b), (SELECT count(*) FROM active_executions a WHERE a.tenant_id = @tenant_id AND a.job_id = b.job_id AND a.backfill_id = b.id) AS active
FROM backfills b WHERE b.tenant_id = @tenant_id AND b.job_id = @job_id AND b.id = @id;

-- name: ListBackfillsByJob :many
-- Walks backfills_job backwards from the position of the last page.
SELECT sqlc.embed(b), (SELECT count(*) FROM active_executions a WHERE a.tenant_id = @tenant_id AND a.job_id = b.job_id AND a.backfill_id = b.id) AS active
FROM backfills b
WHERE b.tenant_id = @tenant_id AND b.job_id = @job_id AND (b.created_at, b.id) < (@before_created_at::timestamptz, @before_id::uuid)
ORDER BY b.created_at DESC, b.id DESC LIMIT @page_size;

-- name: CountBackfillOutcomes :many
-- Counts a backfill's executions by status; the range leaves only its own
-- partitions.
SELECT status::text AS status, count(*) AS executions FROM executions
WHERE tenant_id = @tenant_id AND job_id = @job_id AND backfill_id = @backfill_id
  AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
GROUP BY 1;

-- name: CancelBackfill :execrows
-- Waits for a batch that is being made; nothing is made after it.
UPDATE backfills SET status = 'cancelled', held_by = '', finished_at = @now::timestamptz
WHERE tenant_id = @tenant_id AND job_id = @job_id AND id = @id AND status = 'running';

-- name: ClaimBackfills :many
-- Cross-tenant: the promoter. Backfills whose next batch is due, with the
-- definition that each was made with and what its job allows now. Locks the
-- jobs too, so that a deletion comes before the batch or cancels it; skips what
-- somebody works on, here or there. With ids, of these alone: the caller divides
-- what fails. A backfill that a process of the version
-- before made has no anchor: its interval counts from the version that
-- introduced it, as far as retention left that.
SELECT sqlc.embed(b), v.spec, (j.deleted_at IS NOT NULL)::boolean AS deleted, j.overlap_policy, j.max_concurrent,
       coalesce(b.anchor_at, (
           SELECT max(n.created_at) FROM job_versions n
           WHERE n.job_id = b.job_id AND n.version <= b.job_version
             AND NOT EXISTS (SELECT 1 FROM job_versions p WHERE p.job_id = n.job_id AND p.version = n.version - 1
                                                            AND p.spec->'interval' IS NOT DISTINCT FROM n.spec->'interval')))::timestamptz AS anchor_at,
       coalesce(sqlc.narg(now)::timestamptz, now())::timestamptz AS at
FROM backfills b
JOIN scheduled_jobs j ON j.id = b.job_id
JOIN job_versions v ON v.job_id = b.job_id AND v.version = b.job_version
WHERE b.status = 'running' AND b.next_batch_at <= coalesce(sqlc.narg(now)::timestamptz, now())
  AND NOT EXISTS (SELECT 1 FROM tenants t WHERE t.id = b.tenant_id AND t.status <> 'active')
  AND (sqlc.narg(ids)::uuid[] IS NULL OR b.id = ANY (sqlc.narg(ids)::uuid[])) AND b.id <> ALL (@passed_over::uuid[])
ORDER BY b.next_batch_at LIMIT @batch_size FOR NO KEY UPDATE OF b, j SKIP LOCKED;

-- name: CountActiveByBackfills :many
-- Cross-tenant: the promoter, for backfills that it holds locked.
SELECT a.backfill_id::uuid AS backfill_id, count(*) AS active, count(*) FILTER (WHERE a.status <> 'running') AS waiting
FROM active_executions a
WHERE a.job_id = ANY (@job_ids::uuid[]) AND a.backfill_id = ANY (@backfill_ids::uuid[])
GROUP BY a.backfill_id;

-- name: InsertBackfillExecutions :exec
-- Cross-tenant: the promoter, for backfills that it holds locked. Inserting a
-- run twice is a no-op, in this table by its key and in the history by the
-- look-up, which opens the partitions from the first scheduled time to the last. A run
-- that may start waits in the pool without a hint: its scheduled time is long past.
INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, triggered_by, job_type, priority, parameters,
                               max_attempts, timeout_ms, concurrency_limit, concurrency_key, generation, backfill_id, pooled, available_at, sweep_at, created_at)
SELECT u.id, b.tenant_id, b.job_id, b.job_version, u.scheduled_at, 'backfill', b.requested_by, u.job_type, u.priority, b.parameters,
       u.max_attempts, u.timeout_ms, u.concurrency_limit, nullif(u.concurrency_key, ''), j.generation, b.id, u.concurrency_limit = 0 AND u.concurrency_key = '', n.at,
       CASE WHEN u.concurrency_limit = 0 AND u.concurrency_key = '' THEN 'infinity' ELSE n.at + interval '5 seconds' END, n.at
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@backfill_ids::uuid[]) AS backfill_id, unnest(@scheduled_at::timestamptz[]) AS scheduled_at,
             unnest(@job_types::text[]) AS job_type, unnest(@priorities::smallint[]) AS priority, unnest(@max_attempts::int[]) AS max_attempts,
             unnest(@timeouts_ms::int[]) AS timeout_ms, unnest(@concurrency_limits::smallint[]) AS concurrency_limit,
             unnest(@concurrency_keys::text[]) AS concurrency_key) u
JOIN backfills b ON b.id = u.backfill_id JOIN scheduled_jobs j ON j.id = b.job_id
CROSS JOIN (SELECT @now::timestamptz AS at) n
WHERE NOT EXISTS (SELECT 1 FROM job_executions h WHERE h.tenant_id = b.tenant_id AND h.job_id = b.job_id AND h.id = u.id AND h.scheduled_at = u.scheduled_at
                                AND h.scheduled_at >= @first_at::timestamptz AND h.scheduled_at <= @last_at::timestamptz OFFSET 0)
ON CONFLICT (id) DO NOTHING;

-- name: AdvanceBackfill :exec
-- Cross-tenant: the promoter, for a row that it holds locked. A completed
-- backfill gets as total the number that it made: a calendar may have changed meanwhile.
UPDATE backfills SET cursor_at = @cursor_at, created = created + @made::int, next_batch_at = @next_batch_at, status = @status, held_by = @held_by,
       total = CASE WHEN @status = 'completed' THEN created + @made::int ELSE total END,
       finished_at = CASE WHEN @status <> 'running' THEN @now::timestamptz END
WHERE id = @id;

-- name: HoldBackfill :exec
-- Cross-tenant: the promoter, for one that fails alone: why, and when it is tried
-- again.
UPDATE backfills SET held_by = @held_by, next_batch_at = coalesce(sqlc.narg(now)::timestamptz, now()) + interval '1 minute'
WHERE id = @id AND status = 'running';

-- name: CancelBackfillsByJobs :execrows
-- For jobs that the caller holds locked; waits for a batch that is being made.
UPDATE backfills SET status = 'cancelled', held_by = '', finished_at = @now::timestamptz
WHERE tenant_id = @tenant_id AND job_id = ANY (@job_ids::uuid[]) AND status = 'running';

-- name: DeleteOldBackfills :execrows
-- Cross-tenant: retention. Backfills that were over before the oldest month that
-- is kept; a bounded piece each time. Skips what is locked.
DELETE FROM backfills b USING (
    SELECT o.id FROM backfills o WHERE o.status <> 'running' AND o.finished_at < @before::timestamptz
    ORDER BY o.finished_at OFFSET @skipped LIMIT @batch_size FOR UPDATE SKIP LOCKED
) old WHERE b.id = old.id;
