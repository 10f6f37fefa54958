-- name: InsertNotification :one
INSERT INTO notifications (id, tenant_id, name, kind, url, recipients, events, job_ids, tags, settings, enabled, created_by, created_at, updated_at, since)
VALUES (@id, @tenant_id, @name, @kind, @url, @recipients, @events, @job_ids, @tags, @settings, @enabled, @created_by, @now::timestamptz, @now::timestamptz, @now::timestamptz)
RETURNING *;

-- name: CountNotifications :one
SELECT count(*) FROM notifications WHERE tenant_id = @tenant_id;

-- name: GetNotification :one
SELECT * FROM notifications WHERE tenant_id = @tenant_id AND id = @id;

-- name: LockNotification :one
-- A transaction that adds or finishes a delivery locks it, so that due_at is right.
SELECT * FROM notifications WHERE tenant_id = @tenant_id AND id = @id FOR NO KEY UPDATE;

-- name: ListNotifications :many
SELECT * FROM notifications
WHERE tenant_id = @tenant_id AND (created_at, id) < (@before_created_at::timestamptz, @before_id::uuid)
ORDER BY created_at DESC, id DESC LIMIT @page_size;

-- name: UpdateNotification :one
-- One that is enabled again tells nothing of what happened meanwhile.
UPDATE notifications SET name = @name, kind = @kind, url = @url, recipients = @recipients, events = @events, job_ids = @job_ids, tags = @tags,
       settings = @settings, enabled = @enabled, version = version + 1, updated_at = @now::timestamptz,
       disabled_reason = CASE WHEN @enabled THEN '' ELSE disabled_reason END,
       failing_since = CASE WHEN @enabled AND NOT enabled THEN NULL ELSE failing_since END,
       since = CASE WHEN @enabled AND NOT enabled THEN @now::timestamptz ELSE since END
WHERE tenant_id = @tenant_id AND id = @id RETURNING *;

-- name: TouchNotification :one
-- Its secret is another.
UPDATE notifications SET version = version + 1, updated_at = @now::timestamptz WHERE tenant_id = @tenant_id AND id = @id RETURNING *;

-- name: WakeNotification :exec
UPDATE notifications SET due_at = least(due_at, @at::timestamptz) WHERE tenant_id = @tenant_id AND id = @id;

-- name: DeleteNotification :execrows
WITH waiting AS (
    DELETE FROM notification_deliveries d WHERE d.tenant_id = @tenant_id AND d.notification_id = @id AND d.status = 'pending'
)
DELETE FROM notifications n WHERE n.tenant_id = @tenant_id AND n.id = @id;

-- name: LockNotificationCursor :one
-- Cross-tenant: the pass that derives events. Held until the events of an interval are stored, so that
-- each is told once. since is never where nobody is to be told anything.
SELECT c.read_to, coalesce((SELECT min(n.since) FROM notifications n WHERE n.enabled), '9999-01-01 00:00:00+00')::timestamptz AS since FROM notification_cursor c FOR UPDATE OF c;

-- name: MoveNotificationCursor :exec
-- Cross-tenant: the pass that derives events, which holds the row locked.
UPDATE notification_cursor SET read_to = @read_to::timestamptz;

-- name: ListNotificationsOfTenants :many
-- Cross-tenant: the pass that derives events.
SELECT n.* FROM notifications n WHERE n.tenant_id = ANY (@tenant_ids::uuid[]) AND n.enabled ORDER BY n.tenant_id, n.created_at, n.id;

-- name: WakeNotifications :exec
-- Cross-tenant: the pass that derives events, after it stored their deliveries. In id order, so that no two
-- statements wait for one another.
WITH woken AS (
    SELECT u.id, u.at, u.dropped
    FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@ats::timestamptz[]) AS at, unnest(@dropped::bigint[]) AS dropped) u
    JOIN notifications n ON n.id = u.id ORDER BY u.id FOR NO KEY UPDATE OF n
)
UPDATE notifications n SET due_at = least(n.due_at, nullif(w.at, '9999-01-01 00:00:00+00')), dropped = n.dropped + w.dropped FROM woken w WHERE n.id = w.id;

-- name: ListNotableOutcomes :many
-- Cross-tenant: the pass that derives events. Executions that ended in an interval, of tenants with
-- notifications: all but those that completed, and of these the ones whose job is failing or
-- fails in the interval. Walks job_executions_completed.
WITH ended AS MATERIALIZED (
    SELECT h.id, h.scheduled_at, h.tenant_id, h.job_id, h.status, h.reason, h.error_type, left(h.error_message, 1000)::text AS error_message,
           h.attempt, h.missed_count, h.missed_until, h.completed_at, coalesce(h.duration_us, h.duration_ms * 1000) AS duration_us
    FROM job_executions h
    WHERE h.completed_at > @from_at::timestamptz AND h.completed_at <= @to_at::timestamptz AND h.status <> 'cancelled'
      AND h.tenant_id IN (SELECT n.tenant_id FROM notifications n WHERE n.enabled)
)
SELECT e.id, e.scheduled_at, e.tenant_id, e.job_id, e.status, e.reason, coalesce(e.error_type, '')::text AS error_type, coalesce(e.error_message, '')::text AS error_message,
       e.attempt, coalesce(e.missed_count, 0)::bigint AS missed_count, e.missed_until, e.completed_at, coalesce(e.duration_us, 0)::bigint AS duration_us,
       j.name AS job_name, j.tags
