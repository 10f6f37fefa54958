-- name: AwaitCallbacks :many
-- Cross-tenant: the worker. Attempts whose target took the call and reports the end later.
-- Fenced and locked as a completion is. Nothing of them runs here any more, so they leave
-- the counts of their tenants; they keep their concurrency slot and key. A repeat finds
-- its own rows and counts nothing again. A timeout that is less than the row's, because the
-- execution has less time left, becomes the row's: no later attempt has more. Returns the attempts that are still this
-- worker's: of others the callback came first, or a sweep.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
given AS (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@attempts::int[]) AS attempt, unnest(@lease_tokens::uuid[]) AS lease_token,
           unnest(@timeouts_ms::int[]) AS timeout_ms, unnest(@heartbeats_ms::int[]) AS heartbeat_ms
),
locked AS MATERIALIZED (
    SELECT e.id, e.tenant_id, e.job_type, e.worker_id, e.awaited_until, g.timeout_ms, g.heartbeat_ms
    FROM (SELECT * FROM given ORDER BY id) g CROSS JOIN LATERAL (
        SELECT r.id, r.tenant_id, r.job_type, r.worker_id, r.awaited_until FROM active_executions r
        WHERE r.id = g.id AND r.status = 'running' AND r.attempt = g.attempt AND r.lease_token = g.lease_token
        FOR UPDATE
    ) e
),
waiting AS (
    UPDATE active_executions e SET
        timeout_ms = least(e.timeout_ms, l.timeout_ms),
        awaited_until = least(e.attempt_started_at + make_interval(secs => least(e.timeout_ms, l.timeout_ms) / 1000.0),
                              CASE WHEN l.heartbeat_ms > 0 THEN clock.at + make_interval(secs => l.heartbeat_ms / 1000.0) END),
        heartbeat_ms = nullif(l.heartbeat_ms, 0), last_heartbeat_at = clock.at, sweep_at = 'infinity'
    FROM locked l, clock
    WHERE e.id = ANY (ARRAY(SELECT n.id FROM locked n WHERE n.awaited_until IS NULL)) AND e.id = l.id
    RETURNING e.id
),
-- The condition reads what waits, so that rows are written before the counts are locked.
leaving AS (
    SELECT array_agg(l.tenant_id) AS tenant_ids, array_agg(l.job_type) AS job_types, array_agg(l.worker_id) AS workers
    FROM locked l WHERE l.awaited_until IS NULL AND (SELECT count(*) FROM waiting) >= 0
),
ended AS MATERIALIZED (
    SELECT (r.tenant)::uuid AS tenant, (r.backlogged_since)::timestamptz AS backlogged_since FROM leaving o, end_runs(o.tenant_ids, o.job_types, o.workers, '{}') r
)
SELECT l.id, l.tenant_id, coalesce(n.backlogged_since > clock.at - interval '2 minutes', false)::boolean AS backlogged
FROM locked l CROSS JOIN clock LEFT JOIN ended n ON n.tenant = l.tenant_id;

