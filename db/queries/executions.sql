-- name: GetExecution :one
-- One view over active and finished executions.
-- The id holds the scheduled time in milliseconds: the range reads one partition. Thousands may be of that
-- millisecond: the primary key leads to the one, and the limit ends the search there.
-- Only a retry repeats another execution, so only for one is retry_of looked up, here and in the lists.
SELECT s.*,
       coalesce((SELECT j.name FROM job_definitions j WHERE j.tenant_id = @tenant_id AND j.id = s.job_id), '')::text AS job_name,
       coalesce(CASE WHEN s.trigger_type = 'retry' THEN (SELECT r.retry_of FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.execution_id = s.id) END,
                '00000000-0000-0000-0000-000000000000')::uuid AS retry_of,
       coalesce((SELECT r.execution_id FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.retry_of = s.id ORDER BY r.created_at DESC LIMIT 1), '00000000-0000-0000-0000-000000000000')::uuid AS retried_as,
       coalesce((SELECT p.message FROM execution_progress p WHERE p.tenant_id = @tenant_id AND p.execution_id = s.id), '')::text AS progress_message
FROM executions s
WHERE s.tenant_id = @tenant_id AND s.id = @id AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
LIMIT 1;

-- name: ListNewestExecutions :many
-- ListExecutions of the newest window, without filters. It has one plan for all calls
-- (see postgres.InNewest) and reads the rows of the page alone. The beginning of the window
-- stands in the place of 1970 (see postgres.PagedSince), so that the plan has, and
-- locks, the partitions from there on.
SELECT s.id, s.scheduled_at, s.tenant_id, s.job_id, s.job_version, s.trigger_type, s.triggered_by, s.job_type, s.priority, s.parameters,
       s.status, s.reason, s.missed_count, s.missed_until, s.attempt, s.max_attempts, s.progress, s.attempts, s.worker_id, s.started_at,
       s.completed_at, s.duration_ms, (CASE WHEN @with_result::boolean THEN s.result END)::jsonb AS result,
       s.error_type, s.error_message, s.error_stack, s.memory_peak_mb, s.cpu_time_ms, s.created_at, s.available_at, s.cancel_requested_at, s.backfill_id, s.cancelled_by,
       s.duration_us, s.attempt_started_at,
       coalesce((SELECT j.name FROM job_definitions j WHERE j.tenant_id = @tenant_id AND j.id = s.job_id), '')::text AS job_name,
       coalesce(CASE WHEN s.trigger_type = 'retry' THEN (SELECT r.retry_of FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.execution_id = s.id) END,
                '00000000-0000-0000-0000-000000000000')::uuid AS retry_of,
       coalesce((SELECT r.execution_id FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.retry_of = s.id ORDER BY r.created_at DESC LIMIT 1), '00000000-0000-0000-0000-000000000000')::uuid AS retried_as,
       0::bigint AS number, true AS fits
FROM (
    SELECT * FROM executions
    WHERE tenant_id = @tenant_id AND scheduled_at >= '1970-01-01 00:00:00+00'::timestamptz
      AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
      AND (scheduled_at, id) < (@place_at::timestamptz, @place_id::uuid)
    ORDER BY scheduled_at DESC, id DESC LIMIT @page_size
) s
ORDER BY s.scheduled_at DESC, s.id DESC;

