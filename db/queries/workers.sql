-- name: InsertWorker :exec
INSERT INTO workers (id, host, pid, slots, job_types, expires_at)
VALUES (@id, @host, @pid, @slots, coalesce(@job_types::text[], '{}'), coalesce(sqlc.narg(now)::timestamptz, now()) + make_interval(secs => @lease_seconds::float8));

-- name: RenewWorker :execrows
-- A lease that ran out is not renewed: its rows may be another's by now.
UPDATE workers SET
    heartbeat_at = coalesce(sqlc.narg(now)::timestamptz, now()), running = @running,
    expires_at = coalesce(sqlc.narg(now)::timestamptz, now()) + make_interval(secs => @lease_seconds::float8)
WHERE id = @id AND NOT dead AND expires_at > coalesce(sqlc.narg(now)::timestamptz, now());

-- name: RetireWorker :exec
-- A worker that drained says so: nobody has to wait for its lease.
UPDATE workers SET drained = true, dead = true WHERE id = @id;

-- name: MarkDeadWorkers :many
-- Half a second of grace over the lease; skips what a heartbeat holds locked. Returns the
-- service's own: of a tenant's the tenant sees that it is gone.
WITH late AS MATERIALIZED (
    SELECT id FROM workers WHERE NOT dead AND expires_at < coalesce(sqlc.narg(now)::timestamptz, now()) - interval '0.5 seconds'
    FOR UPDATE SKIP LOCKED
),
marked AS (UPDATE workers w SET dead = true FROM late l WHERE w.id = l.id RETURNING w.id, w.host, w.pid, w.tenant_id)
SELECT m.id, m.host, m.pid FROM marked m WHERE m.tenant_id IS NULL;

-- name: DeleteDeadWorkers :execrows
DELETE FROM workers WHERE dead AND heartbeat_at < coalesce(sqlc.narg(now)::timestamptz, now()) - interval '1 day';

-- name: CountLiveWorkers :one
SELECT count(*) FROM workers WHERE tenant_id IS NULL AND NOT dead AND expires_at > coalesce(sqlc.narg(now)::timestamptz, now());

-- name: DescribeOtherWorkers :one
-- Whether any other worker of the service lives, and whether one of them runs fewer types than this
-- one. No types are all.
SELECT count(*) > 0 AS live,
       coalesce(bool_or(o.job_types <> '{}' AND (mine.job_types = '{}' OR NOT o.job_types @> mine.job_types)), false)::boolean AS serve_less
FROM workers o CROSS JOIN (SELECT w.job_types FROM workers w WHERE w.id = @id) mine
WHERE o.id <> @id AND o.tenant_id IS NULL AND NOT o.dead AND o.expires_at > now();

-- name: ListLiveWorkers :many
SELECT id, host, slots, running, job_types, started_at, heartbeat_at, now()::timestamptz AS at
FROM workers WHERE tenant_id IS NULL AND NOT dead AND expires_at > now() ORDER BY started_at, id LIMIT @page_size;
