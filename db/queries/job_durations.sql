-- name: ListCompletedDurations :many
-- Cross-tenant: the pass that derives events. Durations of completed executions of an interval, of tenants that
-- want to be told of slow ones; where there is none it reads nothing. Walks job_executions_completed.
SELECT h.id, h.tenant_id, h.job_id, h.scheduled_at, h.completed_at, h.attempt, coalesce(h.duration_us, 0)::bigint AS duration_us, j.name AS job_name, j.tags
FROM job_executions h JOIN job_definitions j ON j.id = h.job_id AND j.deleted_at IS NULL
WHERE (SELECT EXISTS (SELECT 1 FROM notifications a WHERE a.enabled AND 'execution.slow' = ANY (a.events)))
  AND h.completed_at > @from_at::timestamptz AND h.completed_at <= @to_at::timestamptz AND h.status = 'completed' AND h.duration_us IS NOT NULL
  AND h.tenant_id IN (SELECT n.tenant_id FROM notifications n WHERE n.enabled AND 'execution.slow' = ANY (n.events))
ORDER BY h.completed_at, h.scheduled_at, h.id;

-- name: ListJobDurations :many
-- Cross-tenant: the pass that derives events, of the jobs that it has durations of.
SELECT job_id, tenant_id, usual_us, runs, slow FROM job_durations WHERE job_id = ANY (@job_ids::uuid[]);

-- name: UpsertJobDurations :exec
-- Cross-tenant: the pass that derives events.
INSERT INTO job_durations (job_id, tenant_id, usual_us, runs, slow)
SELECT unnest(@job_ids::uuid[]), unnest(@owners::uuid[]), unnest(@usuals_us::bigint[]), unnest(@runs::int[]), unnest(@slow::boolean[])
ON CONFLICT (job_id) DO UPDATE SET usual_us = EXCLUDED.usual_us, runs = EXCLUDED.runs, slow = EXCLUDED.slow;

-- name: DeleteStaleJobDurations :execrows
-- Cross-tenant: retention. A bounded piece of those that nobody asks for any more: their tenant has no such
-- notification, or the job is deleted.
DELETE FROM job_durations d USING (
    SELECT o.job_id FROM job_durations o
    WHERE NOT EXISTS (SELECT 1 FROM notifications n WHERE n.tenant_id = o.tenant_id AND n.enabled AND 'execution.slow' = ANY (n.events))
       OR NOT EXISTS (SELECT 1 FROM job_definitions j WHERE j.id = o.job_id AND j.deleted_at IS NULL)
    ORDER BY o.job_id OFFSET @skipped LIMIT @batch_size
) old WHERE d.job_id = old.job_id;

-- name: PurgeJobDurations :execrows
DELETE FROM job_durations WHERE tenant_id = @tenant_id;
