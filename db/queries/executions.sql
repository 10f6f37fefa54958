-- name: GetExecution :one
-- One view over what is active and what is over.
-- The id holds the instant in milliseconds: the range reads one partition.
SELECT * FROM executions
WHERE tenant_id = @tenant_id AND id = @id AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz;

-- name: ListExecutions :many
-- Newest first, from the position of the last page; the bounds on scheduled_at
-- leave only the partitions that the range asks for.
SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
       status, reason, missed_count, missed_until, attempt, max_attempts, progress, attempts, worker_id, started_at,
       completed_at, duration_ms, (CASE WHEN @with_result::boolean THEN result END)::jsonb AS result,
       error_type, error_message, error_stack, memory_peak_mb, cpu_time_ms, created_at, available_at, cancel_requested_at, backfill_id, cancelled_by
FROM executions
WHERE tenant_id = @tenant_id
  AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
  AND (scheduled_at, id) < (@place_at::timestamptz, @place_id::uuid)
  AND (sqlc.narg(statuses)::text[] IS NULL OR status = ANY (sqlc.narg(statuses)::text[]))
  AND (sqlc.narg(triggers)::text[] IS NULL OR trigger_type = ANY (sqlc.narg(triggers)::text[]))
  AND (sqlc.narg(job_types)::text[] IS NULL OR job_type = ANY (sqlc.narg(job_types)::text[]))
  AND (sqlc.narg(triggered_by)::text IS NULL OR triggered_by = sqlc.narg(triggered_by)::text)
  AND (sqlc.narg(created_from)::timestamptz IS NULL OR created_at >= sqlc.narg(created_from)::timestamptz)
  AND (sqlc.narg(created_to)::timestamptz IS NULL OR created_at < sqlc.narg(created_to)::timestamptz)
ORDER BY scheduled_at DESC, id DESC
LIMIT @page_size;

-- name: ListOldestExecutions :many
-- The same the other way round.
SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
       status, reason, missed_count, missed_until, attempt, max_attempts, progress, attempts, worker_id, started_at,
       completed_at, duration_ms, (CASE WHEN @with_result::boolean THEN result END)::jsonb AS result,
       error_type, error_message, error_stack, memory_peak_mb, cpu_time_ms, created_at, available_at, cancel_requested_at, backfill_id, cancelled_by
FROM executions
WHERE tenant_id = @tenant_id
  AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
  AND (scheduled_at, id) > (@place_at::timestamptz, @place_id::uuid)
  AND (sqlc.narg(statuses)::text[] IS NULL OR status = ANY (sqlc.narg(statuses)::text[]))
  AND (sqlc.narg(triggers)::text[] IS NULL OR trigger_type = ANY (sqlc.narg(triggers)::text[]))
  AND (sqlc.narg(job_types)::text[] IS NULL OR job_type = ANY (sqlc.narg(job_types)::text[]))
  AND (sqlc.narg(triggered_by)::text IS NULL OR triggered_by = sqlc.narg(triggered_by)::text)
  AND (sqlc.narg(created_from)::timestamptz IS NULL OR created_at >= sqlc.narg(created_from)::timestamptz)
  AND (sqlc.narg(created_to)::timestamptz IS NULL OR created_at < sqlc.narg(created_to)::timestamptz)
ORDER BY scheduled_at, id
LIMIT @page_size;

-- name: ListUnsuccessfulExecutions :many
-- The same without what completed, of which there is most: walks
-- job_executions_unsuccessful.
SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
       status, reason, missed_count, missed_until, attempt, max_attempts, progress, attempts, worker_id, started_at,
       completed_at, duration_ms, (CASE WHEN @with_result::boolean THEN result END)::jsonb AS result,
       error_type, error_message, error_stack, memory_peak_mb, cpu_time_ms, created_at, available_at, cancel_requested_at, backfill_id, cancelled_by
FROM executions
WHERE tenant_id = @tenant_id
  AND status <> 'completed'
  AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
  AND (scheduled_at, id) < (@place_at::timestamptz, @place_id::uuid)
  AND (sqlc.narg(statuses)::text[] IS NULL OR status = ANY (sqlc.narg(statuses)::text[]))
  AND (sqlc.narg(triggers)::text[] IS NULL OR trigger_type = ANY (sqlc.narg(triggers)::text[]))
  AND (sqlc.narg(job_types)::text[] IS NULL OR job_type = ANY (sqlc.narg(job_types)::text[]))
  AND (sqlc.narg(triggered_by)::text IS NULL OR triggered_by = sqlc.narg(triggered_by)::text)
  AND (sqlc.narg(created_from)::timestamptz IS NULL OR created_at >= sqlc.narg(created_from)::timestamptz)
  AND (sqlc.narg(created_to)::timestamptz IS NULL OR created_at < sqlc.narg(created_to)::timestamptz)
