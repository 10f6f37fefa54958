-- name: GetExecution :one
-- One view over what is active and what is over.
-- The id holds the instant in milliseconds: the range reads one partition.
SELECT * FROM executions
WHERE tenant_id = @tenant_id AND id = @id AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz;

-- name: ListExecutions :many
-- Newest first, from the position of the last page; the bounds on scheduled_at
-- leave only the partitions that the range asks for.
SELECT * FROM executions
WHERE tenant_id = @tenant_id
  AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
  AND (scheduled_at, id) < (@before_at::timestamptz, @before_id::uuid)
  AND (sqlc.narg(statuses)::text[] IS NULL OR status = ANY (sqlc.narg(statuses)::text[]))
  AND (sqlc.narg(trigger_type)::text IS NULL OR trigger_type = sqlc.narg(trigger_type))
ORDER BY scheduled_at DESC, id DESC
LIMIT @page_size;

-- name: ListExecutionsByJob :many
-- The same for one job.
SELECT * FROM executions
WHERE tenant_id = @tenant_id AND job_id = @job_id
  AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
  AND (scheduled_at, id) < (@before_at::timestamptz, @before_id::uuid)
  AND (sqlc.narg(statuses)::text[] IS NULL OR status = ANY (sqlc.narg(statuses)::text[]))
  AND (sqlc.narg(trigger_type)::text IS NULL OR trigger_type = sqlc.narg(trigger_type))
ORDER BY scheduled_at DESC, id DESC
LIMIT @page_size;
