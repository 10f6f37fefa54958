-- name: GetExecution :one
-- One view over active and finished executions.
-- The id holds the scheduled time in milliseconds: the range reads one partition.
SELECT s.*,
       coalesce((SELECT j.name FROM scheduled_jobs j WHERE j.tenant_id = @tenant_id AND j.id = s.job_id), '')::text AS job_name,
       coalesce((SELECT r.retry_of FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.execution_id = s.id), '00000000-0000-0000-0000-000000000000')::uuid AS retry_of,
       coalesce((SELECT r.execution_id FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.retry_of = s.id ORDER BY r.created_at DESC LIMIT 1), '00000000-0000-0000-0000-000000000000')::uuid AS retried_as
FROM executions s
WHERE s.tenant_id = @tenant_id AND s.id = @id AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz;

-- name: ListExecutions :many
-- Newest first, from the position of the last page, within one window of time:
-- the bounds on scheduled_at leave only its partitions, and lock no others where
-- the plan is made for them. Reads scan_rows rows at most, however few the filters
-- leave: the inner query walks the index of the list, and the outer ones ask the
-- filters of each row, which no index can answer under row-level security,
-- because their operators are not leakproof. The last row that was read comes
-- back although it may not fit: the next page begins after it. Of an exhausted
-- window, number tells how many rows it took.
SELECT s.id, s.scheduled_at, s.tenant_id, s.job_id, s.job_version, s.trigger_type, s.triggered_by, s.job_type, s.priority, s.parameters,
       s.status, s.reason, s.missed_count, s.missed_until, s.attempt, s.max_attempts, s.progress, s.attempts, s.worker_id, s.started_at,
       s.completed_at, s.duration_ms, (CASE WHEN @with_result::boolean THEN s.result END)::jsonb AS result,
       s.error_type, s.error_message, s.error_stack, s.memory_peak_mb, s.cpu_time_ms, s.created_at, s.available_at, s.cancel_requested_at, s.backfill_id, s.cancelled_by,
       s.duration_us, s.attempt_started_at,
       coalesce((SELECT j.name FROM scheduled_jobs j WHERE j.tenant_id = @tenant_id AND j.id = s.job_id), '')::text AS job_name,
       coalesce((SELECT r.retry_of FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.execution_id = s.id), '00000000-0000-0000-0000-000000000000')::uuid AS retry_of,
       coalesce((SELECT r.execution_id FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.retry_of = s.id ORDER BY r.created_at DESC LIMIT 1), '00000000-0000-0000-0000-000000000000')::uuid AS retried_as,
       s.number, s.fits::boolean AS fits
FROM (
    SELECT e.*, row_number() OVER listed AS number, lead(true) OVER listed IS NULL AS last,
           ((sqlc.narg(statuses)::text[] IS NULL OR e.status = ANY (sqlc.narg(statuses)::text[]))
            AND (sqlc.narg(triggers)::text[] IS NULL OR e.trigger_type = ANY (sqlc.narg(triggers)::text[]))
            AND (sqlc.narg(job_types)::text[] IS NULL OR e.job_type = ANY (sqlc.narg(job_types)::text[]))
            AND (sqlc.narg(error_types)::text[] IS NULL OR e.error_type = ANY (sqlc.narg(error_types)::text[]))
            AND (sqlc.narg(triggered_by)::text IS NULL OR e.triggered_by = sqlc.narg(triggered_by)::text)
            AND (sqlc.narg(created_from)::timestamptz IS NULL OR e.created_at >= sqlc.narg(created_from)::timestamptz)
            AND (sqlc.narg(created_to)::timestamptz IS NULL OR e.created_at < sqlc.narg(created_to)::timestamptz)) AS fits
    FROM (
        SELECT * FROM executions
        WHERE tenant_id = @tenant_id
          AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
          AND (scheduled_at, id) < (@place_at::timestamptz, @place_id::uuid)
        ORDER BY scheduled_at DESC, id DESC LIMIT @scan_rows
    ) e
    WINDOW listed AS (ORDER BY e.scheduled_at DESC, e.id DESC)
) s
WHERE s.fits OR s.last
ORDER BY s.scheduled_at DESC, s.id DESC
LIMIT @page_size;

