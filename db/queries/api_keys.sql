-- name: InsertApiKey :one
INSERT INTO api_keys (id, tenant_id, name, prefix, hash, scopes, expires_at, created_by, created_at)
VALUES (@id, @tenant_id, @name, @prefix, @hash, @scopes, sqlc.narg(expires_at), @created_by, @now::timestamptz)
RETURNING *;

-- name: GetApiKey :one
SELECT * FROM api_keys WHERE tenant_id = @tenant_id AND id = @id;

-- name: ListApiKeys :many
SELECT * FROM api_keys
WHERE tenant_id = @tenant_id AND (created_at, id) < (@before_created_at::timestamptz, @before_id::uuid)
ORDER BY created_at DESC, id DESC LIMIT @page_size;

-- name: CountApiKeys :one
SELECT count(*) FROM api_keys WHERE tenant_id = @tenant_id;

-- name: RotateApiKey :one
UPDATE api_keys SET old_hash = hash, old_until = sqlc.narg(old_until)::timestamptz,
       hash = @hash, rotated_at = @now::timestamptz
WHERE tenant_id = @tenant_id AND id = @id RETURNING *;

-- name: DeleteApiKey :execrows
DELETE FROM api_keys WHERE tenant_id = @tenant_id AND id = @id;

-- name: TouchApiKey :exec
-- At most one write a minute for each key. If another request is writing the row,
-- this one does not wait: that one's time is as good.
UPDATE api_keys k SET last_used_at = @now::timestamptz
FROM (SELECT u.id FROM api_keys u WHERE u.tenant_id = @tenant_id AND u.id = @id
      AND (u.last_used_at IS NULL OR u.last_used_at < @stale_before::timestamptz) FOR NO KEY UPDATE SKIP LOCKED) used
WHERE k.tenant_id = @tenant_id AND k.id = used.id;
