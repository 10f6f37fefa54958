-- name: InsertJobCredentials :exec
INSERT INTO job_credentials (job_id, version, tenant_id, key_id, sealed)
VALUES (@job_id, @version, @tenant_id, @key_id, @sealed);

-- name: GetJobCredentials :one
SELECT sealed FROM job_credentials WHERE tenant_id = @tenant_id AND job_id = @job_id AND version = @version;

-- name: LockJobCredentialsToRewrap :many
-- Cross-tenant: the rotation, a bounded piece each time; another rotation at
-- work takes other rows.
SELECT job_id, version, tenant_id, sealed FROM job_credentials
WHERE key_id <> @key_id AND (job_id, version) > (@after_job::uuid, @after_version::int)
ORDER BY job_id, version LIMIT @batch_size
FOR NO KEY UPDATE SKIP LOCKED;

-- name: RewrapJobCredentials :exec
-- Cross-tenant: the rotation, for the rows that it holds locked.
UPDATE job_credentials c SET key_id = @key_id, sealed = u.sealed
FROM (SELECT unnest(@job_ids::uuid[]) AS job_id, unnest(@versions::int[]) AS version, unnest(@sealed::bytea[]) AS sealed) u
WHERE c.job_id = u.job_id AND c.version = u.version;