-- name: ListOldestExecutions :many
-- The same the other way round.
SELECT s.id, s.scheduled_at, s.tenant_id, s.job_id, s.job_version, s.trigger_type, s.triggered_by, s.job_type, s.priority, s.parameters,
       s.status, s.reason, s.missed_count, s.missed_until, s.attempt, s.max_attempts, s.progress, s.attempts, s.worker_id, s.started_at,
       s.completed_at, s.duration_ms, (CASE WHEN @with_result::boolean THEN s.result END)::jsonb AS result,
       s.error_type, s.error_message, s.error_stack, s.memory_peak_mb, s.cpu_time_ms, s.created_at, s.available_at, s.cancel_requested_at, s.backfill_id, s.cancelled_by,
       s.duration_us, s.attempt_started_at,
       coalesce((SELECT j.name FROM scheduled_jobs j WHERE j.tenant_id = @tenant_id AND j.id = s.job_id), '')::text AS job_name,
       coalesce((SELECT r.retry_of FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.execution_id = s.id), '00000000-0000-0000-0000-000000000000')::uuid AS retry_of,
       coalesce((SELECT r.execution_id FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.retry_of = s.id ORDER BY r.created_at DESC LIMIT 1), '00000000-0000-0000-0000-000000000000')::uuid AS retried_as,
       s.number, s.fits::boolean AS fits
FROM (
    SELECT e.*, row_number() OVER listed AS number, lead(true) OVER listed IS NULL AS last,
           ((sqlc.narg(statuses)::text[] IS NULL OR e.status = ANY (sqlc.narg(statuses)::text[]))
            AND (sqlc.narg(triggers)::text[] IS NULL OR e.trigger_type = ANY (sqlc.narg(triggers)::text[]))
            AND (sqlc.narg(job_types)::text[] IS NULL OR e.job_type = ANY (sqlc.narg(job_types)::text[]))
            AND (sqlc.narg(error_types)::text[] IS NULL OR e.error_type = ANY (sqlc.narg(error_types)::text[]))
            AND (sqlc.narg(triggered_by)::text IS NULL OR e.triggered_by = sqlc.narg(triggered_by)::text)
            AND (sqlc.narg(created_from)::timestamptz IS NULL OR e.created_at >= sqlc.narg(created_from)::timestamptz)
            AND (sqlc.narg(created_to)::timestamptz IS NULL OR e.created_at < sqlc.narg(created_to)::timestamptz)) AS fits
    FROM (
        SELECT * FROM executions
        WHERE tenant_id = @tenant_id
          AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
          AND (scheduled_at, id) > (@place_at::timestamptz, @place_id::uuid)
        ORDER BY scheduled_at, id LIMIT @scan_rows
    ) e
    WINDOW listed AS (ORDER BY e.scheduled_at, e.id)
) s
WHERE s.fits OR s.last
ORDER BY s.scheduled_at, s.id
LIMIT @page_size;

-- name: ListUnsuccessfulExecutions :many
-- The same without what completed, of which there is most: walks
-- job_executions_unsuccessful.
SELECT s.id, s.scheduled_at, s.tenant_id, s.job_id, s.job_version, s.trigger_type, s.triggered_by, s.job_type, s.priority, s.parameters,
       s.status, s.reason, s.missed_count, s.missed_until, s.attempt, s.max_attempts, s.progress, s.attempts, s.worker_id, s.started_at,
       s.completed_at, s.duration_ms, (CASE WHEN @with_result::boolean THEN s.result END)::jsonb AS result,
       s.error_type, s.error_message, s.error_stack, s.memory_peak_mb, s.cpu_time_ms, s.created_at, s.available_at, s.cancel_requested_at, s.backfill_id, s.cancelled_by,
       s.duration_us, s.attempt_started_at,
       coalesce((SELECT j.name FROM scheduled_jobs j WHERE j.tenant_id = @tenant_id AND j.id = s.job_id), '')::text AS job_name,
       coalesce((SELECT r.retry_of FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.execution_id = s.id), '00000000-0000-0000-0000-000000000000')::uuid AS retry_of,
       coalesce((SELECT r.execution_id FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.retry_of = s.id ORDER BY r.created_at DESC LIMIT 1), '00000000-0000-0000-0000-000000000000')::uuid AS retried_as,
       s.number, s.fits::boolean AS fits
