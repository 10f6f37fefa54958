-- name: InsertJobVersion :batchexec
INSERT INTO job_versions (job_id, version, tenant_id, spec, created_by, created_at, restored_from, changed_fields)
VALUES (@job_id, @version, @tenant_id, @spec, @created_by, @now::timestamptz, sqlc.narg(restored_from), sqlc.narg(changed_fields)::text[]);

-- name: DeleteSurplusJobVersions :execrows
-- A few of the versions of one job behind those that are kept, the newest of them
-- first: an update moves one there, so more than one go each time where there were
-- more. The policies keep those that a run or a backfill needs.
DELETE FROM job_versions v USING (
    SELECT s.version FROM job_versions s WHERE s.tenant_id = @tenant_id AND s.job_id = @job_id AND s.version <= @up_to
    ORDER BY s.version DESC LIMIT 20
) surplus WHERE v.tenant_id = @tenant_id AND v.job_id = @job_id AND v.version = surplus.version;

-- name: ListDefinitions :many
-- Cross-tenant: workers and callbacks. The settings that runs need of some definitions: all of
-- one takes longer to write as text, and much longer to decode. A version never changes, so
-- a worker keeps what it has read.
SELECT v.job_id, v.version, coalesce(v.spec->>'name', '')::text AS name, coalesce(v.spec->>'jobType', '')::text AS job_type,
       coalesce(v.spec->'config', 'null')::jsonb AS config, coalesce(v.spec->'retryConfig', 'null')::jsonb AS retry,
       coalesce(v.spec->>'executionTimeout', '0')::text AS execution_timeout, c.sealed
FROM job_versions v
JOIN (SELECT unnest(@job_ids::uuid[]) AS job_id, unnest(@versions::int[]) AS version) k
  ON v.job_id = k.job_id AND v.version = k.version
LEFT JOIN job_credentials c ON c.job_id = v.job_id AND c.version = v.version;

-- name: GetJobVersions :many
-- Some versions of one job, in order; a number below 1 is none.
SELECT * FROM job_versions WHERE tenant_id = @tenant_id AND job_id = @job_id AND version = ANY (@versions::int[]) ORDER BY version;

-- name: ListJobVersions :many
-- Newest first, without their definitions. Walks the key.
SELECT v.version, v.created_by, v.created_at, v.restored_from, v.changed_fields FROM job_versions v
WHERE v.tenant_id = @tenant_id AND v.job_id = @job_id AND v.version < @before_version
ORDER BY v.version DESC LIMIT @page_size;

-- name: DeleteOldJobVersions :one
-- Cross-tenant: retention. Looks at a bounded piece of the versions that took
-- another's place before the oldest month that is kept, in the order of
-- job_versions_superseding, and removes those others; at the newest of a job also what
-- an earlier walk had to leave of it: no execution of the history
-- runs them any more, and none that is active or a backfill does. Says where the
-- next piece begins, and how many it looked at.
WITH page AS MATERIALIZED (
    SELECT n.job_id, n.version, n.created_at,
           NOT EXISTS (SELECT 1 FROM job_versions l WHERE l.job_id = n.job_id AND l.version = n.version + 1 AND l.created_at < @before) AS newest
    FROM job_versions n
    WHERE n.version > 1 AND n.created_at < @before::timestamptz
      AND (n.created_at, n.job_id, n.version) > (@after_at::timestamptz, @after_job::uuid, @after_version::int)
    ORDER BY n.created_at, n.job_id, n.version OFFSET @skipped LIMIT @batch_size
),
gone AS (
    DELETE FROM job_versions v USING page p
    WHERE v.job_id = p.job_id AND v.version BETWEEN CASE WHEN p.newest THEN 1 ELSE p.version - 1 END AND p.version - 1
      AND NOT EXISTS (SELECT 1 FROM active_executions a WHERE a.job_id = v.job_id AND a.job_version = v.version OFFSET 0)
      AND NOT EXISTS (SELECT 1 FROM backfills b WHERE b.job_id = v.job_id AND b.job_version = v.version AND b.tenant_id = v.tenant_id AND b.status = 'running')
    RETURNING 1
),
last AS (SELECT p.created_at, p.job_id, p.version FROM page p ORDER BY p.created_at DESC, p.job_id DESC, p.version DESC LIMIT 1)
SELECT (SELECT count(*) FROM page) AS looked, (SELECT count(*) FROM gone) AS removed,
       coalesce((SELECT l.created_at FROM last l), @after_at)::timestamptz AS last_at,
       coalesce((SELECT l.job_id FROM last l), @after_job)::uuid AS last_job,
       coalesce((SELECT l.version FROM last l), @after_version)::int AS last_version;
