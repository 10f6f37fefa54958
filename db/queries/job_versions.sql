-- name: InsertJobVersion :exec
INSERT INTO job_versions (job_id, version, tenant_id, spec, created_by, created_at)
VALUES (@job_id, @version, @tenant_id, @spec, @created_by, @now::timestamptz);

-- name: ListJobVersionsByKeys :many
-- Cross-tenant: the worker reads the definitions that it does not hold yet.
-- A version never changes, so it may keep them.
SELECT v.job_id, v.version, v.tenant_id, v.spec
FROM job_versions v
JOIN (SELECT unnest(@job_ids::uuid[]) AS job_id, unnest(@versions::int[]) AS version) k
  ON v.job_id = k.job_id AND v.version = k.version;