FROM (
    SELECT e.*, row_number() OVER listed AS number, lead(true) OVER listed IS NULL AS last,
           ((sqlc.narg(statuses)::text[] IS NULL OR e.status = ANY (sqlc.narg(statuses)::text[]))
            AND (sqlc.narg(triggers)::text[] IS NULL OR e.trigger_type = ANY (sqlc.narg(triggers)::text[]))
            AND (sqlc.narg(job_types)::text[] IS NULL OR e.job_type = ANY (sqlc.narg(job_types)::text[]))
            AND (sqlc.narg(error_types)::text[] IS NULL OR e.error_type = ANY (sqlc.narg(error_types)::text[]))
            AND (sqlc.narg(triggered_by)::text IS NULL OR e.triggered_by = sqlc.narg(triggered_by)::text)
            AND (sqlc.narg(created_from)::timestamptz IS NULL OR e.created_at >= sqlc.narg(created_from)::timestamptz)
            AND (sqlc.narg(created_to)::timestamptz IS NULL OR e.created_at < sqlc.narg(created_to)::timestamptz)) AS fits
    FROM (
        SELECT * FROM executions
        WHERE tenant_id = @tenant_id AND status <> 'completed'
          AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
          AND (scheduled_at, id) < (@place_at::timestamptz, @place_id::uuid)
        ORDER BY scheduled_at DESC, id DESC LIMIT @scan_rows
    ) e
    WINDOW listed AS (ORDER BY e.scheduled_at DESC, e.id DESC)
) s
WHERE s.fits OR s.last
ORDER BY s.scheduled_at DESC, s.id DESC
LIMIT @page_size;

-- name: ListExecutionsByJob :many
-- Newest first, of one job.
SELECT s.id, s.scheduled_at, s.tenant_id, s.job_id, s.job_version, s.trigger_type, s.triggered_by, s.job_type, s.priority, s.parameters,
       s.status, s.reason, s.missed_count, s.missed_until, s.attempt, s.max_attempts, s.progress, s.attempts, s.worker_id, s.started_at,
       s.completed_at, s.duration_ms, (CASE WHEN @with_result::boolean THEN s.result END)::jsonb AS result,
       s.error_type, s.error_message, s.error_stack, s.memory_peak_mb, s.cpu_time_ms, s.created_at, s.available_at, s.cancel_requested_at, s.backfill_id, s.cancelled_by,
       s.duration_us, s.attempt_started_at,
       coalesce((SELECT j.name FROM scheduled_jobs j WHERE j.tenant_id = @tenant_id AND j.id = s.job_id), '')::text AS job_name,
       coalesce((SELECT r.retry_of FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.execution_id = s.id), '00000000-0000-0000-0000-000000000000')::uuid AS retry_of,
       coalesce((SELECT r.execution_id FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.retry_of = s.id ORDER BY r.created_at DESC LIMIT 1), '00000000-0000-0000-0000-000000000000')::uuid AS retried_as,
       s.number, s.fits::boolean AS fits