FROM ended e JOIN job_definitions j ON j.id = e.job_id
WHERE j.deleted_at IS NULL AND (
    e.status <> 'completed'
    OR e.job_id IN (SELECT f.job_id FROM job_failures f)
    OR e.job_id IN (SELECT f.job_id FROM ended f WHERE f.status = 'failed'))
ORDER BY e.completed_at, e.scheduled_at, e.id;

-- name: ListDisabledJobs :many
-- Cross-tenant: the pass that derives events. Jobs that were disabled by themselves in an interval; walks
-- scheduled_jobs_disabled.
SELECT j.id, j.tenant_id, j.name, j.tags, j.status_reason, j.status_at FROM job_definitions j
WHERE j.status = 'inactive' AND j.status_by = 'system' AND j.deleted_at IS NULL
  AND j.status_at > @from_at::timestamptz AND j.status_at <= @to_at::timestamptz
  AND j.tenant_id IN (SELECT n.tenant_id FROM notifications n WHERE n.enabled)
ORDER BY j.status_at, j.id;

-- name: ClaimNotifications :many
-- Cross-tenant: the pass that sends. Locks notifications that have something to send and send nothing
-- now, in turns of their tenants, each at most so many; those whose last attempt failed get a part only,
-- so that the others always have room. Skips what another process is claiming. A
-- notification without a delivery was emptied meanwhile: its due_at is to be computed again.
WITH due AS (
    SELECT n.id, n.due_at, n.failing_since IS NOT NULL AS failing,
           row_number() OVER (PARTITION BY n.tenant_id ORDER BY n.due_at, n.id)
           + (SELECT count(*) FROM notifications b WHERE b.tenant_id = n.tenant_id AND b.busy_until > @now::timestamptz) AS turn
    FROM notifications n JOIN tenants t ON t.id = n.tenant_id
    WHERE n.due_at <= @now::timestamptz AND n.enabled AND t.status = 'active' AND coalesce(n.busy_until <= @now::timestamptz, true)
),
ranked AS (
    SELECT d.id, row_number() OVER (PARTITION BY d.failing ORDER BY d.turn, d.due_at, d.id) AS place, d.failing, d.turn, d.due_at
    FROM due d WHERE d.turn <= @per_tenant::int
),
held AS (
    SELECT n.id FROM notifications n JOIN ranked r ON r.id = n.id
    WHERE (NOT r.failing OR r.place <= @most_failing::int) AND n.due_at <= @now::timestamptz AND coalesce(n.busy_until <= @now::timestamptz, true)
    ORDER BY r.turn, r.due_at, r.id LIMIT @most::int FOR NO KEY UPDATE OF n SKIP LOCKED
),
taken AS (
    UPDATE notifications n SET busy_until = @busy_until::timestamptz FROM held h WHERE n.id = h.id
    RETURNING n.id, n.tenant_id, n.name, n.kind, n.url, n.recipients, n.settings
),
first AS (
    SELECT d.id FROM taken t CROSS JOIN LATERAL (
        SELECT w.id FROM notification_deliveries w
        WHERE w.tenant_id = t.tenant_id AND w.notification_id = t.id AND w.status = 'pending' AND w.next_attempt_at <= @now::timestamptz
        ORDER BY w.next_attempt_at, w.id LIMIT 1) d
),
begun AS (
    UPDATE notification_deliveries d SET attempts = d.attempts + 1, attempted_at = @now::timestamptz
    FROM first f WHERE d.id = f.id AND d.status = 'pending' AND d.next_attempt_at <= @now::timestamptz
    RETURNING d.id, d.notification_id, d.events, d.event_count, d.attempts, d.created_at, d.give_up_at
)
SELECT t.id, t.tenant_id, t.name, t.kind, t.url, t.recipients, t.settings,
       b.id AS delivery_id, b.events, b.event_count, b.attempts, b.created_at, b.give_up_at
FROM taken t LEFT JOIN begun b ON b.notification_id = t.id;

-- name: SettleNotification :exec
-- After an attempt, by who holds the row locked: when the next delivery is due, not before a moment has passed.
UPDATE notifications n SET busy_until = NULL,
    due_at = (SELECT greatest(d.next_attempt_at, @not_before::timestamptz) FROM notification_deliveries d
              WHERE d.tenant_id = @tenant_id AND d.notification_id = @id AND d.status = 'pending' ORDER BY d.next_attempt_at LIMIT 1),
    failing_since = CASE WHEN @failed::boolean THEN coalesce(n.failing_since, @now::timestamptz) END
WHERE n.tenant_id = @tenant_id AND n.id = @id;

-- name: DisableNotification :exec
UPDATE notifications SET enabled = false, disabled_reason = @reason, version = version + 1, updated_at = @now::timestamptz
WHERE tenant_id = @tenant_id AND id = @id AND enabled;

-- name: PurgeNotifications :execrows
-- Their secrets go with them.
DELETE FROM notifications WHERE tenant_id = @tenant_id;
