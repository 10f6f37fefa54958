-- name: InsertSecret :one
-- No row where the name was taken meanwhile.
INSERT INTO secrets (id, tenant_id, name, description, key_id, sealed, created_by, created_at, updated_by, updated_at)
VALUES (@id, @tenant_id, @name, @description, @key_id, @sealed, @created_by, @now::timestamptz, @created_by, @now::timestamptz)
ON CONFLICT (tenant_id, name) DO NOTHING
RETURNING id, tenant_id, name, description, version, key_id, created_by, created_at, updated_by, updated_at;

-- name: UpdateSecret :one
UPDATE secrets SET
    description = @description, version = version + 1, key_id = @key_id, sealed = @sealed,
    updated_by = @updated_by, updated_at = @now::timestamptz
WHERE tenant_id = @tenant_id AND id = @id
RETURNING id, tenant_id, name, description, version, key_id, created_by, created_at, updated_by, updated_at;

-- name: GetSecret :one
SELECT id, tenant_id, name, description, version, key_id, created_by, created_at, updated_by, updated_at
FROM secrets WHERE tenant_id = @tenant_id AND name = @name;

-- name: LockSecret :one
-- A request that is about to name it in a job locks it, or waits here and finds it
-- gone or replaced.
SELECT id, tenant_id, name, description, version, key_id, created_by, created_at, updated_by, updated_at
FROM secrets WHERE tenant_id = @tenant_id AND name = @name
FOR UPDATE;

-- name: HoldSecrets :many
-- Until the transaction of the job that names them ends, none of them goes.
SELECT name FROM secrets WHERE tenant_id = @tenant_id AND name = ANY (@names::text[])
ORDER BY name FOR KEY SHARE;

-- name: ListSecretNames :many
SELECT name FROM secrets WHERE tenant_id = @tenant_id AND name = ANY (@names::text[]);

-- name: ListSecrets :many
SELECT id, tenant_id, name, description, version, key_id, created_by, created_at, updated_by, updated_at
FROM secrets
WHERE tenant_id = @tenant_id AND (created_at, id) < (@before_created_at::timestamptz, @before_id::uuid)
ORDER BY created_at DESC, id DESC
LIMIT @page_size;

-- name: CountSecrets :one
SELECT count(*) FROM secrets WHERE tenant_id = @tenant_id;

-- name: CountJobsBySecret :one
SELECT count(*) FROM job_definitions
WHERE tenant_id = @tenant_id AND deleted_at IS NULL AND secret_names <> '{}' AND secret_names @> ARRAY[@name::text];

-- name: DeleteSecret :execrows
DELETE FROM secrets WHERE tenant_id = @tenant_id AND id = @id;

-- name: ListSealedSecrets :many
-- The worker, for one attempt: what its configuration refers to.
SELECT id, name, sealed FROM secrets WHERE tenant_id = @tenant_id AND name = ANY (@names::text[]);

-- name: LockSecretsToRewrap :many
-- Cross-tenant: the rotation, a bounded piece each time. A value that is being
-- replaced gets the current key anyway: hence SKIP LOCKED.
SELECT id, tenant_id, name, sealed FROM secrets
WHERE key_id <> @key_id AND id > @after_id::uuid
ORDER BY id LIMIT @batch_size
FOR NO KEY UPDATE SKIP LOCKED;

-- name: RewrapSecrets :exec
-- Cross-tenant: the rotation, for the rows that it holds locked.
UPDATE secrets s SET key_id = @key_id, sealed = u.sealed
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@sealed::bytea[]) AS sealed) u
WHERE s.id = u.id;

-- name: CountSealedByKey :many
-- Cross-tenant: the rotation, which says what is left under which key.
SELECT key_id, count(*) AS sealed FROM (
    SELECT key_id FROM secrets UNION ALL SELECT key_id FROM job_credentials UNION ALL SELECT key_id FROM notification_secrets
) k GROUP BY key_id ORDER BY key_id;
