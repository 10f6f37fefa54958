-- name: ParkEndedExecutions :many
-- Cross-tenant: the worker, for outcomes that the database refuses however they
-- are written. Fenced, locked and counted as CompleteExecutions does. The row
-- keeps its worker, for the history; the outcome is JSON as text.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
given AS (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@attempts::int[]) AS attempt, unnest(@lease_tokens::uuid[]) AS lease_token,
           unnest(@reasons::text[]) AS reason, unnest(@outcomes::text[]) AS outcome
),
locked AS MATERIALIZED (
    SELECT e.id, e.tenant_id, e.job_type, e.worker_id, e.concurrency_key, g.reason, g.outcome
    FROM (SELECT * FROM given ORDER BY id) g CROSS JOIN LATERAL (
        SELECT r.id, r.tenant_id, r.job_type, r.worker_id, r.concurrency_key FROM active_executions r
        WHERE r.id = g.id AND r.status = 'running' AND r.attempt = g.attempt AND r.lease_token = g.lease_token
        FOR UPDATE
    ) e
),
parked AS (
    UPDATE active_executions e SET
        status = 'parked', pooled = false, concurrency_limit = -1 - e.concurrency_limit, deadline_at = NULL,
        parked_at = clock.at, parked_reason = l.reason, parked_outcome = l.outcome, sweep_at = clock.at
    FROM locked l, clock
    WHERE e.id = ANY (ARRAY(SELECT p.id FROM locked p)) AND e.id = l.id
),
ended AS MATERIALIZED (
    SELECT (r.tenant)::uuid AS tenant
    FROM end_runs(ARRAY(SELECT l.tenant_id FROM locked l), ARRAY(SELECT l.job_type FROM locked l), ARRAY(SELECT l.worker_id FROM locked l), ARRAY(SELECT l.id FROM locked l WHERE l.concurrency_key IS NOT NULL)) r
)
-- The join is what has end_runs called.
SELECT l.id, l.tenant_id, l.concurrency_key FROM locked l LEFT JOIN ended n ON n.tenant = l.tenant_id;

-- name: ParkLostExecutions :many
-- Cross-tenant: the sweeper, for executions that it should reassign or end and
-- that the database refuses. Lost executions are found and treated as in
-- ReassignExecutions; locked ones are skipped as there. One whose worker wrote meanwhile that
-- it awaits a callback is not lost, and does not count as running any more.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
given AS (SELECT unnest(@ids::uuid[]) AS id, unnest(@reasons::text[]) AS reason),
lost AS MATERIALIZED (
    SELECT e.id, e.tenant_id, e.job_type, e.worker_id, e.concurrency_key, e.attempt_started_at, (w.id IS NULL OR w.dead) AS worker_lost,
           CASE WHEN w.id IS NULL OR w.dead THEN e.lost_count + 1 < @max_lost::int ELSE e.attempt < e.max_attempts END AS again
    FROM active_executions e LEFT JOIN workers w ON w.id = e.worker_id, clock
    WHERE e.id = ANY (@ids::uuid[]) AND e.status = 'running' AND e.awaited_until IS NULL
      AND (w.id IS NULL OR w.dead OR e.deadline_at < clock.at)
    ORDER BY e.id
    FOR UPDATE OF e SKIP LOCKED
),
parked AS (
    UPDATE active_executions e SET
        status = 'parked', pooled = false, concurrency_limit = -1 - e.concurrency_limit, deadline_at = NULL,
        max_attempts = e.max_attempts + l.worker_lost::int, lost_count = e.lost_count + l.worker_lost::int,
        parked_at = clock.at, parked_reason = g.reason, sweep_at = clock.at,
        parked_outcome = json_build_object(
            'succeeded', false, 'retryMs', CASE WHEN l.again THEN 0 ELSE -1 END,
            'durationMs', (extract(epoch FROM clock.at - l.attempt_started_at) * 1000)::bigint,
            'errorType', CASE WHEN l.worker_lost THEN 'SYSTEM_ERROR' ELSE 'TIMEOUT' END,
            'errorMessage', CASE WHEN l.worker_lost AND l.again THEN 'the worker was lost during the run'
                                 WHEN l.worker_lost THEN 'the worker was lost during the run, too often to try again'
                                 ELSE 'the run passed its deadline and its worker did not end it' END)::text
    FROM lost l, given g, clock
    WHERE e.id = ANY (ARRAY(SELECT p.id FROM lost p)) AND e.id = l.id AND g.id = l.id
),
ended AS MATERIALIZED (
    SELECT (r.tenant)::uuid AS tenant
    FROM end_runs(ARRAY(SELECT l.tenant_id FROM lost l), ARRAY(SELECT l.job_type FROM lost l), ARRAY(SELECT l.worker_id FROM lost l), ARRAY(SELECT l.id FROM lost l WHERE l.concurrency_key IS NOT NULL)) r
)
-- The join is what has end_runs called.
SELECT l.id, l.tenant_id, l.concurrency_key FROM lost l LEFT JOIN ended n ON n.tenant = l.tenant_id;

