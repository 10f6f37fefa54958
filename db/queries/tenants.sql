-- name: GetTenantStatus :one
SELECT status FROM tenants WHERE id = sqlc.arg(tenant_id);

-- name: GetTenant :one
SELECT * FROM tenants WHERE id = sqlc.arg(tenant_id);

-- name: InsertTenant :exec
-- Two requests of a new tenant race: the second finds the first's row.
INSERT INTO tenants (id, name) VALUES (sqlc.arg(tenant_id), @name) ON CONFLICT (id) DO NOTHING;

-- name: CreateTenant :execrows
-- One row, or none where the id is taken. UpdateTenant, in the same
-- transaction, makes it version 1.
INSERT INTO tenants (id, name, version) VALUES (sqlc.arg(tenant_id), @name, 0) ON CONFLICT (id) DO NOTHING;

-- name: LockTenant :one
-- Held until the end of a transaction that adds something of which a tenant
-- may have so many: of two at once, the second counts what the first added.
SELECT id FROM tenants WHERE id = sqlc.arg(tenant_id) FOR NO KEY UPDATE;

-- name: LockTenantBounds :one
-- LockTenant, with how many of some things the tenant may have.
SELECT max_calendars, max_secrets, max_api_keys FROM tenants WHERE id = sqlc.arg(tenant_id) FOR NO KEY UPDATE;

-- name: ListTenants :many
-- Cross-tenant: platform administrators.
SELECT * FROM tenants
WHERE (created_at, id) < (@before_created_at::timestamptz, @before_id::uuid)
  AND (sqlc.narg(status)::text IS NULL OR status = sqlc.narg(status))
ORDER BY created_at DESC, id DESC LIMIT @page_size;

-- name: UpdateTenant :one
-- The row is locked, so that two changes come one after the other.
UPDATE tenants SET name = @name, max_running = sqlc.narg(max_running), max_running_by_type = @max_running_by_type,
       max_jobs = sqlc.narg(max_jobs), max_executions_per_day = sqlc.narg(max_executions_per_day),
       requests_per_second = sqlc.narg(requests_per_second), min_interval_seconds = sqlc.narg(min_interval_seconds),
       max_payload_bytes = sqlc.narg(max_payload_bytes), max_calendars = sqlc.narg(max_calendars),
       max_waiting = sqlc.narg(max_waiting), max_waiting_per_job = sqlc.narg(max_waiting_per_job),
       max_secrets = sqlc.narg(max_secrets), max_api_keys = sqlc.narg(max_api_keys), job_types = sqlc.narg(job_types)::text[], allowed_ips = @allowed_ips::text[],
       allowed_origins = @allowed_origins::text[], allowed_hosts = @allowed_hosts::text[],
       version = version + 1, updated_at = now()
WHERE id = sqlc.arg(tenant_id) AND status IN ('active', 'suspended') RETURNING *;

-- name: SetTenantStatus :one
-- A tenant that is being deleted stays so, and asking again puts nothing off.
UPDATE tenants SET status = @status, status_reason = @status_reason,
       updated_at = CASE WHEN status = 'deleting' THEN updated_at ELSE now() END
WHERE id = sqlc.arg(tenant_id) AND status = ANY (@before::text[]) RETURNING *;

-- name: GetTenantUsage :one
SELECT coalesce((SELECT sum(j.jobs) FROM job_counts j WHERE j.tenant_id = sqlc.arg(tenant_id)), 0)::int AS jobs,
       coalesce((SELECT r.running FROM running_totals r WHERE r.tenant_id = sqlc.arg(tenant_id)), 0)::int AS running,
       coalesce((SELECT r.cancelling FROM running_counts r WHERE r.tenant_id = sqlc.arg(tenant_id)), 0)::int AS cancelling,
       coalesce((SELECT d.executions FROM execution_days d WHERE d.tenant_id = sqlc.arg(tenant_id)
                 AND d.day = (now() AT TIME ZONE 'UTC')::date), 0)::int AS executions_today,
       coalesce((SELECT w.waiting FROM waiting_counts w WHERE w.tenant_id = sqlc.arg(tenant_id) AND w.job_id = '00000000-0000-0000-0000-000000000000'),
                (SELECT count(*) FROM (SELECT 1 FROM active_executions e WHERE e.tenant_id = sqlc.arg(tenant_id) AND e.status IN ('pending', 'retrying') LIMIT 500) few))::bigint AS waiting,
       (SELECT count(*) FROM calendars c WHERE c.tenant_id = sqlc.arg(tenant_id))::int AS calendars,
       (SELECT count(*) FROM secrets s WHERE s.tenant_id = sqlc.arg(tenant_id))::int AS secrets,
       (SELECT count(*) FROM api_keys k WHERE k.tenant_id = sqlc.arg(tenant_id))::int AS api_keys;

