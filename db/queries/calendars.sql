-- name: InsertCalendar :one
INSERT INTO calendars (id, tenant_id, name, description, timezone, days, created_at, updated_at)
VALUES (@id, @tenant_id, @name, @description, @timezone, @days, @now::timestamptz, @now::timestamptz)
RETURNING *;

-- name: CountCalendars :one
SELECT count(*) FROM calendars WHERE tenant_id = @tenant_id;

-- name: GetCalendar :one
SELECT * FROM calendars WHERE tenant_id = @tenant_id AND id = @id;

-- name: ListCalendars :many
-- Without the days, of which one calendar may have 1000.
SELECT id, tenant_id, name, description, timezone, version, created_at, updated_at, jsonb_array_length(days) AS day_count
FROM calendars
WHERE tenant_id = @tenant_id AND (created_at, id) < (@before_created_at::timestamptz, @before_id::uuid)
ORDER BY created_at DESC, id DESC LIMIT @page_size;

-- name: LockCalendar :one
-- Held while the jobs that use it are rescheduled.
SELECT * FROM calendars WHERE tenant_id = @tenant_id AND id = @id FOR NO KEY UPDATE;

-- name: UpdateCalendar :one
UPDATE calendars SET name = @name, description = @description, timezone = @timezone, days = @days,
       version = version + 1, updated_at = @now::timestamptz
WHERE tenant_id = @tenant_id AND id = @id RETURNING *;

-- name: DeleteCalendar :execrows
DELETE FROM calendars WHERE tenant_id = @tenant_id AND id = @id;

-- name: ListCalendarsByKeys :many
SELECT * FROM calendars WHERE tenant_id = @tenant_id AND id = ANY (@ids::uuid[]);

-- name: HoldCalendars :many
-- A tenant's calendars that a job is about to name. Shared locks, so that none
-- is changed or deleted between the look and the commit of the job.
SELECT * FROM calendars WHERE tenant_id = @tenant_id AND id = ANY (@ids::uuid[]) ORDER BY id FOR SHARE;

-- name: ListCalendarsOfJobs :many
-- Cross-tenant: the promoter and the auditor, for the jobs that they hold.
SELECT c.* FROM calendars c WHERE c.id = ANY (@ids::uuid[]);

-- name: ListJobsByCalendar :many
-- The jobs that a change of the calendar moves, locked as an edit of each
-- would be, in id order.
SELECT * FROM scheduled_jobs
WHERE tenant_id = @tenant_id AND deleted_at IS NULL AND calendars @> @reference::jsonb
ORDER BY id LIMIT 1001 FOR NO KEY UPDATE;

-- name: CountJobsByCalendar :one
SELECT count(*) FROM job_definitions
WHERE tenant_id = @tenant_id AND deleted_at IS NULL AND calendars @> @reference::jsonb;

-- name: RescheduleJobs :exec
-- For rows that the caller holds locked. The auditor leaves out what was due
-- before updated_at, because another calendar decided about it.
UPDATE scheduled_jobs j SET next_execution_at = nullif(u.next_at, '9999-01-01 00:00:00+00'), updated_at = @now::timestamptz
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@next_at::timestamptz[]) AS next_at) u
WHERE j.tenant_id = @tenant_id AND j.id = u.id;
