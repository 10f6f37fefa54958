-- name: InsertJobVersion :batchexec
INSERT INTO job_versions (job_id, version, tenant_id, spec, created_by, created_at, restored_from)
VALUES (@job_id, @version, @tenant_id, @spec, @created_by, @now::timestamptz, sqlc.narg(restored_from));

-- name: ListJobVersionsByKeys :many
-- Cross-tenant: the worker reads the definitions that it does not hold yet.
-- A version never changes, so it may keep them.
SELECT v.job_id, v.version, v.tenant_id, v.spec, c.sealed
FROM job_versions v
JOIN (SELECT unnest(@job_ids::uuid[]) AS job_id, unnest(@versions::int[]) AS version) k
  ON v.job_id = k.job_id AND v.version = k.version
LEFT JOIN job_credentials c ON c.job_id = v.job_id AND c.version = v.version;

-- name: GetJobVersions :many
-- Some versions of one job, in order; a number below 1 is none.
SELECT * FROM job_versions WHERE tenant_id = @tenant_id AND job_id = @job_id AND version = ANY (@versions::int[]) ORDER BY version;

-- name: ListJobVersions :many
-- Newest first, each with the definition that it replaced. Walks the key.
SELECT v.version, v.created_by, v.created_at, v.restored_from, v.spec, p.spec AS previous
FROM job_versions v LEFT JOIN job_versions p ON p.job_id = v.job_id AND p.version = v.version - 1
WHERE v.tenant_id = @tenant_id AND v.job_id = @job_id AND v.version < @before_version
ORDER BY v.version DESC LIMIT @page_size;

-- name: DeleteOldJobVersions :execrows
-- Cross-tenant: retention. Versions that a later one took the place of before
-- the oldest month that is kept: no execution of the history runs them any more,
-- and none that is active or a backfill does. A bounded piece each time.
DELETE FROM job_versions v USING (
    SELECT o.job_id, o.version FROM job_versions o
    WHERE (o.job_id, o.version) IN (
            SELECT n.job_id, p.version FROM job_versions n CROSS JOIN LATERAL (
                SELECT q.version FROM job_versions q WHERE q.job_id = n.job_id AND q.version < n.version ORDER BY q.version DESC LIMIT 1) p
            WHERE n.version > 1 AND n.created_at < @before::timestamptz)
      AND NOT EXISTS (SELECT 1 FROM active_executions a WHERE a.job_id = o.job_id AND a.job_version = o.version)
      AND NOT EXISTS (SELECT 1 FROM backfills b WHERE b.job_id = o.job_id AND b.job_version = o.version AND b.tenant_id = o.tenant_id AND b.status = 'running')
    LIMIT @batch_size
) old WHERE v.job_id = old.job_id AND v.version = old.version;