-- name: ParkWaitingExecution :exec
-- For one whose cancelling the database refuses: it waits as the outcomes do
-- that cannot be stored, which the sweeper tries again.
UPDATE active_executions e SET
    status = 'parked', pooled = false, concurrency_limit = -1 - e.concurrency_limit,
    cancel_requested_at = now(), cancel_reason = @reason::text, cancelled_by = @cancelled_by::text,
    parked_at = now(), parked_reason = @why::text, parked_outcome = '{"succeeded": false, "retryMs": -1}', sweep_at = now()
WHERE e.tenant_id = @tenant_id AND e.id = @id AND e.status IN ('pending', 'retrying');

-- name: ListParkedExecutions :many
-- Cross-tenant: the sweeper. Parked executions that are to be tried now, in turns by
-- tenant, the longest due of each first; walks active_executions_parked. Of
-- tenants that are being deleted there is nothing left to store.
WITH RECURSIVE clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
walk AS (
    (SELECT e.tenant_id FROM active_executions e WHERE e.parked_at IS NOT NULL ORDER BY e.tenant_id LIMIT 1)
    UNION ALL
    SELECT (SELECT e.tenant_id FROM active_executions e WHERE e.parked_at IS NOT NULL AND e.tenant_id > w.tenant_id ORDER BY e.tenant_id LIMIT 1)
    FROM walk w WHERE w.tenant_id IS NOT NULL
)
SELECT d.id, d.tenant_id, d.job_id, d.job_type, d.scheduled_at, coalesce(d.parked_outcome, '')::text AS outcome,
       EXISTS (SELECT 1 FROM tenants t WHERE t.id = d.tenant_id AND t.status = 'deleting') AS deleting
FROM (SELECT w.tenant_id FROM walk w WHERE w.tenant_id IS NOT NULL) w CROSS JOIN LATERAL (
    SELECT e.id, e.tenant_id, e.job_id, e.job_type, e.scheduled_at, e.parked_outcome, row_number() OVER (ORDER BY e.sweep_at) AS turn
    FROM active_executions e
    WHERE e.parked_at IS NOT NULL AND e.tenant_id = w.tenant_id AND e.sweep_at <= (SELECT at FROM clock)
    ORDER BY e.sweep_at LIMIT @batch_size::int
) d
ORDER BY d.turn, random() LIMIT @batch_size::int;