-- name: ShareJobCount :exec
-- By a request that adds one job of a tenant with much room, before it asks GetJobRoom: no
-- request that locks the count adds anything until this one has ended.
SELECT pg_advisory_xact_lock_shared(hashtext('jobs of a tenant'), uuid_hash(@tenant_id::uuid));

-- name: GetJobRoom :batchone
-- How many jobs a tenant may have, where it has a bound of its own, and has. The trigger of
-- job_definitions counts.
SELECT t.max_jobs, c.jobs
FROM (SELECT coalesce(sum(jobs), 0)::bigint AS jobs FROM job_counts WHERE tenant_id = @tenant_id) c
LEFT JOIN tenants t ON t.id = @tenant_id;

-- name: LockJobCount :one
-- Held until the end of a transaction that adds jobs and counts them with CountJobs: it waits
-- for those that share the count, and of two at once, the second counts what the first
-- added. Processes of versions without ShareJobCount lock the tenant's row.
SELECT t.id FROM tenants t, LATERAL (SELECT pg_advisory_xact_lock(hashtext('jobs of a tenant'), uuid_hash(t.id))) l
WHERE t.id = sqlc.arg(tenant_id) FOR NO KEY UPDATE OF t;

-- name: CountJobs :one
-- For a tenant with a bound on its jobs, by a request that has locked the count.
SELECT coalesce(sum(jobs), 0)::bigint FROM job_counts WHERE tenant_id = @tenant_id;

-- name: GetExecutionBounds :batchone
-- How many executions a tenant may have in a day, and waiting; and how many of it
-- and of a job waited when they were counted last, where they were many.
SELECT t.max_executions_per_day, t.max_waiting, t.max_waiting_per_job,
       coalesce((SELECT w.waiting FROM waiting_counts w WHERE w.tenant_id = t.id AND w.job_id = '00000000-0000-0000-0000-000000000000'), 0)::bigint AS waiting,
       coalesce((SELECT w.waiting FROM waiting_counts w WHERE w.tenant_id = t.id AND w.job_id = @job_id), 0)::bigint AS waiting_of_job
FROM tenants t WHERE t.id = sqlc.arg(tenant_id);

-- name: CountExecutions :one
-- Adds to the number of a tenant's executions of the day (UTC) of a time and answers the new one;
-- the row stays locked. A transaction of the day before that comes late counts
-- for the new day: each execution counts once.
INSERT INTO execution_days AS d (tenant_id, day, executions)
SELECT @tenant_id::uuid, (u.at AT TIME ZONE 'UTC')::date, u.added FROM (SELECT @at::timestamptz AS at, @added::int AS added) u
ON CONFLICT (tenant_id) DO UPDATE SET
    executions = CASE WHEN d.day >= EXCLUDED.day THEN d.executions ELSE 0 END + EXCLUDED.executions, day = greatest(d.day, EXCLUDED.day)
RETURNING executions;

