-- name: InsertNotificationSecret :exec
INSERT INTO notification_secrets (id, notification_id, tenant_id, purpose, key_id, sealed, created_at)
VALUES (@id, @notification_id, @tenant_id, @purpose, @key_id, @sealed, @now::timestamptz);

-- name: RetireNotificationSecrets :exec
-- The one in use stays good until a time; one that an earlier rotation replaced goes.
WITH gone AS (
    DELETE FROM notification_secrets g
    WHERE g.tenant_id = @tenant_id AND g.notification_id = @notification_id AND g.purpose = @purpose AND g.valid_until IS NOT NULL
)
UPDATE notification_secrets s SET valid_until = @until::timestamptz
WHERE s.tenant_id = @tenant_id AND s.notification_id = @notification_id AND s.purpose = @purpose AND s.valid_until IS NULL;

-- name: DeleteNotificationSecrets :exec
DELETE FROM notification_secrets WHERE tenant_id = @tenant_id AND notification_id = @notification_id AND purpose = @purpose;

-- name: ListReplacedNotificationSecrets :many
-- Until when the secrets are good that others have taken the place of, of a page of notifications.
SELECT s.notification_id, s.valid_until FROM notification_secrets s
WHERE s.tenant_id = @tenant_id AND s.notification_id = ANY (@ids::uuid[]) AND s.purpose = 'signing' AND s.valid_until > @now::timestamptz;

-- name: ListSealedNotificationSecrets :many
-- The process that sends, for one attempt; the newest first.
SELECT s.id, s.purpose, s.sealed FROM notification_secrets s
WHERE s.tenant_id = @tenant_id AND s.notification_id = @notification_id AND coalesce(s.valid_until > @now::timestamptz, true)
ORDER BY s.created_at DESC, s.id;

-- name: LockNotificationSecretsToRewrap :many
-- Cross-tenant: the rotation, a bounded piece each time; another rotation at the same time skips it.
SELECT id, notification_id, tenant_id, purpose, sealed FROM notification_secrets
WHERE key_id <> @key_id AND id > @after_id::uuid
ORDER BY id LIMIT @batch_size
FOR NO KEY UPDATE SKIP LOCKED;

-- name: RewrapNotificationSecrets :exec
-- Cross-tenant: the rotation, for the rows that it holds locked.
UPDATE notification_secrets s SET key_id = @key_id, sealed = u.sealed
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@sealed::bytea[]) AS sealed) u
WHERE s.id = u.id;
