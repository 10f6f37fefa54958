-- name: ReassignExecutions :many
-- Cross-tenant: the sweeper. Executions that run on a dead worker, or past their
-- deadline, are pending again, or end where they must not be tried again. A lost worker
-- is not the job's fault: it costs no retry, but a run may lose only max_lost of
-- them, so that one that kills its worker is bounded. Skips locked rows: a
-- completion that is under way, or another sweeper. A reassigned execution is in the
-- pool at once: the fault that took its worker may take its hint too. With ids, it takes
-- these alone: the caller divides what the database refuses. Of a range with two ends the
-- planner expects few rows, and so walks active_executions_sweep however many wait.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
lost AS MATERIALIZED (
    SELECT e.id, e.scheduled_at, e.tenant_id, e.job_id, e.job_version, e.trigger_type, e.triggered_by, e.job_type, e.priority, e.parameters,
           e.attempt, e.max_attempts, e.attempts, e.worker_id, e.lease_token, e.started_at, e.attempt_started_at, e.created_at, e.progress, e.backfill_id, e.concurrency_key,
           coalesce(e.cancel_reason, o.reason) AS cancel_reason, coalesce(e.cancelled_by, o.cancelled_by) AS cancelled_by, (w.id IS NULL OR w.dead) AS worker_lost,
           CASE WHEN e.cancel_requested_at IS NOT NULL OR o.reason IS NOT NULL THEN 'cancelled'
                WHEN w.id IS NULL OR w.dead THEN CASE WHEN e.lost_count + 1 < @max_lost::int THEN 'pending' ELSE 'failed' END
                WHEN e.attempt >= e.max_attempts THEN 'failed'
                ELSE 'pending' END AS verdict
    FROM active_executions e LEFT JOIN workers w ON w.id = e.worker_id
    LEFT JOIN LATERAL (
        SELECT c.reason, c.cancelled_by FROM cancellations c
        WHERE e.cancel_requested_at IS NULL
          AND c.job_id = e.job_id AND c.generation >= e.generation AND NOT (c.spare_backfills AND e.backfill_id IS NOT NULL)
        ORDER BY c.generation LIMIT 1
    ) o ON true, clock
    WHERE e.sweep_at BETWEEN '-infinity' AND (SELECT at FROM clock) + interval '5 seconds' AND e.status = 'running'
      AND (w.id IS NULL OR w.dead OR e.deadline_at < clock.at)
      AND (sqlc.narg(ids)::uuid[] IS NULL OR e.id = ANY (sqlc.narg(ids)::uuid[]))
    ORDER BY uuid_send(e.id)
    LIMIT @batch_size
    FOR UPDATE OF e SKIP LOCKED
),
moved AS (
    DELETE FROM active_executions e WHERE e.id = ANY (ARRAY(SELECT l.id FROM lost l WHERE l.verdict <> 'pending'))
),
recorded AS (
    INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
                                status, reason, attempt, max_attempts, progress, attempts, worker_id, lease_token, backfill_id, started_at, completed_at,
                                duration_us, attempt_started_at, error_type, error_message, cancelled_by, created_at)
    SELECT l.id, l.scheduled_at, l.tenant_id, l.job_id, l.job_version, l.trigger_type, l.triggered_by, l.job_type, l.priority, l.parameters,
           l.verdict, CASE WHEN l.verdict = 'cancelled' THEN coalesce(l.cancel_reason, 'cancelled while running') ELSE '' END,
           l.attempt, l.max_attempts, l.progress, l.attempts, l.worker_id, l.lease_token, l.backfill_id, l.started_at, clock.at,
           (extract(epoch FROM clock.at - l.attempt_started_at) * 1000000)::bigint, CASE WHEN l.attempt > 1 THEN l.attempt_started_at END,
           CASE WHEN l.verdict = 'cancelled' THEN NULL WHEN l.worker_lost THEN 'SYSTEM_ERROR' ELSE 'TIMEOUT' END,
           CASE WHEN l.verdict = 'cancelled' THEN NULL WHEN l.worker_lost THEN 'the worker was lost during the run, too often to try again'
                ELSE 'the run passed its deadline and its worker did not end it' END,
           CASE WHEN l.verdict = 'cancelled' THEN coalesce(l.cancelled_by, '') ELSE '' END, l.created_at
    FROM lost l, clock WHERE l.verdict <> 'pending'
    ON CONFLICT DO NOTHING
),
again AS (
    UPDATE active_executions e SET
        status = 'pending', worker_id = NULL, lease_token = NULL, deadline_at = NULL,
        max_attempts = e.max_attempts + l.worker_lost::int, lost_count = e.lost_count + l.worker_lost::int,
        available_at = clock.at, pooled = (e.concurrency_limit = 0 AND e.concurrency_key IS NULL), sweep_at = 'infinity',
        attempts = e.attempts || jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
            'number', l.attempt, 'startedAt', l.attempt_started_at, 'endedAt', clock.at, 'workerId', l.worker_id,
            'error', jsonb_build_object('type', CASE WHEN l.worker_lost THEN 'SYSTEM_ERROR' ELSE 'TIMEOUT' END,
                                        'message', CASE WHEN l.worker_lost THEN 'the worker was lost during the run'
                                                        ELSE 'the run passed its deadline and its worker did not end it' END))))
    FROM lost l, clock
    WHERE e.id = ANY (ARRAY(SELECT a.id FROM lost a WHERE a.verdict = 'pending')) AND e.id = l.id
),
ended AS MATERIALIZED (
    SELECT (r.tenant)::uuid AS tenant
    FROM end_runs(ARRAY(SELECT l.tenant_id FROM lost l), ARRAY(SELECT l.job_type FROM lost l), ARRAY(SELECT l.worker_id FROM lost l), ARRAY(SELECT l.id FROM lost l WHERE l.concurrency_key IS NOT NULL)) r
)
-- The join is what has end_runs called.
SELECT l.id, l.tenant_id, l.concurrency_key, l.priority, l.job_type, l.verdict::text AS verdict, l.worker_lost::boolean AS worker_lost
FROM lost l LEFT JOIN ended n ON n.tenant = l.tenant_id;

-- name: ListLostExecutions :many
-- Cross-tenant: the sweeper, where the database refuses one of those that
-- ReassignExecutions finds: any of them, so that none is always behind others.
SELECT e.id, e.tenant_id, e.job_id FROM active_executions e LEFT JOIN workers w ON w.id = e.worker_id
CROSS JOIN (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at) clock
WHERE e.sweep_at <= clock.at + interval '5 seconds' AND e.status = 'running'
  AND (w.id IS NULL OR w.dead OR e.deadline_at < clock.at)
ORDER BY random() LIMIT @batch_size;
