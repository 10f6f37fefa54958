-- name: InsertDueExecutions :exec
-- Cross-tenant: the promoter. Inserting a run twice is a no-op, in this table
-- by its key and in the history by the look-up, which touches one partition.
INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority,
                               max_attempts, timeout_ms, concurrency_limit, available_at, sweep_at, created_at)
SELECT u.id, u.tenant_id, u.job_id, u.job_version, u.scheduled_at, 'scheduled', u.job_type, u.priority,
       u.max_attempts, u.timeout_ms, u.concurrency_limit, greatest(u.available_at, n.at),
       -- What may not start yet has no hint: the sweeper sends it when it may.
       CASE WHEN u.available_at > n.at THEN u.available_at ELSE n.at + interval '5 seconds' END, n.at
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@job_ids::uuid[]) AS job_id,
             unnest(@job_versions::int[]) AS job_version, unnest(@scheduled_at::timestamptz[]) AS scheduled_at,
             unnest(@job_types::text[]) AS job_type, unnest(@priorities::smallint[]) AS priority,
             unnest(@max_attempts::int[]) AS max_attempts, unnest(@timeouts_ms::int[]) AS timeout_ms,
             unnest(@concurrency_limits::smallint[]) AS concurrency_limit, unnest(@available_at::timestamptz[]) AS available_at) u,
     (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at) n
WHERE NOT EXISTS (SELECT 1 FROM job_executions h WHERE h.id = u.id AND h.scheduled_at = u.scheduled_at)
ON CONFLICT (id) DO NOTHING;

-- name: InsertRequestedExecution :exec
INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, triggered_by, job_type, priority,
                               parameters, max_attempts, timeout_ms, concurrency_limit, available_at, sweep_at, created_at)
VALUES (@id, @tenant_id, @job_id, @job_version, @scheduled_at, @trigger_type, @triggered_by, @job_type, @priority,
        sqlc.narg(parameters), @max_attempts, @timeout_ms, @concurrency_limit, @now, @sweep_at, @now);

-- name: ClaimExecutions :many
-- Cross-tenant: the worker. Takes what is pending and available, while this
-- worker's lease stands. The attempt is counted here, so that a run that kills
-- its worker is bounded. A claim whose commit was ambiguous is repeated with
-- the same token and finds its own rows. Locked rows are another's: skipped.
-- Rows of this table are found by an array of ids and by no join, here and
-- below. It is empty most of the time, and once vacuum has seen it so, the
-- planner takes it for a single row whatever it holds, and joins it by comparing
-- all with all (measured: 320 ms for a claim of 128 and 970 for a completion
-- of 256). What needs values for each row looks them up one by one (LATERAL).
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
locked AS MATERIALIZED (
    SELECT e.id FROM active_executions e, clock
    WHERE e.id = ANY (@ids::uuid[])
      AND ((e.status IN ('pending', 'retrying') AND e.available_at <= clock.at)
           OR (e.status = 'running' AND e.lease_token = @lease_token AND e.worker_id = @worker_id))
      AND (e.concurrency_limit = 0 OR e.status = 'running')
      AND e.cancel_requested_at IS NULL
      AND EXISTS (SELECT 1 FROM workers w WHERE w.id = @worker_id AND NOT w.dead AND w.expires_at > clock.at)
    FOR UPDATE OF e SKIP LOCKED
)
UPDATE active_executions e SET
    status = 'running', attempt = e.attempt + (e.status <> 'running')::int, worker_id = @worker_id, lease_token = @lease_token,
    started_at = coalesce(e.started_at, clock.at), attempt_started_at = clock.at,
    deadline_at = clock.at + make_interval(secs => e.timeout_ms / 1000.0 + 5),
    sweep_at = least(e.sweep_at, clock.at + interval '5 seconds')
FROM clock
WHERE e.id = ANY (ARRAY(SELECT l.id FROM locked l))
RETURNING e.id, e.tenant_id, e.job_id, e.job_version, e.scheduled_at, e.trigger_type, e.job_type, e.priority, e.parameters,
          e.attempt, e.max_attempts, e.lease_token, e.timeout_ms, clock.at::timestamptz AS claimed_at,
          CASE WHEN e.attempt = 1 AND e.trigger_type = 'scheduled' THEN e.scheduled_at ELSE e.available_at END::timestamptz AS due_at;

