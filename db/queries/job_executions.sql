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
