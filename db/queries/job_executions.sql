-- name: InsertUnrunExecutions :exec
-- Cross-tenant: the promoter. A due instant that does not run leaves a row all
-- the same, skipped or missed; a missed one may stand for a range of them.
INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, priority,
                            status, reason, missed_count, missed_until, completed_at, created_at)
SELECT u.id, u.scheduled_at, u.tenant_id, u.job_id, u.job_version, 'scheduled', u.job_type, u.priority,
       u.status, u.reason, u.missed_count, u.missed_until, n.at, n.at
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@job_ids::uuid[]) AS job_id,
             unnest(@job_versions::int[]) AS job_version, unnest(@scheduled_at::timestamptz[]) AS scheduled_at,
             unnest(@job_types::text[]) AS job_type, unnest(@priorities::smallint[]) AS priority, unnest(@reasons::text[]) AS reason, unnest(@statuses::text[]) AS status,
             unnest(@missed_counts::bigint[]) AS missed_count, unnest(@missed_until::timestamptz[]) AS missed_until) u,
     (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at) n
ON CONFLICT (id, scheduled_at) DO NOTHING;

-- name: CreatePartition :one
-- Cross-tenant: partition upkeep. The function is all that a process may do to
-- the table's shape.
SELECT create_job_executions_partition(@at::timestamptz) AS created;

-- name: ListFailingJobs :many
-- Cross-tenant: the automatic stop. Jobs that failed lately, as often in a row
-- as they allow since somebody last set their status; a backfill of old
-- instants says nothing of the schedule. Walks job_executions_failed, then a
-- few newest rows of each such job.
SELECT j.id, j.tenant_id, j.disable_after_failures
FROM (SELECT DISTINCT f.job_id FROM job_executions f
      WHERE f.status = 'failed' AND f.trigger_type <> 'backfill' AND f.completed_at > coalesce(sqlc.narg(now)::timestamptz, now()) - interval '60 seconds') failed
JOIN scheduled_jobs j ON j.id = failed.job_id AND j.status = 'active' AND j.disable_after_failures IS NOT NULL
WHERE (SELECT count(*) FILTER (WHERE last.status = 'failed') FROM (
           SELECT h.status FROM job_executions h
           WHERE h.job_id = j.id AND h.trigger_type <> 'backfill' AND h.status IN ('completed', 'failed') AND h.completed_at > j.status_at
           ORDER BY h.scheduled_at DESC, h.id DESC LIMIT j.disable_after_failures) last) >= j.disable_after_failures;

-- name: CountOutcomesOfJob :one
-- Cross-tenant: the auditor. Scheduled due instants that have a row of their
-- own, over and active.
SELECT ((SELECT count(*) FROM job_executions h
         WHERE h.job_id = @job_id AND h.trigger_type = 'scheduled' AND h.status <> 'missed'
           AND h.scheduled_at > @from_at::timestamptz AND h.scheduled_at <= @to_at::timestamptz)
      + (SELECT count(*) FROM active_executions a
         WHERE a.job_id = @job_id AND a.trigger_type = 'scheduled' AND a.scheduled_at > @from_at::timestamptz AND a.scheduled_at <= @to_at::timestamptz))::bigint AS rows;

-- name: ListMissedRangesOfJob :many
-- Cross-tenant: the auditor. Missed rows that stand for instants of a window;
-- such a range may have begun long before it.
SELECT scheduled_at, coalesce(missed_until, scheduled_at)::timestamptz AS missed_until FROM job_executions
WHERE job_id = @job_id AND status = 'missed' AND scheduled_at <= @to_at::timestamptz
  AND scheduled_at > @since::timestamptz AND missed_until > @from_at::timestamptz;

-- name: DetachPartition :one
-- Cross-tenant: retention. The function refuses young ones.
SELECT detach_job_executions_partition(@before::timestamptz)::text AS part;

-- name: DropPartition :one
-- Cross-tenant: retention. Drops what was detached.
SELECT drop_job_executions_partition()::text AS part;

