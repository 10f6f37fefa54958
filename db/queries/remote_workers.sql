-- name: InsertRemoteWorker :execrows
-- Starts the lease of a tenant's worker. None where the tenant has as many as it may.
INSERT INTO workers (id, tenant_id, host, pid, slots, job_types, name, functions, lease_seconds, expires_at)
SELECT @id, @tenant_id::uuid, '', 0, @slots, ARRAY[@job_type::text], @name::text, @functions::text[], @lease_seconds::int, now() + make_interval(secs => @lease_seconds::int)
WHERE (SELECT count(*) FROM workers w WHERE w.tenant_id = @tenant_id::uuid AND NOT w.dead AND w.expires_at > now()) < @most::int;

-- name: ListRemoteWorkers :many
-- A tenant's living workers, the newest first.
SELECT id, name, functions, slots, running, lease_seconds, started_at, heartbeat_at, expires_at
FROM workers WHERE tenant_id = @tenant_id AND NOT dead AND expires_at > now() ORDER BY started_at DESC, id DESC LIMIT @most;

-- name: RenewRemoteWorker :one
-- A lease that ran out is not renewed. A claim says nothing of how many executions run.
UPDATE workers SET
    heartbeat_at = coalesce(sqlc.narg(now)::timestamptz, now()), running = coalesce(sqlc.narg(running)::int, running),
    expires_at = coalesce(sqlc.narg(now)::timestamptz, now()) + make_interval(secs => lease_seconds)
WHERE tenant_id = @tenant_id AND id = @id AND NOT dead AND expires_at > coalesce(sqlc.narg(now)::timestamptz, now())
RETURNING slots, functions, lease_seconds;

-- name: RetireRemoteWorker :execrows
UPDATE workers SET drained = true, dead = true WHERE tenant_id = @tenant_id AND id = @id AND NOT dead;

-- name: PublishRemoteFunctions :exec
-- The worker that registered last says what a function takes. In the order of the key, so
-- that two workers that register at once wait for each other and nobody for both.
INSERT INTO remote_functions (tenant_id, name, description, parameters)
SELECT @tenant_id, f.name, f.description, f.parameters
FROM (SELECT unnest(@names::text[]) AS name, unnest(@descriptions::text[]) AS description, unnest(@parameters::jsonb[]) AS parameters) f
ORDER BY f.name
ON CONFLICT (tenant_id, name) DO UPDATE SET description = EXCLUDED.description, parameters = EXCLUDED.parameters, published_at = now()
WHERE (remote_functions.description, remote_functions.parameters) IS DISTINCT FROM (EXCLUDED.description, EXCLUDED.parameters);

-- name: CountRemoteFunctions :one
SELECT count(*) FROM remote_functions WHERE tenant_id = @tenant_id;

-- name: GetRemoteFunction :one
SELECT name, description, parameters, published_at FROM remote_functions WHERE tenant_id = @tenant_id AND name = @name;