-- name: StoreParkedExecution :many
-- Cross-tenant: the sweeper. Stores the end of one parked execution, as
-- CompleteExecutions would have. One that is to run again waits for a slot of
-- its job, because it gave its own back. Locked ones are another sweeper's.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
locked AS MATERIALIZED (
    SELECT e.*, CASE WHEN e.cancel_requested_at IS NOT NULL THEN 'cancelled'
                     WHEN @succeeded::boolean THEN 'completed'
                     WHEN @retry_ms::bigint < 0 OR e.attempt >= e.max_attempts THEN 'failed'
                     ELSE 'retrying' END AS verdict,
           coalesce((SELECT CASE WHEN j.overlap_policy = 'allow' THEN 0 ELSE j.max_concurrent END FROM job_definitions j WHERE j.id = e.job_id), 0)::smallint AS slot_limit
    FROM active_executions e WHERE e.id = @id AND e.status = 'parked' FOR UPDATE OF e SKIP LOCKED
),
moved AS (
    DELETE FROM active_executions e WHERE e.id = ANY (ARRAY(SELECT l.id FROM locked l WHERE l.verdict <> 'retrying'))
),
recorded AS (
    INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
                                status, reason, attempt, max_attempts, progress, attempts, worker_id, lease_token, backfill_id, started_at, completed_at,
                                duration_us, attempt_started_at, result, error_type, error_message, error_stack, memory_peak_mb, cpu_time_ms, cancelled_by, created_at)
    SELECT l.id, l.scheduled_at, l.tenant_id, l.job_id, l.job_version, l.trigger_type, l.triggered_by, l.job_type, l.priority, l.parameters,
           l.verdict, CASE WHEN l.verdict = 'cancelled' THEN coalesce(l.cancel_reason, 'cancelled while running') ELSE '' END,
           l.attempt, l.max_attempts, CASE WHEN l.verdict = 'completed' THEN 100 ELSE l.progress END,
           l.attempts, l.worker_id, l.lease_token, l.backfill_id, l.started_at, clock.at,
           @duration_us::bigint, CASE WHEN l.attempt > 1 THEN l.attempt_started_at END, nullif(@result::text, '')::jsonb, CASE WHEN l.verdict = 'failed' THEN nullif(@error_type::text, '') END,
           CASE WHEN l.verdict = 'failed' THEN nullif(@error_message::text, '') END, CASE WHEN l.verdict = 'failed' THEN nullif(@error_stack::text, '') END,
           nullif(@memory_mb::real, 0), nullif(@cpu_ms::bigint, 0), CASE WHEN l.verdict = 'cancelled' THEN coalesce(l.cancelled_by, '') ELSE '' END, l.created_at
    FROM locked l, clock WHERE l.verdict <> 'retrying'
    ON CONFLICT DO NOTHING
),
again AS (
    UPDATE active_executions e SET
        status = 'retrying', worker_id = NULL, lease_token = NULL, concurrency_limit = l.slot_limit, pooled = (l.slot_limit = 0 AND e.concurrency_key IS NULL),
        available_at = clock.at, sweep_at = 'infinity', parked_at = NULL, parked_reason = NULL, parked_outcome = NULL,
        attempts = e.attempts || jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
            'number', l.attempt, 'startedAt', l.attempt_started_at, 'endedAt', l.parked_at, 'durationUs', @duration_us::bigint, 'workerId', l.worker_id,
            'error', jsonb_build_object('type', @error_type::text, 'message', @error_message::text, 'stack', nullif(@error_stack::text, '')))))
    FROM locked l, clock
    WHERE e.id = ANY (ARRAY(SELECT a.id FROM locked a WHERE a.verdict = 'retrying')) AND e.id = l.id
)
SELECT l.verdict::text AS verdict FROM locked l;

-- name: PutOffParkedExecution :exec
-- Cross-tenant: the sweeper, for one whose end was refused again. It is tried
-- after as long as it is parked already, between a second and ten minutes.
UPDATE active_executions e SET parked_reason = @reason::text,
       sweep_at = clock.at + least(greatest(clock.at - e.parked_at, interval '1 second'), interval '10 minutes')
FROM (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at) clock
WHERE e.id = @id AND e.status = 'parked';

-- name: DropParkedExecution :exec
-- Cross-tenant: the sweeper, for one of a tenant that is being deleted.
DELETE FROM active_executions WHERE id = @id AND status = 'parked';

-- name: CountParkedExecutions :one
-- Cross-tenant: the sweeper's gauge.
SELECT count(*) FROM active_executions WHERE parked_at IS NOT NULL;