FROM (
    SELECT e.*, row_number() OVER listed AS number, lead(true) OVER listed IS NULL AS last,
           ((sqlc.narg(statuses)::text[] IS NULL OR e.status = ANY (sqlc.narg(statuses)::text[]))
            AND (sqlc.narg(triggers)::text[] IS NULL OR e.trigger_type = ANY (sqlc.narg(triggers)::text[]))
            AND (sqlc.narg(job_types)::text[] IS NULL OR e.job_type = ANY (sqlc.narg(job_types)::text[]))
            AND (sqlc.narg(error_types)::text[] IS NULL OR e.error_type = ANY (sqlc.narg(error_types)::text[]))
            AND (sqlc.narg(triggered_by)::text IS NULL OR e.triggered_by = sqlc.narg(triggered_by)::text)
            AND (sqlc.narg(created_from)::timestamptz IS NULL OR e.created_at >= sqlc.narg(created_from)::timestamptz)
            AND (sqlc.narg(created_to)::timestamptz IS NULL OR e.created_at < sqlc.narg(created_to)::timestamptz)) AS fits
    FROM (
        SELECT * FROM executions
        WHERE tenant_id = @tenant_id AND job_id = @job_id::uuid
          AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
          AND (scheduled_at, id) < (@place_at::timestamptz, @place_id::uuid)
        ORDER BY scheduled_at DESC, id DESC LIMIT @scan_rows
    ) e
    WINDOW listed AS (ORDER BY e.scheduled_at DESC, e.id DESC)
) s
WHERE s.fits OR s.last
ORDER BY s.scheduled_at DESC, s.id DESC
LIMIT @page_size;

-- name: ListOldestExecutionsByJob :many
-- The same the other way round.
SELECT s.id, s.scheduled_at, s.tenant_id, s.job_id, s.job_version, s.trigger_type, s.triggered_by, s.job_type, s.priority, s.parameters,
       s.status, s.reason, s.missed_count, s.missed_until, s.attempt, s.max_attempts, s.progress, s.attempts, s.worker_id, s.started_at,
       s.completed_at, s.duration_ms, (CASE WHEN @with_result::boolean THEN s.result END)::jsonb AS result,
       s.error_type, s.error_message, s.error_stack, s.memory_peak_mb, s.cpu_time_ms, s.created_at, s.available_at, s.cancel_requested_at, s.backfill_id, s.cancelled_by,
       s.duration_us, s.attempt_started_at,
       coalesce((SELECT j.name FROM scheduled_jobs j WHERE j.tenant_id = @tenant_id AND j.id = s.job_id), '')::text AS job_name,
       coalesce((SELECT r.retry_of FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.execution_id = s.id), '00000000-0000-0000-0000-000000000000')::uuid AS retry_of,
       coalesce((SELECT r.execution_id FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.retry_of = s.id ORDER BY r.created_at DESC LIMIT 1), '00000000-0000-0000-0000-000000000000')::uuid AS retried_as,
       s.number, s.fits::boolean AS fits
FROM (
    SELECT e.*, row_number() OVER listed AS number, lead(true) OVER listed IS NULL AS last,
           ((sqlc.narg(statuses)::text[] IS NULL OR e.status = ANY (sqlc.narg(statuses)::text[]))
            AND (sqlc.narg(triggers)::text[] IS NULL OR e.trigger_type = ANY (sqlc.narg(triggers)::text[]))
            AND (sqlc.narg(job_types)::text[] IS NULL OR e.job_type = ANY (sqlc.narg(job_types)::text[]))
            AND (sqlc.narg(error_types)::text[] IS NULL OR e.error_type = ANY (sqlc.narg(error_types)::text[]))
            AND (sqlc.narg(triggered_by)::text IS NULL OR e.triggered_by = sqlc.narg(triggered_by)::text)
            AND (sqlc.narg(created_from)::timestamptz IS NULL OR e.created_at >= sqlc.narg(created_from)::timestamptz)
            AND (sqlc.narg(created_to)::timestamptz IS NULL OR e.created_at < sqlc.narg(created_to)::timestamptz)) AS fits
    FROM (
        SELECT * FROM executions
        WHERE tenant_id = @tenant_id AND job_id = @job_id::uuid
          AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
          AND (scheduled_at, id) > (@place_at::timestamptz, @place_id::uuid)
        ORDER BY scheduled_at, id LIMIT @scan_rows
    ) e
    WINDOW listed AS (ORDER BY e.scheduled_at, e.id)
) s
WHERE s.fits OR s.last
ORDER BY s.scheduled_at, s.id
LIMIT @page_size;