-- name: ListGatedJobs :many
-- Cross-tenant: the worker. Of what a claim left, the jobs whose runs wait for
-- a place.
SELECT DISTINCT e.job_id FROM active_executions e
WHERE e.id = ANY (@ids::uuid[]) AND e.concurrency_limit > 0 AND e.status IN ('pending', 'retrying')
  AND e.available_at <= coalesce(sqlc.narg(now)::timestamptz, now()) AND e.cancel_requested_at IS NULL
ORDER BY e.job_id;

-- name: ClaimGatedExecutions :many
-- Cross-tenant: the worker, in one transaction with and after LockJobs: in one
-- statement the count would be of the snapshot from before the lock and admit
-- too many. A place is taken by what runs and by what had one reserved; a
-- backfill's run takes one that no other run wants. Skips what is locked:
-- another's.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
ranked AS (
    SELECT e.id, row_number() OVER (PARTITION BY e.job_id ORDER BY e.backfill_id IS NOT NULL, e.priority DESC, e.scheduled_at, e.id) AS place,
           e.concurrency_limit - (SELECT count(*) FROM active_executions o
                                  WHERE o.job_id = e.job_id AND (o.status = 'running' OR o.concurrency_limit = 0)) AS free
    FROM active_executions e, clock
    WHERE e.id = ANY (@ids::uuid[]) AND e.status IN ('pending', 'retrying') AND e.available_at <= clock.at
      AND e.concurrency_limit > 0 AND e.cancel_requested_at IS NULL
      AND EXISTS (SELECT 1 FROM workers w WHERE w.id = @worker_id AND NOT w.dead AND w.expires_at > clock.at)
),
locked AS MATERIALIZED (
    SELECT e.id FROM active_executions e
    WHERE e.id = ANY (ARRAY(SELECT r.id FROM ranked r WHERE r.place <= r.free))
      AND e.status IN ('pending', 'retrying') AND e.cancel_requested_at IS NULL
    FOR UPDATE OF e SKIP LOCKED
)
UPDATE active_executions e SET
    status = 'running', attempt = e.attempt + 1, worker_id = @worker_id, lease_token = @lease_token,
    started_at = coalesce(e.started_at, clock.at), attempt_started_at = clock.at,
    deadline_at = clock.at + make_interval(secs => e.timeout_ms / 1000.0 + 5),
    sweep_at = least(e.sweep_at, clock.at + interval '5 seconds')
FROM clock
WHERE e.id = ANY (ARRAY(SELECT l.id FROM locked l))
RETURNING e.id, e.tenant_id, e.job_id, e.job_version, e.scheduled_at, e.trigger_type, e.job_type, e.priority, e.parameters,
          e.attempt, e.max_attempts, e.lease_token, e.timeout_ms, clock.at::timestamptz AS claimed_at,
          CASE WHEN e.attempt = 1 AND e.trigger_type = 'scheduled' THEN e.scheduled_at ELSE e.available_at END::timestamptz AS due_at;