-- name: CountExecutionsByTenants :many
-- Cross-tenant: the promoter. CountExecutions for several tenants, locked in
-- their order, so that promoters do not wait for one another in a circle. Unless it waits, it
-- passes over tenants whose row another transaction has locked, and counts nothing for
-- them. A tenant's first row is inserted, and waits for one that is being inserted at the same
-- time: once in the life of a tenant.
WITH free AS MATERIALIZED (
    SELECT f.tenant_id FROM execution_days f WHERE f.tenant_id = ANY (@tenant_ids::uuid[]) FOR UPDATE SKIP LOCKED
)
INSERT INTO execution_days AS d (tenant_id, day, executions)
SELECT u.tenant_id, (n.at AT TIME ZONE 'UTC')::date, u.added
FROM (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@added::int[]) AS added) u, (SELECT @at::timestamptz AS at) n
WHERE @waits::boolean OR u.tenant_id = ANY (ARRAY(SELECT r.tenant_id FROM free r))
   OR (SELECT e.tenant_id FROM execution_days e WHERE e.tenant_id = u.tenant_id) IS NULL
ORDER BY u.tenant_id
ON CONFLICT (tenant_id) DO UPDATE SET
    executions = CASE WHEN d.day >= EXCLUDED.day THEN d.executions ELSE 0 END + EXCLUDED.executions, day = greatest(d.day, EXCLUDED.day)
RETURNING tenant_id, executions;

-- name: ReturnExecutionsByTenants :exec
-- Cross-tenant: the promoter. Takes back what CountExecutionsByTenants added in
-- the same transaction and what is not made: only what is made counts.
UPDATE execution_days d SET executions = d.executions - u.unused
FROM (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@unused::int[]) AS unused) u
WHERE d.tenant_id = u.tenant_id;

-- name: ListDailyBounds :many
-- Cross-tenant: promoters look every few seconds which tenants they count for.
SELECT id, max_executions_per_day::int AS bound FROM tenants WHERE max_executions_per_day IS NOT NULL;

-- name: ListAllowedHosts :many
-- Cross-tenant: each worker every few seconds, through the index tenants_allowed_hosts.
SELECT id, allowed_hosts FROM tenants WHERE allowed_hosts <> '{}';

-- name: SetTenantSuspended :exec
-- Has every claim from the commit on refuse what the tenant has, or not; waits
-- for those under way (trigger hold_starts). In the transaction that changes the tenant's status.
UPDATE running_counts SET suspended = @suspended WHERE tenant_id = @tenant_id;

-- name: ListTenantsToHold :many
-- Cross-tenant: the promoters. Tenants that are suspended or being deleted and
-- have an active job.
SELECT t.id FROM tenants t
WHERE t.status IN ('suspended', 'deleting')
  AND EXISTS (SELECT 1 FROM job_definitions a WHERE a.tenant_id = t.id AND a.status = 'active' AND a.deleted_at IS NULL)
ORDER BY random() LIMIT @batch_size;

-- name: HoldJobs :execrows
-- The promoters pause, in pieces, the active jobs of a tenant that is suspended
-- or being deleted. Jobs that another promoter holds are paused next time.
UPDATE scheduled_jobs j SET status = 'paused', status_reason = 'the tenant is suspended', status_by = 'platform',
       status_at = now(), paused_until = NULL, updated_at = now()
WHERE j.id IN (
    SELECT a.id FROM tenants t JOIN scheduled_jobs a ON a.tenant_id = t.id
    WHERE t.id = @tenant_id AND t.status IN ('suspended', 'deleting') AND a.status = 'active' AND a.deleted_at IS NULL
    LIMIT 2000 FOR NO KEY UPDATE OF a SKIP LOCKED);

-- name: ListTenantsToFree :many
-- Cross-tenant: the promoters. Tenants that are active again and have jobs that
-- HoldJobs paused; steps from tenant to tenant through scheduled_jobs_held.
WITH RECURSIVE held AS (
    (SELECT a.tenant_id FROM job_definitions a WHERE a.status = 'paused' AND a.status_by = 'platform' ORDER BY a.tenant_id LIMIT 1)
    UNION ALL
    SELECT (SELECT a.tenant_id FROM job_definitions a
            WHERE a.status = 'paused' AND a.status_by = 'platform' AND a.tenant_id > h.tenant_id ORDER BY a.tenant_id LIMIT 1)
    FROM held h WHERE h.tenant_id IS NOT NULL
)
SELECT t.id FROM held h JOIN tenants t ON t.id = h.tenant_id WHERE t.status = 'active' ORDER BY random() LIMIT @batch_size;

