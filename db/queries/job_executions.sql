-- name: InsertSkippedExecutions :exec
-- Cross-tenant: the promoter. A scheduled time that does not run leaves a row
-- too, skipped or missed; a missed one may stand for a range of them.
INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, priority,
                            status, reason, missed_count, missed_until, completed_at, created_at)
SELECT u.id, u.scheduled_at, u.tenant_id, u.job_id, u.job_version, 'scheduled', u.job_type, u.priority,
       u.status, u.reason, u.missed_count, u.missed_until, n.at, n.at
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@job_ids::uuid[]) AS job_id,
             unnest(@job_versions::int[]) AS job_version, unnest(@scheduled_at::timestamptz[]) AS scheduled_at,
             unnest(@job_types::text[]) AS job_type, unnest(@priorities::smallint[]) AS priority, unnest(@reasons::text[]) AS reason, unnest(@statuses::text[]) AS status,
             unnest(@missed_counts::bigint[]) AS missed_count, unnest(@missed_until::timestamptz[]) AS missed_until) u,
     (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at) n
ON CONFLICT DO NOTHING;

-- name: MakePartition :one
-- Cross-tenant: maintenance of partitions. Returns when the new partition ends. Returns
-- the given time if it made none, because partitions hold all of the day, or one is being
-- detached. The function is all that a process may do to the table's shape.
SELECT coalesce(make_job_executions_partition(@at::timestamptz, @span::text), @at::timestamptz)::timestamptz AS ends;

-- name: ListDaysWithoutPartition :many
-- Takes beginnings of days. Returns each day with a moment that no partition holds,
-- and the table that has the day in its name, if somebody detached one by hand. A table
-- that retention detached is about to be dropped and counts as gone.
SELECT coalesce(w.day)::timestamptz AS day, coalesce(w.detached, '')::text AS detached FROM job_executions_without(@days::timestamptz[]) w;

-- name: ListFailingJobs :many
-- Cross-tenant: the automatic stop. Jobs that failed lately, as often in a row
-- as they allow since somebody last set their status; a backfill of old
-- times says nothing of the schedule. Walks job_executions_failed, then a
-- few newest rows of each such job.
SELECT j.id, j.tenant_id, j.disable_after_failures
FROM (SELECT DISTINCT f.job_id FROM job_executions f
      WHERE f.status = 'failed' AND f.trigger_type <> 'backfill' AND f.completed_at > coalesce(sqlc.narg(now)::timestamptz, now()) - interval '60 seconds') failed
JOIN job_definitions j ON j.id = failed.job_id AND j.status = 'active' AND j.disable_after_failures IS NOT NULL
WHERE (SELECT count(*) FILTER (WHERE last.status = 'failed') FROM (
           SELECT h.status FROM job_executions h
           WHERE h.job_id = j.id AND h.trigger_type <> 'backfill' AND h.status IN ('completed', 'failed') AND h.completed_at > j.status_at
           ORDER BY h.scheduled_at DESC, h.id DESC LIMIT j.disable_after_failures) last) >= j.disable_after_failures;

-- name: CountOutcomesOfJobs :many
-- Cross-tenant: the auditor. Counts, for some jobs and a window of each, the scheduled
-- times that have a row of their own, finished and active.
SELECT w.job_id::uuid AS job_id,
       ((SELECT count(*) FROM job_executions h
         WHERE h.job_id = w.job_id AND h.trigger_type = 'scheduled' AND h.status <> 'missed'
           AND h.scheduled_at > w.from_at AND h.scheduled_at <= w.to_at)
      + (SELECT count(*) FROM active_executions a
         WHERE a.job_id = w.job_id AND a.trigger_type = 'scheduled' AND a.scheduled_at > w.from_at AND a.scheduled_at <= w.to_at))::bigint AS rows
FROM (SELECT unnest(@ids::uuid[]) AS job_id, unnest(@froms::timestamptz[]) AS from_at, unnest(@tos::timestamptz[]) AS to_at) w;

-- name: ListMissedRangesOfJobs :many
-- Cross-tenant: the auditor. Missed rows that stand for times of the window of a job;
-- such a range may have begun up to a year before it.
SELECT h.job_id, h.scheduled_at, coalesce(h.missed_until, h.scheduled_at)::timestamptz AS missed_until
FROM (SELECT unnest(@ids::uuid[]) AS job_id, unnest(@froms::timestamptz[]) AS from_at, unnest(@tos::timestamptz[]) AS to_at) w
JOIN job_executions h ON h.job_id = w.job_id AND h.status = 'missed' AND h.scheduled_at <= w.to_at
  AND h.scheduled_at > w.from_at - interval '1 year' AND h.missed_until > w.from_at;

-- name: DetachPartition :one
-- Cross-tenant: retention. The function refuses young ones.
SELECT detach_job_executions_partition(@before::timestamptz)::text AS part;

-- name: DropPartition :one
-- Cross-tenant: retention. Drops what was detached.
SELECT drop_job_executions_partition()::text AS part;

-- name: SummarizeOutcomes :many
-- Outcomes of a tenant's executions of a range, in groups and buckets of duration;
-- the roll-ups hold the same (ListOutcomeCells), and this is for what
-- they do not hold. Bucket -1 has no duration, bucket 0 took less than 1 ms, and
-- bucket b begins at exp((b - 1) / 20) milliseconds: each is 5 % wide and below
-- 20 ms it is one value. period numbers the pieces of time that starts begins, from 1.
-- Reads every row of the tenant, or of the job, in the range. All its parameters
-- are optional conditions, so it is planned anew for each call.
SELECT (CASE WHEN @by_job::boolean THEN h.job_id ELSE '00000000-0000-0000-0000-000000000000' END)::uuid AS job_id, (CASE WHEN @by_type::boolean THEN h.job_type ELSE '' END)::text AS job_type,
       (CASE WHEN @by_trigger::boolean THEN h.trigger_type ELSE '' END)::text AS trigger_type, h.status,
       (CASE WHEN cardinality(@starts::timestamptz[]) > 0 THEN width_bucket(h.scheduled_at, @starts::timestamptz[]) ELSE 0 END)::int AS period,
       (CASE WHEN coalesce(h.duration_us, h.duration_ms) IS NULL OR h.status NOT IN ('completed', 'failed') THEN -1
             WHEN coalesce(h.duration_us / 1000, h.duration_ms) < 1 THEN 0
             ELSE floor(ln(coalesce(h.duration_us / 1000, h.duration_ms)) * 20)::int + 1 END)::int AS bucket,
       count(*) AS rows, count(*) FILTER (WHERE h.attempt > 1) AS retried, (coalesce(sum(coalesce(h.duration_us, h.duration_ms * 1000)), 0) / 1000)::bigint AS duration_ms
FROM job_executions h
WHERE h.tenant_id = @tenant_id AND h.scheduled_at >= @from_at::timestamptz AND h.scheduled_at < @to_at::timestamptz
  AND (sqlc.narg(completed_after)::timestamptz IS NULL OR h.completed_at > sqlc.narg(completed_after)::timestamptz)
  AND (sqlc.narg(completed_until)::timestamptz IS NULL OR h.completed_at <= sqlc.narg(completed_until)::timestamptz)
  AND (sqlc.narg(job_id)::uuid IS NULL OR h.job_id = sqlc.narg(job_id)::uuid)
  AND (sqlc.narg(job_type)::text IS NULL OR h.job_type = sqlc.narg(job_type)::text)
  AND (sqlc.narg(trigger_type)::text IS NULL OR h.trigger_type = sqlc.narg(trigger_type)::text)
GROUP BY 1, 2, 3, 4, 5, 6;