-- name: ListClaimableExecutions :one
-- Cross-tenant: the worker, where hints do not come. What has waited for
-- waited_ms and may start. It locks nothing, the claim decides; each place in
-- the order is moved by up to spread, so that workers that ask at one time ask
-- for different rows. Lanes share as they do in Redis, 6:3:1.
-- What waits is found by its age (every such row has its sweep_at within 60 s,
-- so this walks active_executions_sweep from its low end), and a late and
-- urgent one behind a long queue also from the high end, where rows are made.
-- A run that waits for a place is listed only if one is free, else a full
-- queue of one job would hide everybody. Each look takes the next stretch of
-- jobs, by active_executions_job, and says where the one after it begins.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
oldest AS (
    SELECT e.id, e.priority, e.available_at FROM active_executions e
    WHERE e.sweep_at <= (SELECT at FROM clock) + interval '60 seconds'
      AND e.status IN ('pending', 'retrying') AND e.concurrency_limit = 0 AND e.cancel_requested_at IS NULL
      AND e.available_at <= (SELECT at FROM clock) - interval '1 millisecond' * @waited_ms::int
    ORDER BY e.sweep_at
    LIMIT @window_size::int
),
newest AS (
    SELECT e.id, e.priority, e.available_at FROM active_executions e
    WHERE e.sweep_at <= (SELECT at FROM clock) + interval '5 seconds'
      AND e.status IN ('pending', 'retrying') AND e.concurrency_limit = 0 AND e.cancel_requested_at IS NULL
      AND e.available_at <= (SELECT at FROM clock) - interval '1 millisecond' * @waited_ms::int
    ORDER BY e.sweep_at DESC
    LIMIT @window_size::int
),
stretch AS MATERIALIZED (
    SELECT e.job_id, e.status, e.concurrency_limit FROM active_executions e
    WHERE e.job_id > @after_job::uuid ORDER BY e.job_id LIMIT @window_size::int
),
places AS MATERIALIZED (
    SELECT j.job_id, taken.free
    FROM (SELECT DISTINCT s.job_id FROM stretch s WHERE s.concurrency_limit > 0 AND s.status <> 'running') j
    CROSS JOIN LATERAL (
        SELECT max(e.concurrency_limit) - count(*) FILTER (WHERE e.status = 'running' OR e.concurrency_limit = 0) AS free
        FROM active_executions e WHERE e.job_id = j.job_id
    ) taken
),
placed AS (
    SELECT w.id, w.priority, w.available_at
    FROM places p CROSS JOIN LATERAL (
        SELECT e.id, e.priority, e.available_at FROM active_executions e
        WHERE e.job_id = p.job_id AND e.concurrency_limit > 0 AND e.status IN ('pending', 'retrying') AND e.cancel_requested_at IS NULL
          AND e.available_at <= (SELECT at FROM clock) - interval '1 millisecond' * @waited_ms::int
        ORDER BY e.backfill_id IS NOT NULL, e.priority DESC, e.scheduled_at, e.id
        LIMIT greatest(p.free, 0)
    ) w
),
found AS (SELECT id, priority, available_at FROM oldest UNION SELECT id, priority, available_at FROM newest
          UNION SELECT id, priority, available_at FROM placed),
aged AS (
    SELECT f.id, lane.weight,
           row_number() OVER (PARTITION BY lane.weight ORDER BY f.available_at, f.id) + random() * @spread::int AS place
    FROM found f CROSS JOIN LATERAL (SELECT CASE WHEN f.priority >= 7 THEN 6 WHEN f.priority >= 3 THEN 3 ELSE 1 END AS weight) lane
),
shared AS (
    SELECT a.id, row_number() OVER (PARTITION BY a.weight ORDER BY a.place)::float8 / a.weight AS turn FROM aged a
)
SELECT ARRAY(SELECT s.id FROM shared s ORDER BY s.turn LIMIT @batch_size::int)::uuid[] AS ids,
       coalesce((SELECT l.job_id FROM (SELECT s.job_id, row_number() OVER (ORDER BY s.job_id) AS n FROM stretch s) l WHERE l.n = @window_size::int),
                '00000000-0000-0000-0000-000000000000')::uuid AS next_after;

-- name: CountActiveByJobs :many
-- Cross-tenant: the promoter, for jobs whose rows it holds locked; and for one
-- job the trigger, likewise. Places taken or reserved, and runs that wait. What
-- waits of a backfill counts as neither: it would have due instants skipped.
SELECT e.job_id, count(*) FILTER (WHERE e.status = 'running' OR e.concurrency_limit = 0) AS taken,
       count(*) FILTER (WHERE e.status <> 'running' AND e.concurrency_limit > 0 AND e.backfill_id IS NULL) AS waiting
FROM active_executions e WHERE e.job_id = ANY (@job_ids::uuid[]) GROUP BY e.job_id;