-- name: ListExecutions :many
-- From the position of the last page, within one window of time: the bounds on
-- scheduled_at leave only its partitions, and lock no others. Reads scan_rows rows at
-- most, however few the filters leave: the inner query walks the index of the list,
-- and the outer ones ask the filters of each row, which no index can answer under
-- row-level security, because their operators are not leakproof. The last row that was
-- read comes back although it may not fit: the next page begins after it. Of an
-- exhausted window, number tells how many rows it took.
-- One statement walks six indexes: the plan is made for each call (see postgres.InList),
-- and the parameters job_id, oldest_first and unsuccessful leave it one condition and
-- one order, those of the index. Most executions completed. A list without them
-- walks job_executions_unsuccessful or job_executions_job_unsuccessful. A list of unfinished
-- ones reads active_executions alone: every row of job_executions has a completed_at, so
-- the planner leaves out that table.
SELECT s.id, s.scheduled_at, s.tenant_id, s.job_id, s.job_version, s.trigger_type, s.triggered_by, s.job_type, s.priority, s.parameters,
       s.status, s.reason, s.missed_count, s.missed_until, s.attempt, s.max_attempts, s.progress, s.attempts, s.worker_id, s.started_at,
       s.completed_at, s.duration_ms, (CASE WHEN @with_result::boolean THEN s.result END)::jsonb AS result,
       s.error_type, s.error_message, s.error_stack, s.memory_peak_mb, s.cpu_time_ms, s.created_at, s.available_at, s.cancel_requested_at, s.backfill_id, s.cancelled_by,
       s.duration_us, s.attempt_started_at,
       coalesce((SELECT j.name FROM job_definitions j WHERE j.tenant_id = @tenant_id AND j.id = s.job_id), '')::text AS job_name,
       coalesce(CASE WHEN s.trigger_type = 'retry' THEN (SELECT r.retry_of FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.execution_id = s.id) END,
                '00000000-0000-0000-0000-000000000000')::uuid AS retry_of,
       coalesce((SELECT r.execution_id FROM execution_retries r WHERE r.tenant_id = @tenant_id AND r.retry_of = s.id ORDER BY r.created_at DESC LIMIT 1), '00000000-0000-0000-0000-000000000000')::uuid AS retried_as,
       s.number, coalesce(s.fits, false)::boolean AS fits
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
          AND (sqlc.narg(job_id)::uuid IS NULL OR job_id = sqlc.narg(job_id)::uuid)
          AND (NOT @unsuccessful::boolean OR status <> 'completed')
          AND (NOT @unfinished::boolean OR completed_at IS NULL)
          AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
          AND CASE WHEN @oldest_first::boolean THEN (scheduled_at, id) > (@place_at::timestamptz, @place_id::uuid)
                   ELSE (scheduled_at, id) < (@place_at::timestamptz, @place_id::uuid) END
        ORDER BY CASE WHEN @oldest_first::boolean THEN scheduled_at END, CASE WHEN @oldest_first::boolean THEN id END,
                 CASE WHEN NOT @oldest_first::boolean THEN scheduled_at END DESC, CASE WHEN NOT @oldest_first::boolean THEN id END DESC
        LIMIT @scan_rows
    ) e
    WINDOW listed AS (ORDER BY CASE WHEN @oldest_first::boolean THEN e.scheduled_at END, CASE WHEN @oldest_first::boolean THEN e.id END,
                               CASE WHEN NOT @oldest_first::boolean THEN e.scheduled_at END DESC, CASE WHEN NOT @oldest_first::boolean THEN e.id END DESC)
) s
WHERE s.fits OR s.last
ORDER BY CASE WHEN @oldest_first::boolean THEN s.scheduled_at END, CASE WHEN @oldest_first::boolean THEN s.id END,
         CASE WHEN NOT @oldest_first::boolean THEN s.scheduled_at END DESC, CASE WHEN NOT @oldest_first::boolean THEN s.id END DESC
LIMIT @page_size;

-- name: ListRecentRuns :many
-- The last executions of each of some jobs. Of each it walks the indexes by job of the
-- months that are asked for, as far as the rows go.
SELECT u.job_id::uuid AS job_id, e.id, e.scheduled_at, e.status, e.duration_us
FROM unnest(@job_ids::uuid[]) AS u(job_id)
CROSS JOIN LATERAL (
    SELECT r.id, r.scheduled_at, r.status, r.duration_us FROM executions r
    WHERE r.tenant_id = @tenant_id AND r.job_id = u.job_id AND r.scheduled_at >= @from_at::timestamptz AND r.scheduled_at < @to_at::timestamptz
    ORDER BY r.scheduled_at DESC, r.id DESC LIMIT @most::int
) e;

-- name: OldestUnfinished :one
-- Before this time no execution of the tenant is unfinished.
SELECT coalesce((SELECT a.scheduled_at FROM active_executions a WHERE a.tenant_id = @tenant_id ORDER BY a.scheduled_at, a.id LIMIT 1), now())::timestamptz AS oldest;

-- name: ListPartitionStarts :many
-- Cross-tenant: the lists of executions. The first moments of the attached months, in order. The catalogue says which
-- they are, because a table's name may lie. Locks none of them.
SELECT (substring(pg_get_expr(c.relpartbound, c.oid) FROM $$FROM \('([^']+)'\)$$))::timestamptz AS starts
FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'job_executions'::regclass AND c.relpartbound IS NOT NULL
ORDER BY 1;

-- name: ListNeighbours :many
-- Executions of a tenant by scheduled time, the newest first, of one interval: some ran
-- while one of them waited, others were made before it.
SELECT id, job_id, job_type, created_at, started_at, completed_at
FROM executions
WHERE tenant_id = @tenant_id AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
ORDER BY scheduled_at DESC, id DESC LIMIT @most;

-- name: ListSiblings :many
-- The same of one job. Its runs may be long, so its interval is.
SELECT id, job_id, job_type, created_at, started_at, completed_at
FROM executions
WHERE tenant_id = @tenant_id AND job_id = @job_id AND scheduled_at >= @from_at::timestamptz AND scheduled_at < @to_at::timestamptz
ORDER BY scheduled_at DESC, id DESC LIMIT @most;

-- name: GetLimitsOfExecution :one
-- How many executions may run at once of a job that waits for its own, of a type, and of
-- the tenant; 0: any number.
SELECT now()::timestamptz AS at,
       coalesce((SELECT j.max_concurrent FROM job_definitions j WHERE j.tenant_id = t.id AND j.id = @job_id AND j.overlap_policy NOT IN ('skip', 'allow')), 0)::int AS of_job,
       coalesce((t.max_running_by_type ->> @job_type::text)::int, 0)::int AS of_type,
       coalesce(t.max_running, @max_running::int)::int AS of_tenant
FROM tenants t WHERE t.id = @tenant_id;
