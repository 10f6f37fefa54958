-- name: ReleaseExecutions :many
-- Cross-tenant: the worker releases executions that it will not run: on a drain, or
-- rows that the database says it runs and it does not. Fenced as a completion is. The
-- attempt stays counted and one more is allowed instead. A released execution is in the
-- pool at once, as a reassigned one is. One that is to be cancelled does not wait again,
-- nobody would claim it: it runs nowhere, and the sweeper ends it. One that awaits a
-- callback is no worker's to release.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
given AS (SELECT unnest(@ids::uuid[]) AS id, unnest(@lease_tokens::uuid[]) AS lease_token),
locked AS MATERIALIZED (
    SELECT e.id, e.tenant_id, e.job_type, e.worker_id, e.concurrency_key, e.cancel_requested_at FROM (SELECT * FROM given ORDER BY id) g CROSS JOIN LATERAL (
        SELECT r.id, r.tenant_id, r.job_type, r.worker_id, r.concurrency_key, r.cancel_requested_at FROM active_executions r
        WHERE r.id = g.id AND r.status = 'running' AND r.lease_token = g.lease_token AND r.awaited_until IS NULL
        FOR UPDATE
    ) e
),
ended AS MATERIALIZED (
    SELECT (r.tenant)::uuid AS tenant
    FROM end_runs(ARRAY(SELECT l.tenant_id FROM locked l WHERE l.cancel_requested_at IS NULL), ARRAY(SELECT l.job_type FROM locked l WHERE l.cancel_requested_at IS NULL), ARRAY(SELECT l.worker_id FROM locked l WHERE l.cancel_requested_at IS NULL), ARRAY(SELECT l.id FROM locked l WHERE l.cancel_requested_at IS NULL AND l.concurrency_key IS NOT NULL)) r
),
released AS (
    UPDATE active_executions e SET
        status = CASE WHEN e.cancel_requested_at IS NULL THEN 'pending' ELSE 'running' END, worker_id = NULL, lease_token = NULL, deadline_at = NULL,
        max_attempts = e.max_attempts + 1, available_at = clock.at,
        pooled = (e.cancel_requested_at IS NULL AND e.concurrency_limit = 0 AND e.concurrency_key IS NULL),
        sweep_at = CASE WHEN e.cancel_requested_at IS NULL THEN 'infinity' ELSE clock.at + interval '5 seconds' END
    FROM clock WHERE e.id = ANY (ARRAY(SELECT l.id FROM locked l))
    RETURNING e.id, e.tenant_id, e.priority
)
-- The join is what has end_runs called.
SELECT r.id, r.priority FROM released r LEFT JOIN ended n ON n.tenant = r.tenant_id;

-- name: HoldExecutions :many
-- Cross-tenant: the worker. Gives back executions whose calls a circuit breaker holds back:
-- they wait in the pool for as long as the worker says. Fenced, locked and counted as in
-- ReleaseExecutions. The attempt was not made, so it is not counted either: the next one has its number
-- and another lease token.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
given AS (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@lease_tokens::uuid[]) AS lease_token, unnest(@hosts::text[]) AS host, unnest(@holds_ms::bigint[]) AS hold_ms
),
locked AS MATERIALIZED (
    SELECT e.id, e.tenant_id, e.job_type, e.worker_id, e.concurrency_key, e.cancel_requested_at, g.host, g.hold_ms
    FROM (SELECT * FROM given ORDER BY id) g CROSS JOIN LATERAL (
        SELECT r.id, r.tenant_id, r.job_type, r.worker_id, r.concurrency_key, r.cancel_requested_at FROM active_executions r
        WHERE r.id = g.id AND r.status = 'running' AND r.lease_token = g.lease_token AND r.awaited_until IS NULL
        FOR UPDATE
    ) e
),
ended AS MATERIALIZED (
    SELECT (r.tenant)::uuid AS tenant, (r.backlogged_since)::timestamptz AS backlogged_since
    FROM end_runs(ARRAY(SELECT l.tenant_id FROM locked l WHERE l.cancel_requested_at IS NULL), ARRAY(SELECT l.job_type FROM locked l WHERE l.cancel_requested_at IS NULL), ARRAY(SELECT l.worker_id FROM locked l WHERE l.cancel_requested_at IS NULL), ARRAY(SELECT l.id FROM locked l WHERE l.cancel_requested_at IS NULL AND l.concurrency_key IS NOT NULL)) r
),
held AS (
    UPDATE active_executions e SET
        status = CASE WHEN e.cancel_requested_at IS NOT NULL THEN 'running' WHEN e.attempt > 1 THEN 'retrying' ELSE 'pending' END,
        worker_id = NULL, lease_token = NULL, deadline_at = NULL, attempt = e.attempt - (e.cancel_requested_at IS NULL)::int,
        started_at = CASE WHEN e.attempt > 1 OR e.cancel_requested_at IS NOT NULL THEN e.started_at END,
        available_at = clock.at + make_interval(secs => l.hold_ms / 1000.0), held_until = clock.at + make_interval(secs => l.hold_ms / 1000.0), held_host = l.host,
        pooled = (e.cancel_requested_at IS NULL AND e.concurrency_limit = 0 AND e.concurrency_key IS NULL),
        sweep_at = CASE WHEN e.cancel_requested_at IS NULL THEN 'infinity' ELSE clock.at + interval '5 seconds' END
    FROM locked l, clock WHERE e.id = ANY (ARRAY(SELECT h.id FROM locked h)) AND e.id = l.id
    RETURNING e.id, e.tenant_id, e.concurrency_key
)
-- The join is what has end_runs called.
SELECT h.id, h.tenant_id, h.concurrency_key, coalesce(n.backlogged_since > clock.at - interval '2 minutes', false)::boolean AS backlogged
FROM held h CROSS JOIN clock LEFT JOIN ended n ON n.tenant = h.tenant_id;

-- name: LetHeldGo :execrows
-- For the worker, once a circuit breaker has closed. Executions that it held back
-- may start now instead of at the end of their wait. Those whose available_at is another
-- one wait for something else. Without a host they leave active_executions_held.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
held AS MATERIALIZED (
    SELECT e.id FROM active_executions e, clock
    WHERE e.tenant_id = @tenant_id AND e.held_host = @host::text AND e.status IN ('pending', 'retrying')
      AND e.available_at = e.held_until AND e.available_at > clock.at
    LIMIT @batch_size
    FOR UPDATE OF e SKIP LOCKED
)
UPDATE active_executions e SET available_at = clock.at, held_host = NULL
FROM clock WHERE e.id = ANY (ARRAY(SELECT h.id FROM held h));

-- name: ListExecutionsOfWorker :many
-- Cross-tenant: the worker, now and then. The executions that the database says this
-- worker runs. It walks active_executions_sweep and so reads what all workers run: the
-- claim sets sweep_at to 5 s ahead or less. An index by worker would cost each claim
-- its HOT update.
SELECT id, lease_token, attempt, (cancel_requested_at IS NOT NULL)::boolean AS cancelling
FROM active_executions
WHERE sweep_at <= coalesce(sqlc.narg(now)::timestamptz, now()) + interval '5 seconds'
  AND status = 'running' AND worker_id = @worker_id;

-- name: ListCancelledRuns :many
-- Cross-tenant: the worker, between two heartbeats. Which of its runs somebody asked
-- to end; walks active_executions_cancelling, which is empty most of the time.
SELECT id, lease_token FROM active_executions
WHERE cancel_requested_at IS NOT NULL AND status = 'running' AND worker_id = @worker_id;