-- name: CompleteExecutions :many
-- Cross-tenant: the worker. Fenced on (attempt, lease token): a row that is no
-- longer this attempt's is not touched and not returned. Ends what is over by
-- moving it to the history, sends the rest back with its backoff; a requested
-- end wins over any outcome. retry_ms < 0 means "over". Locked in id order,
-- never skipped: an outcome must land. The parts run on one snapshot and each
-- row is touched by one of them.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
done AS (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@attempts::int[]) AS attempt, unnest(@lease_tokens::uuid[]) AS lease_token,
           unnest(@succeeded::boolean[]) AS succeeded, unnest(@retry_ms::bigint[]) AS retry_ms,
           unnest(@durations_ms::bigint[]) AS duration_ms, unnest(@results::text[]) AS result,
           unnest(@error_types::text[]) AS error_type, unnest(@error_messages::text[]) AS error_message, unnest(@error_stacks::text[]) AS error_stack,
           unnest(@memory_mb::real[]) AS memory_mb, unnest(@cpu_ms::bigint[]) AS cpu_ms
),
locked AS MATERIALIZED (
    SELECT e.id, e.scheduled_at, e.tenant_id, e.job_id, e.job_version, e.trigger_type, e.triggered_by, e.job_type, e.priority, e.parameters,
           e.attempt, e.max_attempts, e.attempts, e.worker_id, e.lease_token, e.started_at, e.attempt_started_at, e.created_at, e.progress, e.backfill_id,
           e.concurrency_limit, d.succeeded, d.retry_ms, d.duration_ms, d.result, d.error_type, d.error_message, d.error_stack, d.memory_mb, d.cpu_ms,
           CASE WHEN e.cancel_requested_at IS NOT NULL THEN 'cancelled'
                WHEN d.succeeded THEN 'completed'
                WHEN d.retry_ms < 0 OR e.attempt >= e.max_attempts THEN 'failed'
                ELSE 'retrying' END AS verdict
    FROM (SELECT * FROM done ORDER BY id) d CROSS JOIN LATERAL (
        SELECT * FROM active_executions r
        WHERE r.id = d.id AND r.status = 'running' AND r.attempt = d.attempt AND r.lease_token = d.lease_token
        FOR UPDATE
    ) e
),
moved AS (
    DELETE FROM active_executions e WHERE e.id = ANY (ARRAY(SELECT l.id FROM locked l WHERE l.verdict <> 'retrying'))
),
recorded AS (
    INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
                                status, reason, attempt, max_attempts, progress, attempts, worker_id, lease_token, backfill_id, started_at, completed_at,
                                duration_ms, result, error_type, error_message, error_stack, memory_peak_mb, cpu_time_ms, created_at)
    SELECT l.id, l.scheduled_at, l.tenant_id, l.job_id, l.job_version, l.trigger_type, l.triggered_by, l.job_type, l.priority, l.parameters,
           l.verdict, CASE WHEN l.verdict = 'cancelled' THEN 'cancelled while running' ELSE '' END,
           l.attempt, l.max_attempts, CASE WHEN l.verdict = 'completed' THEN 100 ELSE l.progress END,
           l.attempts, l.worker_id, l.lease_token, l.backfill_id, l.started_at, clock.at,
           l.duration_ms, nullif(l.result, '')::jsonb, nullif(l.error_type, ''), nullif(l.error_message, ''), nullif(l.error_stack, ''),
           nullif(l.memory_mb, 0), nullif(l.cpu_ms, 0), l.created_at
    FROM locked l, clock WHERE l.verdict <> 'retrying'
    ON CONFLICT (id, scheduled_at) DO NOTHING
),
again AS (
    UPDATE active_executions e SET
        status = 'retrying', worker_id = NULL, lease_token = NULL, deadline_at = NULL, dispatch_seq = 0,
        available_at = clock.at + make_interval(secs => l.retry_ms / 1000.0),
        sweep_at = clock.at + make_interval(secs => l.retry_ms / 1000.0 + 3),
        attempts = e.attempts || jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
            'number', l.attempt, 'startedAt', l.attempt_started_at, 'endedAt', clock.at, 'workerId', l.worker_id,
            'error', jsonb_build_object('type', l.error_type, 'message', l.error_message, 'stack', nullif(l.error_stack, '')))))
    FROM locked l, clock
    WHERE e.id = ANY (ARRAY(SELECT a.id FROM locked a WHERE a.verdict = 'retrying')) AND e.id = l.id
)
SELECT l.id, l.verdict::text AS verdict, l.job_type,
       -- Whose turn it is now: as many as could have a place.
       ARRAY(SELECT w.id FROM active_executions w
             WHERE w.job_id = l.job_id AND w.concurrency_limit > 0 AND w.status IN ('pending', 'retrying') AND w.id <> l.id
             ORDER BY w.backfill_id IS NOT NULL, w.priority DESC, w.scheduled_at, w.id
             LIMIT greatest(l.concurrency_limit, 1))::uuid[] AS next_ids
