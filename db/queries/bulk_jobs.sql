-- name: ListJobKeys :many
-- ListJobs for those who act on the jobs: which ones they are, and nothing of them.
SELECT s.id, s.created_at, s.number, coalesce(s.fits, false)::boolean AS fits FROM (
    SELECT j.id, j.created_at, row_number() OVER listed AS number, lead(true) OVER listed IS NULL AS last,
       ((sqlc.narg(statuses)::text[] IS NULL OR j.status = ANY (sqlc.narg(statuses)::text[]))
        AND (sqlc.narg(job_types)::text[] IS NULL OR j.job_type = ANY (sqlc.narg(job_types)::text[]))
        AND (sqlc.narg(all_tags)::text[] IS NULL OR j.tags @> sqlc.narg(all_tags)::text[])
        AND (sqlc.narg(any_tags)::text[] IS NULL OR j.tags && sqlc.narg(any_tags)::text[])
        AND (sqlc.narg(contained)::text IS NULL OR strpos(lower(j.name), lower(sqlc.narg(contained)::text)) > 0
                                                OR strpos(lower(j.description), lower(sqlc.narg(contained)::text)) > 0)
        AND (sqlc.narg(set_name)::text IS NULL OR j.set_name = sqlc.narg(set_name)::text)
        AND (sqlc.narg(created_by)::text IS NULL OR j.created_by = sqlc.narg(created_by)::text)
        AND (sqlc.narg(next_from)::timestamptz IS NULL OR (j.status = 'active' AND (SELECT n.next_execution_at FROM job_schedule n WHERE n.job_id = j.id) >= sqlc.narg(next_from)::timestamptz))
        AND (sqlc.narg(next_to)::timestamptz IS NULL OR (j.status = 'active' AND (SELECT n.next_execution_at FROM job_schedule n WHERE n.job_id = j.id) < sqlc.narg(next_to)::timestamptz))) AS fits
    FROM (
        SELECT i.* FROM job_definitions i
        WHERE i.tenant_id = @tenant_id AND i.deleted_at IS NULL
          AND (i.created_at, i.id) < (@before_created_at::timestamptz, @before_id::uuid)
          AND i.created_at >= @created_from::timestamptz AND i.created_at < @created_to::timestamptz
        ORDER BY i.created_at DESC, i.id DESC LIMIT @scan_rows
    ) j
    WINDOW listed AS (ORDER BY j.created_at DESC, j.id DESC)
) s
WHERE s.fits OR s.last
ORDER BY s.created_at DESC, s.id DESC LIMIT @page_size;

-- name: LockJobStates :many
-- LockJob for a piece of a bulk call, and as little of each job as it decides by. In
-- id order, as everybody locks several jobs.
SELECT id, status, misfire_policy, max_executions, execution_count, next_execution_at FROM scheduled_jobs
WHERE tenant_id = @tenant_id AND id = ANY (@ids::uuid[]) AND deleted_at IS NULL
ORDER BY id FOR NO KEY UPDATE;

-- name: ListJobSchedules :many
-- By what a job that is resumed gets its next scheduled time, for rows that the caller
-- holds locked.
SELECT id, anchor_at, cron_expression, timezone, interval_ms, run_at, start_date, end_date, jitter_seconds, dst_gap, dst_overlap, calendars,
       max_executions, timeout_seconds, priority, max_concurrent, overlap_policy, overlap_queue_limit, concurrency_key,
       misfire_policy, misfire_limit, misfire_grace_seconds
FROM scheduled_jobs WHERE tenant_id = @tenant_id AND id = ANY (@ids::uuid[]);

-- name: SetJobStatuses :exec
-- UpdateJobStatus for rows that the caller holds locked. Year 9999 is "never".
UPDATE scheduled_jobs j SET
    status = @status, status_reason = @status_reason, status_by = @status_by, status_at = @now::timestamptz,
    paused_until = NULL, resume_policy = nullif(u.resume_policy, ''),
    next_execution_at = nullif(u.next_at, '9999-01-01 00:00:00+00'), updated_at = @now::timestamptz
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@next_at::timestamptz[]) AS next_at, unnest(@resume_policies::text[]) AS resume_policy) u
WHERE j.tenant_id = @tenant_id AND j.id = u.id;
