-- name: ListRemoteExecutions :many
-- Executions of a tenant's functions in the pool that may start, in the order in which they
-- should: each step of priority counts as ten seconds of waiting. One step into
-- active_executions_remote for each function and priority. They stay locked for the claim
-- that follows in the same transaction; other claims skip them, so more are read than
-- are wanted. Each is locked by its id: by all ids at once, a plan that was made while the
-- table was empty reads all that waits of the tenant.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
found AS MATERIALIZED (
    SELECT w.id, w.since
    FROM unnest(@functions::text[]) AS f(name) CROSS JOIN generate_series(0, 9) AS p(priority) CROSS JOIN LATERAL (
        SELECT e.id, e.available_at - p.priority * interval '10 seconds' AS since FROM active_executions e
        WHERE e.pooled AND e.remote_function IS NOT NULL AND e.tenant_id = @tenant_id AND e.remote_function = f.name AND e.priority = p.priority
          AND e.available_at <= (SELECT at FROM clock) AND e.cancel_requested_at IS NULL
        ORDER BY e.available_at LIMIT 4 * @most::int
    ) w
    ORDER BY w.since, w.id LIMIT 4 * @most::int
)
SELECT e.id FROM (SELECT f.id FROM found f ORDER BY f.since, f.id) w CROSS JOIN LATERAL (
    SELECT a.id FROM active_executions a WHERE a.id = w.id AND a.tenant_id = @tenant_id AND a.pooled
    FOR UPDATE SKIP LOCKED
) e
LIMIT @most::int;

-- name: ListRemoteUnblocked :many
-- Executions of a tenant's functions whose concurrency slot or key is free. It reads up to
-- 64 jobs of each function and 64 keys of the tenant, from a place on that the caller
-- chooses at random, so that none is passed over for ever. next_for_slot and next_for_key
-- find who is next, at a cost that no backlog raises.
WITH RECURSIVE clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
jobs AS (
    SELECT f.name, j.job_id, 1 AS nth FROM unnest(@functions::text[]) AS f(name) CROSS JOIN LATERAL (
        SELECT e.job_id FROM active_executions e
        WHERE e.awaits_turn AND e.remote_function IS NOT NULL AND e.tenant_id = @tenant_id AND e.remote_function = f.name AND e.job_id > @after_job::uuid
        ORDER BY e.job_id LIMIT 1
    ) j
    UNION ALL
    SELECT w.name, j.job_id, w.nth + 1 FROM jobs w CROSS JOIN LATERAL (
        SELECT e.job_id FROM active_executions e
        WHERE e.awaits_turn AND e.remote_function IS NOT NULL AND e.tenant_id = @tenant_id AND e.remote_function = w.name AND e.job_id > w.job_id
        ORDER BY e.job_id LIMIT 1
    ) j WHERE w.nth < 64
),
keyed AS (
    (SELECT e.concurrency_key, 1 AS nth FROM active_executions e
     WHERE e.awaits_turn AND e.concurrency_key IS NOT NULL AND e.tenant_id = @tenant_id AND e.concurrency_key > @after_key::text
     ORDER BY e.concurrency_key LIMIT 1)
    UNION ALL
    SELECT n.concurrency_key, k.nth + 1 FROM keyed k CROSS JOIN LATERAL (
        SELECT e.concurrency_key FROM active_executions e
        WHERE e.awaits_turn AND e.concurrency_key IS NOT NULL AND e.tenant_id = @tenant_id AND e.concurrency_key > k.concurrency_key
        ORDER BY e.concurrency_key LIMIT 1
    ) n WHERE k.nth < 64
),
found AS MATERIALIZED (
    SELECT (n.id)::uuid AS id FROM jobs j CROSS JOIN clock CROSS JOIN LATERAL next_for_slot(j.job_id, '{}'::text[], clock.at, 0, @most::int) n
    UNION
    SELECT (n.id)::uuid AS id FROM keyed k CROSS JOIN clock CROSS JOIN LATERAL next_for_key(@tenant_id::uuid, k.concurrency_key, '{}'::text[], false, clock.at) n
)
SELECT e.id, e.job_id, (e.concurrency_limit > 0)::boolean AS needs_slot FROM found f CROSS JOIN LATERAL (
    SELECT a.id, a.job_id, a.concurrency_limit, a.remote_function FROM active_executions a WHERE a.id = f.id AND a.tenant_id = @tenant_id OFFSET 0
) e
WHERE e.remote_function = ANY (@functions::text[])
ORDER BY e.job_id, e.id LIMIT @most::int;

-- name: ListClaimableFunctions :many
-- Cross-tenant: the API, for the claims that wait. Of pairs of tenant and function those for
-- which something waits: in the pool and may start, or for its turn. Two steps into an
-- index each.
SELECT g.nth::int AS nth
FROM (SELECT row_number() OVER () AS nth, p.tenant_id, p.name
      FROM (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@functions::text[]) AS name) p) g