ORDER BY scheduled_at DESC, id DESC
LIMIT @page_size;

-- name: ListExecutionsByJob :many
-- Newest first, of one job.
SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
       status, reason, missed_count, missed_until, attempt, max_attempts, progress, attempts, worker_id, started_at,
       completed_at, duration_ms, (CASE WHEN @with_result::boolean THEN result END)::jsonb AS result,
       error_type, error_message, error_stack, memory_peak_mb, cpu_time_ms, created_at, available_at, cancel_requested_at, backfill_id, cancelled_by
FROM executions
WHERE tenant_id = @tenant_id AND job_id = @job_id
  AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
  AND (scheduled_at, id) < (@place_at::timestamptz, @place_id::uuid)
  AND (sqlc.narg(statuses)::text[] IS NULL OR status = ANY (sqlc.narg(statuses)::text[]))
  AND (sqlc.narg(triggers)::text[] IS NULL OR trigger_type = ANY (sqlc.narg(triggers)::text[]))
  AND (sqlc.narg(job_types)::text[] IS NULL OR job_type = ANY (sqlc.narg(job_types)::text[]))
  AND (sqlc.narg(triggered_by)::text IS NULL OR triggered_by = sqlc.narg(triggered_by)::text)
  AND (sqlc.narg(created_from)::timestamptz IS NULL OR created_at >= sqlc.narg(created_from)::timestamptz)
  AND (sqlc.narg(created_to)::timestamptz IS NULL OR created_at < sqlc.narg(created_to)::timestamptz)
ORDER BY scheduled_at DESC, id DESC
LIMIT @page_size;

-- name: ListOldestExecutionsByJob :many
-- The same the other way round.
SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
       status, reason, missed_count, missed_until, attempt, max_attempts, progress, attempts, worker_id, started_at,
       completed_at, duration_ms, (CASE WHEN @with_result::boolean THEN result END)::jsonb AS result,
       error_type, error_message, error_stack, memory_peak_mb, cpu_time_ms, created_at, available_at, cancel_requested_at, backfill_id, cancelled_by
FROM executions
WHERE tenant_id = @tenant_id AND job_id = @job_id
  AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
  AND (scheduled_at, id) > (@place_at::timestamptz, @place_id::uuid)
  AND (sqlc.narg(statuses)::text[] IS NULL OR status = ANY (sqlc.narg(statuses)::text[]))
  AND (sqlc.narg(triggers)::text[] IS NULL OR trigger_type = ANY (sqlc.narg(triggers)::text[]))
  AND (sqlc.narg(job_types)::text[] IS NULL OR job_type = ANY (sqlc.narg(job_types)::text[]))
  AND (sqlc.narg(triggered_by)::text IS NULL OR triggered_by = sqlc.narg(triggered_by)::text)
  AND (sqlc.narg(created_from)::timestamptz IS NULL OR created_at >= sqlc.narg(created_from)::timestamptz)
  AND (sqlc.narg(created_to)::timestamptz IS NULL OR created_at < sqlc.narg(created_to)::timestamptz)
ORDER BY scheduled_at, id
LIMIT @page_size;

-- name: ListUnsuccessfulExecutionsByJob :many
-- The same without what completed: walks job_executions_job_unsuccessful.
SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
       status, reason, missed_count, missed_until, attempt, max_attempts, progress, attempts, worker_id, started_at,
       completed_at, duration_ms, (CASE WHEN @with_result::boolean THEN result END)::jsonb AS result,
       error_type, error_message, error_stack, memory_peak_mb, cpu_time_ms, created_at, available_at, cancel_requested_at, backfill_id, cancelled_by
FROM executions
WHERE tenant_id = @tenant_id AND job_id = @job_id
  AND status <> 'completed'
  AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
  AND (scheduled_at, id) < (@place_at::timestamptz, @place_id::uuid)
  AND (sqlc.narg(statuses)::text[] IS NULL OR status = ANY (sqlc.narg(statuses)::text[]))
  AND (sqlc.narg(triggers)::text[] IS NULL OR trigger_type = ANY (sqlc.narg(triggers)::text[]))
  AND (sqlc.narg(job_types)::text[] IS NULL OR job_type = ANY (sqlc.narg(job_types)::text[]))
  AND (sqlc.narg(triggered_by)::text IS NULL OR triggered_by = sqlc.narg(triggered_by)::text)
  AND (sqlc.narg(created_from)::timestamptz IS NULL OR created_at >= sqlc.narg(created_from)::timestamptz)
  AND (sqlc.narg(created_to)::timestamptz IS NULL OR created_at < sqlc.narg(created_to)::timestamptz)
ORDER BY scheduled_at DESC, id DESC
LIMIT @page_size;