-- name: ResumeAwaited :many
-- Cross-tenant: callbacks and maintenance, in one transaction with and before
-- CompleteExecutions. Locks attempts that end, by the same fence, and counts those that
-- awaited a callback as running again. An attempt whose callback came before its worker
-- wrote that it awaits one counts already. elapsed_us is how long the attempt took.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
given AS (SELECT unnest(@ids::uuid[]) AS id, unnest(@attempts::int[]) AS attempt, unnest(@lease_tokens::uuid[]) AS lease_token),
locked AS MATERIALIZED (
    SELECT e.id, e.tenant_id, e.job_type, e.worker_id, e.awaited_until, e.attempt_started_at FROM (SELECT * FROM given ORDER BY id) g CROSS JOIN LATERAL (
        SELECT r.id, r.tenant_id, r.job_type, r.worker_id, r.awaited_until, r.attempt_started_at FROM active_executions r
        WHERE r.id = g.id AND r.status = 'running' AND r.attempt = g.attempt AND r.lease_token = g.lease_token
        FOR UPDATE
    ) e
),
resumed AS (
    UPDATE active_executions e SET awaited_until = NULL, heartbeat_ms = NULL, last_heartbeat_at = NULL
    WHERE e.id = ANY (ARRAY(SELECT l.id FROM locked l WHERE l.awaited_until IS NOT NULL))
    RETURNING e.id
),
returning_runs AS (
    SELECT array_agg(l.tenant_id) AS tenant_ids, array_agg(l.job_type) AS job_types, array_agg(l.worker_id) AS workers
    FROM locked l WHERE l.awaited_until IS NOT NULL AND (SELECT count(*) FROM resumed) >= 0
),
counted AS MATERIALIZED (SELECT resume_runs(r.tenant_ids, r.job_types, r.workers) AS runs FROM returning_runs r)
-- The join is what has resume_runs called.
SELECT l.id, greatest(extract(epoch FROM clock.at - l.attempt_started_at) * 1000000, 0)::bigint AS elapsed_us
FROM locked l CROSS JOIN clock CROSS JOIN counted c WHERE c.runs >= 0 OR c.runs IS NULL;

-- name: ProlongAwaited :execrows
-- Cross-tenant: maintenance. Moves waits that are due and that a heartbeat prolonged to
-- where they may end next; walks active_executions_awaited as far as it is due (of a range
-- with two ends the planner expects few rows). Skips locked rows: a callback is being written.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
due AS MATERIALIZED (
    SELECT e.id, least(e.attempt_started_at + make_interval(secs => e.timeout_ms / 1000.0),
                       e.last_heartbeat_at + make_interval(secs => e.heartbeat_ms / 1000.0)) AS ends_at
    FROM active_executions e, clock
    WHERE e.awaited_until BETWEEN '-infinity' AND (SELECT at FROM clock) AND e.cancel_requested_at IS NULL
      AND e.attempt_started_at + make_interval(secs => e.timeout_ms / 1000.0) > clock.at
      AND e.last_heartbeat_at + make_interval(secs => e.heartbeat_ms / 1000.0) > clock.at
    ORDER BY e.awaited_until LIMIT @batch_size
    FOR UPDATE OF e SKIP LOCKED
)
UPDATE active_executions e SET awaited_until = d.ends_at
FROM due d WHERE e.id = ANY (ARRAY(SELECT p.id FROM due p)) AND e.id = d.id;

-- name: ListOverdueAwaited :many
-- Cross-tenant: maintenance. Attempts whose wait must end: nobody reported in time, or
-- somebody asked for their end. A tenant's worker hears of that with its next heartbeat and
-- has as long as a heartbeat may take to end the run itself. Walks active_executions_awaited as far as it is due, and
-- active_executions_cancelling. It locks nothing: the fence decides when they are ended.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
due AS MATERIALIZED (
    SELECT e.id FROM active_executions e, clock
    WHERE e.awaited_until BETWEEN '-infinity' AND (SELECT at FROM clock)
      AND least(e.attempt_started_at + make_interval(secs => e.timeout_ms / 1000.0),
                e.last_heartbeat_at + make_interval(secs => e.heartbeat_ms / 1000.0)) <= clock.at
    ORDER BY e.awaited_until LIMIT @batch_size
),
asked AS MATERIALIZED (
    SELECT e.id FROM active_executions e, clock
    WHERE e.cancel_requested_at <= (SELECT at FROM clock) AND e.awaited_until IS NOT NULL
      AND (e.remote_function IS NULL OR e.cancel_requested_at + make_interval(secs => e.heartbeat_ms / 1000.0) <= clock.at)
    LIMIT @batch_size
)
SELECT e.id, e.tenant_id, e.job_id, e.job_version, e.job_type, e.priority, e.attempt, e.max_attempts, e.lease_token, e.timeout_ms,
       coalesce(e.heartbeat_ms, 0)::int AS heartbeat_ms, (e.cancel_requested_at IS NOT NULL)::boolean AS cancelling,
       (e.attempt_started_at + make_interval(secs => e.timeout_ms / 1000.0) <= clock.at)::boolean AS timed_out,
       (extract(epoch FROM clock.at - e.started_at) * 1000000)::bigint AS elapsed_us
