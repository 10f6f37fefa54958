-- name: InsertBackfill :one
INSERT INTO backfills (id, tenant_id, job_id, job_version, from_at, to_at, cursor_at, rate_per_minute, parameters, total, next_batch_at, requested_by, created_at)
VALUES (@id, @tenant_id, @job_id, @job_version, @from_at, @to_at, @from_at, @rate_per_minute, sqlc.narg(parameters), @total, @now, @requested_by, @now)
RETURNING *;

-- name: GetBackfill :one
SELECT * FROM backfills WHERE tenant_id = @tenant_id AND job_id = @job_id AND id = @id;

-- name: ListBackfillsByJob :many
SELECT * FROM backfills
WHERE tenant_id = @tenant_id AND job_id = @job_id AND (created_at, id) < (@before_created_at::timestamptz, @before_id::uuid)
ORDER BY created_at DESC, id DESC LIMIT @page_size;

-- name: CountBackfillOutcomes :many
-- What became of a backfill's executions; the range leaves only its own
-- partitions.
SELECT status::text AS status, count(*) AS executions FROM executions
WHERE tenant_id = @tenant_id AND job_id = @job_id AND backfill_id = @backfill_id
  AND scheduled_at >= @from_at::timestamptz AND scheduled_at <= @to_at::timestamptz
GROUP BY 1;

-- name: CancelBackfill :one
-- Waits for a batch that is being made; nothing is made after it.
UPDATE backfills SET status = 'cancelled', finished_at = @now::timestamptz
WHERE tenant_id = @tenant_id AND job_id = @job_id AND id = @id AND status = 'running'
RETURNING *;

-- name: ClaimBackfills :many
-- Cross-tenant: the promoter. Backfills whose next batch is due; skips what
-- another promoter works on.
SELECT b.*, coalesce(sqlc.narg(now)::timestamptz, now())::timestamptz AS at FROM backfills b
WHERE b.status = 'running' AND b.next_batch_at <= coalesce(sqlc.narg(now)::timestamptz, now())
ORDER BY b.next_batch_at LIMIT 20 FOR NO KEY UPDATE SKIP LOCKED;

-- name: AdvanceBackfill :exec
-- Cross-tenant: the promoter, for a row that it holds locked.
UPDATE backfills SET cursor_at = @cursor_at, created = created + @made::int, next_batch_at = @next_batch_at,
       status = CASE WHEN @finished::boolean THEN 'completed' ELSE status END,
       finished_at = CASE WHEN @finished::boolean THEN @now::timestamptz END
WHERE id = @id;