FROM locked l;

-- name: ReleaseExecutions :many
-- Cross-tenant: the worker gives back what it will not run: a drain, or rows
-- that the database says it runs and it does not. Fenced as a completion is.
-- The attempt stays counted and one more is allowed instead. What is to be
-- cancelled does not wait again, nobody would claim it: it runs nowhere, and the
-- sweeper ends it.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
given AS (SELECT unnest(@ids::uuid[]) AS id, unnest(@lease_tokens::uuid[]) AS lease_token),
locked AS MATERIALIZED (
    SELECT e.id FROM (SELECT * FROM given ORDER BY id) g CROSS JOIN LATERAL (
        SELECT r.id FROM active_executions r
        WHERE r.id = g.id AND r.status = 'running' AND r.lease_token = g.lease_token
        FOR UPDATE
    ) e
)
UPDATE active_executions e SET
    status = CASE WHEN e.cancel_requested_at IS NULL THEN 'pending' ELSE 'running' END, worker_id = NULL, lease_token = NULL, deadline_at = NULL, dispatch_seq = 0,
    max_attempts = e.max_attempts + 1, available_at = clock.at, sweep_at = clock.at + interval '5 seconds'
FROM clock WHERE e.id = ANY (ARRAY(SELECT l.id FROM locked l))
RETURNING e.id, e.priority;

-- name: ListHeldExecutions :many
-- Cross-tenant: the worker's heartbeat. What the database says this worker
-- runs. Walks active_executions_sweep: whatever runs has its sweep_at within
-- 5 s of its claim.
SELECT id, lease_token, attempt, (cancel_requested_at IS NOT NULL)::boolean AS cancelling
FROM active_executions
WHERE sweep_at <= coalesce(sqlc.narg(now)::timestamptz, now()) + interval '5 seconds'
  AND status = 'running' AND worker_id = @worker_id;