FROM active_executions e, clock
WHERE e.id = ANY (ARRAY(SELECT d.id FROM due d UNION SELECT a.id FROM asked a LIMIT @batch_size));

-- name: PutOffAwaited :exec
-- Cross-tenant: maintenance, for one whose end the database refuses: it is tried again a
-- minute later, and the others do not wait behind it. A request for its end then counts
-- from that minute.
UPDATE active_executions e SET awaited_until = clock.at + interval '1 minute',
    cancel_requested_at = CASE WHEN e.cancel_requested_at IS NOT NULL THEN clock.at + interval '1 minute' END
FROM (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at) clock
WHERE e.id = @id AND e.awaited_until IS NOT NULL;

-- name: RecordHeartbeat :one
-- A sign of life of an attempt that runs outside our workers, and how far it is: a negative
-- progress changes nothing, and neither does an empty message. Fenced as a completion is; no
-- row where the attempt has ended. It changes no column of an index: a HOT update.
WITH alive AS (
    UPDATE active_executions e SET
        last_heartbeat_at = coalesce(sqlc.narg(now)::timestamptz, now()),
        progress = CASE WHEN @progress::int < 0 THEN e.progress ELSE least(@progress::int, 100) END
    WHERE e.tenant_id = @tenant_id AND e.id = @id AND e.status = 'running' AND e.attempt = @attempt AND e.lease_token = @lease_token
    RETURNING e.id, e.tenant_id, e.cancel_requested_at IS NOT NULL AS cancelling
),
said AS (
    INSERT INTO execution_progress (execution_id, tenant_id, message, begun_at)
    SELECT a.id, a.tenant_id, @message::text, coalesce(sqlc.narg(now)::timestamptz, now()) FROM alive a WHERE @message::text <> ''
    ON CONFLICT (execution_id) DO UPDATE SET message = EXCLUDED.message WHERE execution_progress.message <> EXCLUDED.message
)
SELECT cancelling FROM alive;

-- name: GetAttemptState :one
-- Where an attempt stands whose callback came, and what is stored of it if it has ended:
-- same_result says whether that is the given result, elapsed_us how long ago its execution
-- started, if it runs. The id holds the scheduled time in
-- milliseconds: the range reads one partition.
SELECT s.job_id, s.job_version, s.job_type, s.priority, s.attempt, s.max_attempts, s.status, s.lease_token, s.error_type, s.error_message, s.attempts, s.parameters, s.same_result, s.elapsed_us
FROM (
    SELECT e.job_id, e.job_version, e.job_type, e.priority, e.attempt, e.max_attempts, e.status, e.lease_token,
           NULL::text AS error_type, NULL::text AS error_message, e.attempts, e.parameters, false AS same_result,
           coalesce(extract(epoch FROM coalesce(sqlc.narg(now)::timestamptz, now()) - e.started_at) * 1000000, 0)::bigint AS elapsed_us
    FROM active_executions e WHERE e.tenant_id = @tenant_id AND e.id = @id
    UNION ALL
    SELECT h.job_id, h.job_version, h.job_type, h.priority, h.attempt, h.max_attempts, h.status, h.lease_token,
           h.error_type, h.error_message, h.attempts, h.parameters, h.result IS NOT DISTINCT FROM nullif(@result::text, '')::jsonb AS same_result, 0::bigint AS elapsed_us
    FROM job_executions h
    WHERE h.tenant_id = @tenant_id AND h.id = @id AND h.scheduled_at >= @from_at::timestamptz AND h.scheduled_at < @to_at::timestamptz
) s LIMIT 1;
