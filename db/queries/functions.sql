-- name: InsertFunction :one
-- No row where the name was taken meanwhile.
INSERT INTO functions (id, tenant_id, name, digest, size_bytes, created_by, created_at, updated_by, updated_at)
VALUES (@id, @tenant_id, @name, @digest, @size_bytes, @created_by, @now::timestamptz, @created_by, @now::timestamptz)
ON CONFLICT (tenant_id, name) DO NOTHING
RETURNING *;

-- name: UpdateFunction :one
UPDATE functions SET
    version = version + 1, digest = @digest, size_bytes = @size_bytes, updated_by = @updated_by, updated_at = @now::timestamptz
WHERE tenant_id = @tenant_id AND id = @id
RETURNING *;

-- name: InsertFunctionVersion :exec
INSERT INTO function_versions (function_id, version, tenant_id, digest, size_bytes, created_by, created_at)
VALUES (@function_id, @version, @tenant_id, @digest, @size_bytes, @created_by, @now::timestamptz);

-- name: InsertFunctionModule :exec
INSERT INTO function_modules (function_id, version, tenant_id, module) VALUES (@function_id, @version, @tenant_id, @module);

-- name: DeleteOldFunctionVersions :exec
-- Keeps the newest, and those that a job names.
DELETE FROM function_versions v
WHERE v.tenant_id = @tenant_id AND v.function_id = @function_id AND v.version <= @last::integer
    AND NOT EXISTS (
        SELECT FROM job_definitions j
        WHERE j.tenant_id = @tenant_id AND j.deleted_at IS NULL AND j.job_type = @job_type
            AND j.config @> (@reference::jsonb || jsonb_build_object('version', v.version))
    );

-- name: GetFunction :one
SELECT * FROM functions WHERE tenant_id = @tenant_id AND name = @name;

-- name: LockFunction :one
-- Uploads under one name, and a deletion, wait for one another.
SELECT * FROM functions WHERE tenant_id = @tenant_id AND name = @name FOR UPDATE;

-- name: ListFunctions :many
SELECT * FROM functions
WHERE tenant_id = @tenant_id AND (created_at, id) < (@before_created_at::timestamptz, @before_id::uuid)
ORDER BY created_at DESC, id DESC
LIMIT @page_size;

-- name: ListFunctionVersions :many
SELECT version, digest, size_bytes, created_by, created_at FROM function_versions
WHERE tenant_id = @tenant_id AND function_id = @function_id
ORDER BY version DESC;

-- name: CountFunctions :one
SELECT count(DISTINCT function_id) AS functions, coalesce(sum(size_bytes), 0)::bigint AS bytes
FROM function_versions WHERE tenant_id = @tenant_id;

-- name: CountJobsByFunction :one
SELECT count(*) FROM job_definitions
WHERE tenant_id = @tenant_id AND deleted_at IS NULL AND job_type = @job_type AND config @> @reference::jsonb;

-- name: DeleteFunction :execrows
DELETE FROM functions WHERE tenant_id = @tenant_id AND id = @id;

-- name: FindFunctionVersion :one
-- The version that a job names, or the newest for 0.
SELECT v.function_id, v.version, v.digest
FROM functions f JOIN function_versions v
    ON v.function_id = f.id AND v.version = CASE WHEN @version::integer = 0 THEN f.version ELSE @version::integer END
WHERE f.tenant_id = @tenant_id AND v.tenant_id = @tenant_id AND f.name = @name;

-- name: GetFunctionModule :one
-- The worker, where no runner has the module.
SELECT module FROM function_modules WHERE tenant_id = @tenant_id AND function_id = @function_id AND version = @version;
