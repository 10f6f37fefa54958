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
-- Cross-tenant: retention. A batch of the keys that expired first, of all
-- tenants; walks idempotency_keys_expiry and deletes by the place of the row, which its
-- lock keeps. Skips what is locked, and so many rows that cannot be deleted.
DELETE FROM idempotency_keys k USING (
    SELECT i.ctid FROM idempotency_keys i WHERE i.expires_at < coalesce(sqlc.narg(now)::timestamptz, now())
    ORDER BY i.expires_at OFFSET @skipped LIMIT @batch_size FOR UPDATE SKIP LOCKED
) old WHERE k.ctid = old.ctid;