-- name: FreeJobs :execrows
-- The promoters resume, in pieces, what HoldJobs paused, once the tenant is
-- active again; what was held back meanwhile is treated as each job's misfire
-- policy says.
UPDATE scheduled_jobs j SET status = 'active', status_reason = '', status_by = 'platform', status_at = now(),
       resume_policy = CASE WHEN j.next_execution_at <= now() THEN j.misfire_policy END, updated_at = now()
WHERE j.id IN (
    SELECT a.id FROM scheduled_jobs a JOIN tenants t ON t.id = a.tenant_id
    WHERE t.id = @tenant_id AND a.status = 'paused' AND a.status_by = 'platform' AND t.status = 'active' AND a.deleted_at IS NULL
    LIMIT 2000 FOR NO KEY UPDATE OF a SKIP LOCKED);

-- name: ListDeletingTenants :many
-- Cross-tenant: the promoters, one of which purges them. Not within half a
-- minute: a request that a process admitted before it learned of the deletion
-- (two seconds at most) may take fifteen more, and must not leave behind what
-- nothing would remove. In any order, so that none that cannot be purged stands
-- before the others for ever.
SELECT t.id FROM tenants t
WHERE t.status = 'deleting' AND t.updated_at < now() - interval '30 seconds'
  AND NOT EXISTS (SELECT 1 FROM active_executions e WHERE e.tenant_id = t.id OFFSET 0)
ORDER BY random() LIMIT @batch_size;

-- name: PurgeHistory :execrows
DELETE FROM job_executions h USING (
    SELECT o.id, o.scheduled_at FROM job_executions o WHERE o.tenant_id = @tenant_id LIMIT 1000
) old WHERE h.tenant_id = @tenant_id AND h.id = old.id AND h.scheduled_at = old.scheduled_at;

-- name: PurgeJobs :execrows
-- Versions, credentials and backfills go with their job.
DELETE FROM scheduled_jobs j USING (
    SELECT o.id FROM scheduled_jobs o WHERE o.tenant_id = @tenant_id LIMIT 500
) old WHERE j.tenant_id = @tenant_id AND j.id = old.id;

-- name: PurgeIdempotencyKeys :execrows
DELETE FROM idempotency_keys k USING (
    SELECT o.key FROM idempotency_keys o WHERE o.tenant_id = @tenant_id LIMIT 1000
) old WHERE k.tenant_id = @tenant_id AND k.key = old.key;

-- name: PurgeApiKeys :execrows
DELETE FROM api_keys WHERE tenant_id = @tenant_id;

-- name: PurgeCalendars :execrows
DELETE FROM calendars WHERE tenant_id = @tenant_id;

-- name: PurgeSecrets :execrows
DELETE FROM secrets WHERE tenant_id = @tenant_id;

-- name: PurgeFunctions :execrows
-- With their versions and modules.
DELETE FROM functions f USING (
    SELECT o.id FROM functions o WHERE o.tenant_id = @tenant_id LIMIT 20
) old WHERE f.tenant_id = @tenant_id AND f.id = old.id;

-- name: PurgeRemoteFunctions :execrows
DELETE FROM remote_functions WHERE tenant_id = @tenant_id;

-- name: PurgeExecutionDays :execrows
DELETE FROM execution_days WHERE tenant_id = @tenant_id;

-- name: PurgeJobCounts :execrows
-- After PurgeJobs, which the counts follow.
DELETE FROM job_counts WHERE tenant_id = @tenant_id;

-- name: PurgeTenant :execrows
-- Only the id is left, so that no token brings the tenant back to life.
UPDATE tenants SET status = 'deleted', name = 'deleted', updated_at = now() WHERE id = sqlc.arg(tenant_id) AND status = 'deleting';

-- name: TenantExists :one
SELECT EXISTS (SELECT 1 FROM tenants WHERE id = @tenant_id);
