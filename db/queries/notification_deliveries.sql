-- name: InsertNotificationDelivery :one
-- By a request: a test.
INSERT INTO notification_deliveries (id, notification_id, tenant_id, events, event_count, created_at, next_attempt_at, give_up_at)
VALUES (@id, @notification_id, @tenant_id, @events, 1, @now::timestamptz, @now::timestamptz, @give_up_at)
RETURNING *;

-- name: InsertNotificationDeliveries :exec
-- Cross-tenant: the pass that derives events. None of a tenant that is being deleted, because its rows may have been
-- purged a moment ago.
INSERT INTO notification_deliveries (id, notification_id, tenant_id, events, event_count, created_at, next_attempt_at, give_up_at)
SELECT u.id, u.notification_id, n.tenant_id, u.events, u.event_count, @now::timestamptz, u.at, u.give_up_at
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@notification_ids::uuid[]) AS notification_id, unnest(@events::jsonb[]) AS events,
             unnest(@event_counts::int[]) AS event_count, unnest(@ats::timestamptz[]) AS at, unnest(@give_up_ats::timestamptz[]) AS give_up_at) u
JOIN notifications n ON n.id = u.notification_id JOIN tenants t ON t.id = n.tenant_id
WHERE t.status NOT IN ('deleting', 'deleted');

-- name: CountWaitingDeliveries :many
-- Cross-tenant: the pass that derives events, of the tenants that it has some for; walks
-- notification_deliveries_waiting as far as it has to.
SELECT t.id::uuid AS tenant_id, (SELECT count(*) FROM (
    SELECT 1 FROM notification_deliveries d WHERE d.tenant_id = t.id AND d.status = 'pending' LIMIT @most::int) w)::bigint AS waiting
FROM unnest(@tenant_ids::uuid[]) AS t(id);

-- name: ListNotificationDeliveries :many
-- Newest first; walks notification_deliveries_list.
SELECT * FROM notification_deliveries
WHERE tenant_id = @tenant_id AND notification_id = @notification_id AND (created_at, id) < (@before_created_at::timestamptz, @before_id::uuid)
  AND (sqlc.narg(status)::text IS NULL OR status = sqlc.narg(status))
ORDER BY created_at DESC, id DESC LIMIT @page_size;

-- name: ResendNotificationDelivery :one
UPDATE notification_deliveries SET status = 'pending', attempts = 0, next_attempt_at = @now::timestamptz, give_up_at = @give_up_at,
       finished_at = NULL, response_status = NULL, response_excerpt = '', error = ''
WHERE tenant_id = @tenant_id AND notification_id = @notification_id AND id = @id RETURNING *;

-- name: FinishNotificationDelivery :execrows
-- By who sent it, unless it was sent again meanwhile.
UPDATE notification_deliveries SET status = @status, next_attempt_at = @next_attempt_at, finished_at = sqlc.narg(finished_at),
       response_status = sqlc.narg(response_status), response_excerpt = @response_excerpt, error = @error
WHERE tenant_id = @tenant_id AND id = @id AND attempts = @attempts AND status = 'pending';

-- name: MeasureNotifications :one
-- Cross-tenant: the metrics, and the pass that sends. How long the first of what is due has waited; below zero
-- where nothing is due. One step into notifications_due.
SELECT coalesce((SELECT extract(epoch FROM now() - n.due_at) FROM notifications n
                 WHERE n.due_at IS NOT NULL AND n.enabled ORDER BY n.due_at LIMIT 1), -1)::float8 AS oldest_seconds;

-- name: DeleteOldDeliveries :execrows
-- Cross-tenant: retention. A bounded piece of what is too old; walks notification_deliveries_age.
DELETE FROM notification_deliveries d USING (
    SELECT o.id FROM notification_deliveries o WHERE o.created_at < @before::timestamptz ORDER BY o.created_at OFFSET @skipped LIMIT @batch_size
) old WHERE d.id = old.id;

-- name: PurgeDeliveries :execrows
DELETE FROM notification_deliveries d USING (
    SELECT o.id FROM notification_deliveries o WHERE o.tenant_id = @tenant_id LIMIT 1000
) old WHERE d.tenant_id = @tenant_id AND d.id = old.id;

-- name: ListCollectingDeliveries :many
-- Cross-tenant: the pass that derives events. Messages that wait for more before they are sent first, of
-- notifications that hold events back; locked until the events are added.
SELECT d.id, d.notification_id, d.events, d.event_count FROM notifications n JOIN notification_deliveries d ON d.tenant_id = n.tenant_id AND d.notification_id = n.id
WHERE n.id = ANY (@ids::uuid[]) AND d.status = 'pending' AND d.attempts = 0 AND d.next_attempt_at > @now::timestamptz
ORDER BY d.id FOR NO KEY UPDATE OF d;

-- name: UpdateCollectingDeliveries :exec
-- Cross-tenant: the pass that derives events, for rows that it holds locked.
UPDATE notification_deliveries d SET events = u.events, event_count = u.event_count
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@events::jsonb[]) AS events, unnest(@event_counts::int[]) AS event_count) u
WHERE d.id = u.id;

-- name: ListLastDeliveries :many
-- Cross-tenant: the pass that derives events. When the newest message of each notification was tried last; one step
-- into notification_deliveries_list for each.
SELECT n.id, coalesce((SELECT coalesce(d.attempted_at, d.created_at) FROM notification_deliveries d
    WHERE d.tenant_id = n.tenant_id AND d.notification_id = n.id ORDER BY d.created_at DESC, d.id DESC LIMIT 1), '0001-01-01 00:00:00+00')::timestamptz AS at
FROM notifications n WHERE n.id = ANY (@ids::uuid[]);