-- name: ReclaimExecutions :many
-- Cross-tenant: the sweeper. What runs on a dead worker, or past its deadline,
-- is handed on, or ended when it must not be tried again. A lost worker is not
-- the job's fault: it costs no retry, but a run may lose only max_lost of
-- them, so that one that kills its worker is bounded. Skips what is locked: a
-- completion that is under way, or another sweeper.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
lost AS MATERIALIZED (
    SELECT e.id, e.scheduled_at, e.tenant_id, e.job_id, e.job_version, e.trigger_type, e.triggered_by, e.job_type, e.priority, e.parameters,
           e.attempt, e.max_attempts, e.attempts, e.worker_id, e.lease_token, e.started_at, e.attempt_started_at, e.created_at, e.progress, e.backfill_id,
           (w.id IS NULL OR w.dead) AS worker_lost,
           CASE WHEN e.cancel_requested_at IS NOT NULL THEN 'cancelled'
                WHEN w.id IS NULL OR w.dead THEN CASE WHEN e.lost_count + 1 < @max_lost::int THEN 'pending' ELSE 'failed' END
                WHEN e.attempt >= e.max_attempts THEN 'failed'
                ELSE 'pending' END AS verdict
    FROM active_executions e LEFT JOIN workers w ON w.id = e.worker_id, clock
    WHERE e.sweep_at <= clock.at + interval '5 seconds' AND e.status = 'running'
      AND (w.id IS NULL OR w.dead OR e.deadline_at < clock.at)
    ORDER BY e.id
    LIMIT @batch_size
    FOR UPDATE OF e SKIP LOCKED
),
moved AS (
    DELETE FROM active_executions e WHERE e.id = ANY (ARRAY(SELECT l.id FROM lost l WHERE l.verdict <> 'pending'))
),
recorded AS (
    INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
                                status, reason, attempt, max_attempts, progress, attempts, worker_id, lease_token, backfill_id, started_at, completed_at,
                                duration_ms, error_type, error_message, created_at)
    SELECT l.id, l.scheduled_at, l.tenant_id, l.job_id, l.job_version, l.trigger_type, l.triggered_by, l.job_type, l.priority, l.parameters,
           l.verdict, CASE WHEN l.verdict = 'cancelled' THEN 'cancelled while running' ELSE '' END,
           l.attempt, l.max_attempts, l.progress, l.attempts, l.worker_id, l.lease_token, l.backfill_id, l.started_at, clock.at,
           (extract(epoch FROM clock.at - l.attempt_started_at) * 1000)::bigint,
           CASE WHEN l.verdict = 'cancelled' THEN NULL WHEN l.worker_lost THEN 'SYSTEM_ERROR' ELSE 'TIMEOUT' END,
           CASE WHEN l.verdict = 'cancelled' THEN NULL WHEN l.worker_lost THEN 'the worker was lost during the run, too often to try again'
                ELSE 'the run passed its deadline and its worker did not end it' END,
           l.created_at
    FROM lost l, clock WHERE l.verdict <> 'pending'
    ON CONFLICT (id, scheduled_at) DO NOTHING
),
again AS (
    UPDATE active_executions e SET
        status = 'pending', worker_id = NULL, lease_token = NULL, deadline_at = NULL, dispatch_seq = 0,
        max_attempts = e.max_attempts + l.worker_lost::int, lost_count = e.lost_count + l.worker_lost::int,
        available_at = clock.at, sweep_at = clock.at + interval '5 seconds',
        attempts = e.attempts || jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
            'number', l.attempt, 'startedAt', l.attempt_started_at, 'endedAt', clock.at, 'workerId', l.worker_id,
            'error', jsonb_build_object('type', CASE WHEN l.worker_lost THEN 'SYSTEM_ERROR' ELSE 'TIMEOUT' END,
                                        'message', CASE WHEN l.worker_lost THEN 'the worker was lost during the run'
                                                        ELSE 'the run passed its deadline and its worker did not end it' END))))
    FROM lost l, clock
    WHERE e.id = ANY (ARRAY(SELECT a.id FROM lost a WHERE a.verdict = 'pending')) AND e.id = l.id
)
SELECT l.id, l.priority, l.job_type, l.verdict::text AS verdict, l.worker_lost::boolean AS worker_lost FROM lost l;

-- name: RedispatchExecutions :many
-- Cross-tenant: the sweeper. What waits although its hint should have come by
-- now gets another, at a growing distance: 5, 10, 20, 40, then 60 s.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
late AS MATERIALIZED (
    SELECT e.id FROM active_executions e, clock
    WHERE e.sweep_at <= clock.at AND e.status IN ('pending', 'retrying') AND e.available_at <= clock.at
    ORDER BY e.sweep_at
    LIMIT @batch_size
    FOR UPDATE OF e SKIP LOCKED
)
UPDATE active_executions e SET
    dispatch_seq = least(e.dispatch_seq + 1, 30),
    sweep_at = clock.at + least(interval '5 seconds' * (1 << least(e.dispatch_seq, 4)), interval '60 seconds')
FROM clock WHERE e.id = ANY (ARRAY(SELECT l.id FROM late l))
RETURNING e.id, e.priority;

-- name: ExpediteExecutions :execrows
-- Cross-tenant: the sweeper, when Redis lost what it held: whatever waits is
-- due for a new hint now. Skips what is locked: it is being claimed.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
waiting AS MATERIALIZED (
    SELECT e.id FROM active_executions e, clock
    WHERE e.status IN ('pending', 'retrying') AND e.sweep_at > clock.at
    FOR UPDATE OF e SKIP LOCKED
)
UPDATE active_executions e SET sweep_at = greatest(clock.at, e.available_at), dispatch_seq = 0
FROM clock WHERE e.id = ANY (ARRAY(SELECT w.id FROM waiting w));