WHERE EXISTS (SELECT 1 FROM active_executions e
              WHERE e.pooled AND e.remote_function IS NOT NULL AND e.tenant_id = g.tenant_id AND e.remote_function = g.name
                AND e.available_at <= coalesce(sqlc.narg(now)::timestamptz, now()) OFFSET 0)
   OR EXISTS (SELECT 1 FROM active_executions e
              WHERE e.awaits_turn AND e.remote_function IS NOT NULL AND e.tenant_id = g.tenant_id AND e.remote_function = g.name OFFSET 0);

-- name: ShortenAwaited :exec
-- Cross-tenant: claims of tenants' workers. Attempts whose executions have less time left than
-- their timeout, which the claim does not know; no later attempt has more.
UPDATE active_executions e SET timeout_ms = least(e.timeout_ms, g.timeout_ms),
    awaited_until = least(e.awaited_until, e.attempt_started_at + make_interval(secs => g.timeout_ms / 1000.0))
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@lease_tokens::uuid[]) AS lease_token, unnest(@timeouts_ms::int[]) AS timeout_ms) g
WHERE e.id = ANY (@ids::uuid[]) AND e.id = g.id AND e.lease_token = g.lease_token AND e.awaited_until IS NOT NULL;

-- name: RecordHeartbeats :many
-- Signs of life of attempts that one tenant's worker runs, each by its fence. Those that are
-- not in the answer have ended. It changes no column of an index: a HOT update.
UPDATE active_executions e SET last_heartbeat_at = coalesce(sqlc.narg(now)::timestamptz, now())
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@attempts::int[]) AS attempt, unnest(@lease_tokens::uuid[]) AS lease_token) g
WHERE e.tenant_id = @tenant_id AND e.id = ANY (@ids::uuid[]) AND e.id = g.id
  AND e.status = 'running' AND e.attempt = g.attempt AND e.lease_token = g.lease_token
RETURNING e.id, e.attempt, e.lease_token::uuid AS lease_token, (e.cancel_requested_at IS NOT NULL)::boolean AS cancelling;

-- name: InsertRemoteClaim :execrows
-- In the transaction of the claim, once something was claimed. None where the worker has claimed under this
-- id before: the claim at the same time that comes second waits for the first and gives up. It
-- forgets what the worker claimed ten minutes ago: nobody repeats that.
WITH old AS (
    DELETE FROM remote_claims o WHERE o.tenant_id = @tenant_id AND o.worker_id = @worker_id AND o.claimed_at < now() - interval '10 minutes' AND o.claim_id <> @claim_id
)
INSERT INTO remote_claims (worker_id, claim_id, tenant_id, lease_token, execution_ids)
VALUES (@worker_id, @claim_id, @tenant_id, @lease_token, @execution_ids::uuid[])
ON CONFLICT (worker_id, claim_id) DO NOTHING;

-- name: RepeatRemoteClaim :many
-- Executions that a worker claimed under an id and still runs, as ClaimExecutions answers them. It counts as a
-- heartbeat of these attempts.
UPDATE active_executions e SET last_heartbeat_at = coalesce(sqlc.narg(now)::timestamptz, now())
WHERE e.tenant_id = @tenant_id AND e.status = 'running' AND e.worker_id = @worker_id
  AND e.id = ANY (ARRAY(SELECT unnest(c.execution_ids) FROM remote_claims c WHERE c.tenant_id = @tenant_id AND c.worker_id = @worker_id AND c.claim_id = @claim_id))
  AND e.lease_token = (SELECT c.lease_token FROM remote_claims c WHERE c.tenant_id = @tenant_id AND c.worker_id = @worker_id AND c.claim_id = @claim_id)
RETURNING e.id, e.tenant_id, e.job_id, e.job_version, e.scheduled_at, e.trigger_type, e.job_type, e.priority, e.parameters,
          e.attempt, e.max_attempts, e.lease_token, greatest(e.timeout_ms - extract(epoch FROM coalesce(sqlc.narg(now)::timestamptz, now()) - e.attempt_started_at) * 1000, 0)::int AS left_ms,
          e.started_at::timestamptz AS started_at, coalesce(sqlc.narg(now)::timestamptz, now())::timestamptz AS repeated_at;

-- name: ForgetRemoteClaim :execrows
-- Deletes a claim when none of its executions still runs. Its id can then be used again.
DELETE FROM remote_claims c WHERE c.tenant_id = @tenant_id AND c.worker_id = @worker_id AND c.claim_id = @claim_id
  AND NOT EXISTS (SELECT 1 FROM active_executions e WHERE e.tenant_id = @tenant_id AND e.id = ANY (c.execution_ids) AND e.lease_token = c.lease_token AND e.status = 'running');

-- name: PurgeRemoteClaims :execrows
DELETE FROM remote_claims WHERE tenant_id = @tenant_id;