-- name: ListUnsuccessfulExecutionsByJob :many
-- The same without what completed: walks job_executions_job_unsuccessful.
SELECT s.id, s.scheduled_at, s.tenant_id, s.job_id, s.job_version, s.trigger_type, s.triggered_by, s.job_type, s.priority, s.parameters,
       s.status, s.reason, s.missed_count, s.missed_until, s.attempt, s.max_attempts, s.progress, s.attempts, s.worker_id, s.started_at,
       s.completed_at, s.duration_ms, (CASE WHEN @with_result::boolean THEN s.result END)::jsonb AS result,
       s.error_type, s.error_message, s.error_stack, s.memory_peak_mb, s.cpu_time_ms, s.created_at, s.available_at, s.cancel_requested_at, s.backfill_id, s.cancelled_by,
       s.duration_us, s.attempt_started_at,
       coalesce((SELECT j.name FROM scheduled_jobs j WHERE j.tenant_id = @tenant_id AND j.id = s.job_id), '')::text AS job_name,
       coalesce((SELECT r.retry_of FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.execution_id = s.id), '00000000-0000-0000-0000-000000000000')::uuid AS retry_of,
       coalesce((SELECT r.execution_id FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.retry_of = s.id ORDER BY r.created_at DESC LIMIT 1), '00000000-0000-0000-0000-000000000000')::uuid AS retried_as,
       s.number, s.fits::boolean AS fits
FROM (
    SELECT e.*, row_number() OVER listed AS number, lead(true) OVER listed IS NULL AS last,
           ((sqlc.narg(statuses)::text[] IS NULL OR e.status = ANY (sqlc.narg(statuses)::text[]))
            AND (sqlc.narg(triggers)::text[] IS NULL OR e.trigger_type = ANY (sqlc.narg(triggers)::text[]))
            AND (sqlc.narg(job_types)::text[] IS NULL OR e.job_type = ANY (sqlc.narg(job_types)::text[]))
            AND (sqlc.narg(error_types)::text[] IS NULL OR e.error_type = ANY (sqlc.narg(error_types)::text[]))
            AND (sqlc.narg(triggered_by)::text IS NULL OR e.triggered_by = sqlc.narg(triggered_by)::text)
            AND (sqlc.narg(created_from)::timestamptz IS NULL OR e.created_at >= sqlc.narg(created_from)::timestamptz)
            AND (sqlc.narg(created_to)::timestamptz IS NULL OR e.created_at < sqlc.narg(created_to)::timestamptz)) AS fits
    FROM (
        SELECT * FROM executions
        WHERE tenant_id = @tenant_id AND job_id = @job_id::uuid AND status <> 'completed'
          AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
          AND (scheduled_at, id) < (@place_at::timestamptz, @place_id::uuid)
        ORDER BY scheduled_at DESC, id DESC LIMIT @scan_rows
    ) e
    WINDOW listed AS (ORDER BY e.scheduled_at DESC, e.id DESC)
) s
WHERE s.fits OR s.last
ORDER BY s.scheduled_at DESC, s.id DESC
LIMIT @page_size;

-- name: ListPartitionStarts :many
-- Cross-tenant: the lists of executions. The first moments of the attached months, in order. The catalogue says which
-- they are, because a table's name may lie. Locks none of them.
SELECT (substring(pg_get_expr(c.relpartbound, c.oid) FROM $$FROM \('([^']+)'\)$$))::timestamptz AS starts
FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'job_executions'::regclass AND c.relpartbound IS NOT NULL
ORDER BY 1;
