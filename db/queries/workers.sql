-- name: ChooseShard :one
-- Cross-tenant: the worker. Of the ids that a worker may take the one whose shard (shard_of) the fewest live
-- workers of the service have, the first of several. Claims by workers of one shard wait for each other's commits.
SELECT (c.id)::uuid AS id FROM unnest(@ids::uuid[]) WITH ORDINALITY AS c(id, nth)
LEFT JOIN (SELECT shard_of(w.id) AS shard, count(*) AS workers FROM workers w
           WHERE NOT w.dead AND w.expires_at > now() AND w.tenant_id IS NULL GROUP BY 1) taken ON taken.shard = shard_of(c.id)
ORDER BY coalesce(taken.workers, 0), c.nth LIMIT 1;

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
-- Whether any other worker of the service lives, whether one of them runs fewer types than this
-- one, and how many run all of its types and have a slot free. No types are all.
SELECT count(*) > 0 AS live, coalesce(bool_or(NOT o.same), false)::boolean AS serve_less, count(*) FILTER (WHERE o.same AND o.running < o.slots) AS able
FROM (
    SELECT w.running, w.slots, w.job_types = '{}' OR mine.job_types <> '{}' AND w.job_types @> mine.job_types AS same
    FROM workers w CROSS JOIN (SELECT m.job_types FROM workers m WHERE m.id = @id) mine
    WHERE w.id <> @id AND w.tenant_id IS NULL AND NOT w.dead AND w.expires_at > now()
) o;

-- name: ListLiveWorkers :many
SELECT id, host, slots, running, job_types, started_at, heartbeat_at, now()::timestamptz AS at
FROM workers WHERE tenant_id IS NULL AND NOT dead AND expires_at > now() ORDER BY started_at, id LIMIT @page_size;
