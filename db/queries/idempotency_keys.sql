-- name: InsertIdempotencyKey :execrows
-- A concurrent request with the same key waits here for the first one's end;
-- an expired key is taken over.
INSERT INTO idempotency_keys (tenant_id, key, route, body_sha256, status, response, expires_at)
VALUES (@tenant_id, @key, @route, @body_sha256, 0, '{}', now() + interval '24 hours')
ON CONFLICT (tenant_id, key) DO UPDATE SET
    route = EXCLUDED.route, body_sha256 = EXCLUDED.body_sha256, status = 0, response = '{}',
    created_at = now(), expires_at = EXCLUDED.expires_at
WHERE idempotency_keys.expires_at < now();

-- name: GetIdempotencyKey :one
SELECT route, body_sha256, response FROM idempotency_keys WHERE tenant_id = @tenant_id AND key = @key;

-- name: SetIdempotencyResponse :exec
UPDATE idempotency_keys SET response = @response WHERE tenant_id = @tenant_id AND key = @key;

-- name: DeleteExpiredIdempotencyKeys :execrows
-- Cross-tenant: retention; a bounded piece each time. Skips what is locked.
DELETE FROM idempotency_keys k USING (
    SELECT i.tenant_id, i.key FROM idempotency_keys i WHERE i.expires_at < now() LIMIT 1000 FOR UPDATE SKIP LOCKED
) old WHERE k.tenant_id = old.tenant_id AND k.key = old.key;
