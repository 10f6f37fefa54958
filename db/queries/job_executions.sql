-- name: InsertMissedExecutions :exec
-- Cross-tenant: the promoter. A due instant that does not run any more leaves
-- a row all the same; one row stands for a range of them.
INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, priority,
                            status, reason, missed_count, missed_until, completed_at, created_at)
SELECT u.id, u.scheduled_at, u.tenant_id, u.job_id, u.job_version, 'scheduled', u.job_type, u.priority,
       'missed', u.reason, u.missed_count, u.missed_until, n.at, n.at
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@job_ids::uuid[]) AS job_id,
             unnest(@job_versions::int[]) AS job_version, unnest(@scheduled_at::timestamptz[]) AS scheduled_at,
             unnest(@job_types::text[]) AS job_type, unnest(@priorities::smallint[]) AS priority, unnest(@reasons::text[]) AS reason,
             unnest(@missed_counts::bigint[]) AS missed_count, unnest(@missed_until::timestamptz[]) AS missed_until) u,
     (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at) n
ON CONFLICT (id, scheduled_at) DO NOTHING;

-- name: CreatePartition :one
-- Cross-tenant: partition upkeep. The function is all that a process may do to
-- the table's shape.
SELECT create_job_executions_partition(@at::timestamptz) AS created;