-- name: CancelWaitingByJob :execrows
-- Ends what waits of one job, but where it is asked to spare backfills.
-- Everything of the job that is not over is locked first, in id order, and only
-- then asked whether it waits: an attempt whose failure is just being written
-- waits after that, and one that is just being claimed runs. What runs stays
-- locked, so that a RequestCancelByJob in the same transaction finds it.
WITH locked AS MATERIALIZED (
    SELECT e.* FROM active_executions e
    WHERE e.tenant_id = @tenant_id AND e.job_id = @job_id
    ORDER BY e.id FOR UPDATE
),
waiting AS MATERIALIZED (
    SELECT l.* FROM locked l WHERE l.status IN ('pending', 'retrying')
      AND (l.backfill_id IS NULL OR NOT @spare_backfills::boolean)
),
moved AS (DELETE FROM active_executions e WHERE e.id = ANY (ARRAY(SELECT w.id FROM waiting w)))
INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
                            status, reason, attempt, max_attempts, progress, attempts, backfill_id, started_at, completed_at, created_at)
SELECT w.id, w.scheduled_at, w.tenant_id, w.job_id, w.job_version, w.trigger_type, w.triggered_by, w.job_type, w.priority, w.parameters,
       'cancelled', @reason::text, w.attempt, w.max_attempts, w.progress, w.attempts, w.backfill_id, w.started_at, @now::timestamptz, w.created_at
FROM waiting w
ON CONFLICT (id, scheduled_at) DO NOTHING;

-- name: RequestCancelByJob :execrows
-- Asks for the end of what runs of one job: the heartbeat of its worker, the
-- completion and the sweeper all look at the mark under the row's lock.
UPDATE active_executions SET cancel_requested_at = @now::timestamptz
WHERE tenant_id = @tenant_id AND job_id = @job_id AND status = 'running' AND cancel_requested_at IS NULL;

-- name: CountActiveExecutions :many
-- Cross-tenant: the service's gauges.
SELECT priority, count(*) FILTER (WHERE status = 'running') AS running, count(*) FILTER (WHERE status <> 'running') AS waiting
FROM active_executions GROUP BY priority;

-- name: LockExecution :one
-- One run that is not over, locked: a claim or an outcome that is just being
-- written comes before, or after. No row where it is over.
SELECT status, job_id, scheduled_at FROM active_executions WHERE tenant_id = @tenant_id AND id = @id FOR UPDATE;

-- name: CancelWaitingExecution :execrows
-- Ends one run that waits, for a row that the caller holds locked.
WITH waiting AS MATERIALIZED (
    SELECT e.* FROM active_executions e
    WHERE e.tenant_id = @tenant_id AND e.id = @id AND e.status IN ('pending', 'retrying')
),
moved AS (DELETE FROM active_executions e WHERE e.id = ANY (ARRAY(SELECT w.id FROM waiting w)))
INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
                            status, reason, attempt, max_attempts, progress, attempts, backfill_id, started_at, completed_at, created_at)
SELECT w.id, w.scheduled_at, w.tenant_id, w.job_id, w.job_version, w.trigger_type, w.triggered_by, w.job_type, w.priority, w.parameters,
       'cancelled', @reason::text, w.attempt, w.max_attempts, w.progress, w.attempts, w.backfill_id, w.started_at, @now::timestamptz, w.created_at
FROM waiting w
ON CONFLICT (id, scheduled_at) DO NOTHING;

-- name: RequestCancelExecution :exec
-- Asks for the end of one run, as RequestCancelByJob does. A second request
-- keeps the instant of the first.
UPDATE active_executions SET cancel_requested_at = @now::timestamptz
WHERE tenant_id = @tenant_id AND id = @id AND status = 'running' AND cancel_requested_at IS NULL;

-- name: ListNextInLine :many
-- Whose turn it is when a place of a job was freed other than by an outcome; a
-- hint only, the claim counts. Walks active_executions_job.
SELECT id, priority FROM active_executions
WHERE tenant_id = @tenant_id AND job_id = @job_id AND concurrency_limit > 0 AND status IN ('pending', 'retrying')
ORDER BY backfill_id IS NOT NULL, priority DESC, scheduled_at, id LIMIT @page_size;

-- name: ListCancelledRuns :many
-- Cross-tenant: the worker, between two heartbeats. Which of its runs somebody
-- wants to end; walks active_executions_cancelling, which is empty most of the
-- time.
SELECT id, lease_token FROM active_executions
WHERE cancel_requested_at IS NOT NULL AND status = 'running' AND worker_id = @worker_id;
