-- name: ListJobFailures :many
-- Cross-tenant: the pass that derives events, of the jobs that it has outcomes of.
SELECT job_id, since, failures, execution_id FROM job_failures WHERE job_id = ANY (@job_ids::uuid[]);

-- name: UpsertJobFailures :exec
-- Cross-tenant: the pass that derives events.
INSERT INTO job_failures (job_id, tenant_id, since, failures, execution_id)
SELECT unnest(@job_ids::uuid[]), unnest(@owners::uuid[]), unnest(@sinces::timestamptz[]), unnest(@failures::bigint[]), unnest(@execution_ids::uuid[])
ON CONFLICT (job_id) DO UPDATE SET since = EXCLUDED.since, failures = EXCLUDED.failures, execution_id = EXCLUDED.execution_id;

-- name: DeleteJobFailures :exec
-- Cross-tenant: the pass that derives events: jobs that recovered.
DELETE FROM job_failures WHERE job_id = ANY (@job_ids::uuid[]);

-- name: DeleteStaleJobFailures :execrows
-- Cross-tenant: retention. A bounded piece of those that nobody is told of any more: their tenant has no
-- notification, or the job is deleted.
DELETE FROM job_failures f USING (
    SELECT o.job_id FROM job_failures o
    WHERE NOT EXISTS (SELECT 1 FROM notifications n WHERE n.tenant_id = o.tenant_id AND n.enabled)
       OR NOT EXISTS (SELECT 1 FROM job_definitions j WHERE j.id = o.job_id AND j.deleted_at IS NULL)
    ORDER BY o.job_id OFFSET @skipped LIMIT @batch_size
) old WHERE f.job_id = old.job_id;

-- name: PurgeJobFailures :execrows
DELETE FROM job_failures WHERE tenant_id = @tenant_id;