-- name: SummarizeExecutions :many
-- What a tenant's executions of a range came to, in groups. Durations go into
-- buckets 5 % wide and the percentiles are read off those, so that nothing has
-- to be sorted: at most as many cells as groups times some 250. Reads every row
-- of the tenant in the range, from the partitions of the range: no index holds
-- what is counted. Bucket 0 is what took less than 1 ms, bucket b begins at
-- exp((b - 1) / 20) milliseconds; below 20 ms it is one value.
WITH cells AS MATERIALIZED (
    SELECT CASE @group_by::text WHEN 'status' THEN h.status WHEN 'jobType' THEN h.job_type WHEN 'triggerType' THEN h.trigger_type
                                WHEN 'job' THEN h.job_id::text ELSE '' END AS key,
           CASE WHEN @unit::text <> '' THEN date_trunc(@unit::text, h.scheduled_at, @timezone::text) ELSE '1970-01-01 00:00:00+00'::timestamptz END AS at,
           CASE WHEN h.duration_ms IS NULL OR h.status NOT IN ('completed', 'failed') THEN -1
                WHEN h.duration_ms < 1 THEN 0
                ELSE floor(ln(h.duration_ms) * 20)::int + 1 END AS bucket,
           count(*) AS rows,
           count(*) FILTER (WHERE h.status = 'completed') AS completed,
           count(*) FILTER (WHERE h.status = 'failed') AS failed,
           count(*) FILTER (WHERE h.status = 'cancelled') AS cancelled,
           count(*) FILTER (WHERE h.status = 'skipped') AS skipped,
           count(*) FILTER (WHERE h.status = 'missed') AS missed,
           count(*) FILTER (WHERE h.attempt > 1) AS retried,
           sum(h.duration_ms) AS duration_ms
    FROM job_executions h
    WHERE h.tenant_id = @tenant_id AND h.scheduled_at >= @from_at::timestamptz AND h.scheduled_at < @to_at::timestamptz
      AND (sqlc.narg(job_id)::uuid IS NULL OR h.job_id = sqlc.narg(job_id)::uuid)
      AND (sqlc.narg(job_type)::text IS NULL OR h.job_type = sqlc.narg(job_type)::text)
      AND (sqlc.narg(trigger_type)::text IS NULL OR h.trigger_type = sqlc.narg(trigger_type)::text)
    GROUP BY 1, 2, 3
),
parts AS (
    SELECT false AS whole, c.* FROM cells c
    UNION ALL
    SELECT true, '', '1970-01-01 00:00:00+00', c.bucket, sum(c.rows)::bigint, sum(c.completed)::bigint, sum(c.failed)::bigint, sum(c.cancelled)::bigint,
           sum(c.skipped)::bigint, sum(c.missed)::bigint, sum(c.retried)::bigint, sum(c.duration_ms)
    FROM cells c GROUP BY c.bucket
),
ranked AS (
    SELECT p.*, CASE WHEN p.bucket >= 0 THEN sum(p.rows) FILTER (WHERE p.bucket >= 0) OVER (PARTITION BY p.whole, p.key, p.at ORDER BY p.bucket) END AS cumulated,
           sum(p.rows) FILTER (WHERE p.bucket >= 0) OVER (PARTITION BY p.whole, p.key, p.at) AS timed
    FROM parts p
)
SELECT r.whole::boolean AS whole, r.key::text AS key, r.at::timestamptz AS at, sum(r.rows)::bigint AS rows, sum(r.completed)::bigint AS completed, sum(r.failed)::bigint AS failed,
       sum(r.cancelled)::bigint AS cancelled, sum(r.skipped)::bigint AS skipped, sum(r.missed)::bigint AS missed, sum(r.retried)::bigint AS retried,
       coalesce(max(r.timed), 0)::bigint AS timed, coalesce(sum(r.duration_ms) FILTER (WHERE r.bucket >= 0), 0)::bigint AS duration_ms,
       coalesce(min(r.bucket) FILTER (WHERE r.cumulated >= 0.5 * r.timed), -1)::int AS middle_bucket,
       coalesce(min(r.bucket) FILTER (WHERE r.cumulated >= 0.95 * r.timed), -1)::int AS high_bucket,
       coalesce(min(r.bucket) FILTER (WHERE r.cumulated >= 0.99 * r.timed), -1)::int AS highest_bucket
FROM ranked r
GROUP BY r.whole, r.key, r.at
ORDER BY r.whole DESC, CASE WHEN @unit::text <> '' THEN r.at END, sum(r.rows) DESC, r.key
LIMIT @page_size;
