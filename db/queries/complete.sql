-- name: CompleteExecutions :many
-- Cross-tenant: the worker. Fenced on (attempt, lease token): a row that is no
-- longer this attempt's is not touched and not returned. Moves finished executions to
-- the history and sends the others back with their backoff; a requested end wins over
-- any outcome, and leaves no error. retry_ms < 0: no further attempt. Locks in id order
-- and skips nothing: an outcome must land. A row that has its outcome already (an earlier
-- promotion recorded the time as skipped), or gets it at this moment, refuses the batch. It is
-- then repeated with look_up, and such a row is only removed. Looking always would have
-- each statement lock all partitions of the history, and ON CONFLICT would cost each outcome 50 B of WAL.
-- The parts run on one snapshot and each row is touched by one of them. The counts of the tenants come last, so that they are
-- locked for as short as can be.
-- Longer than 60 lines: the row as it ends has 30 columns, and everything that an end
-- changes is committed at once and in one round trip.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
done AS (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@attempts::int[]) AS attempt, unnest(@lease_tokens::uuid[]) AS lease_token,
           unnest(@succeeded::boolean[]) AS succeeded, unnest(@retry_ms::bigint[]) AS retry_ms,
           unnest(@durations_us::bigint[]) AS duration_us, unnest(@results::text[]) AS result,
           unnest(@error_types::text[]) AS error_type, unnest(@error_messages::text[]) AS error_message, unnest(@error_stacks::text[]) AS error_stack,
           unnest(@memory_mb::real[]) AS memory_mb, unnest(@cpu_ms::bigint[]) AS cpu_ms
),
locked AS MATERIALIZED (
    SELECT e.id, e.scheduled_at, e.tenant_id, e.job_id, e.job_version, e.trigger_type, e.triggered_by, e.job_type, e.priority, e.parameters,
           e.attempt, e.max_attempts, e.attempts, e.worker_id, e.lease_token, e.started_at, e.attempt_started_at, e.created_at, e.progress, e.backfill_id,
           e.concurrency_limit, e.concurrency_key, coalesce(e.cancel_reason, e.ordered_end[1]) AS cancel_reason, coalesce(e.cancelled_by, e.ordered_end[2]) AS cancelled_by, d.succeeded, d.retry_ms, d.duration_us, d.result, d.error_type, d.error_message, d.error_stack, d.memory_mb, d.cpu_ms,
           CASE WHEN e.cancel_requested_at IS NOT NULL OR e.ordered_end IS NOT NULL THEN 'cancelled'
                WHEN d.succeeded THEN 'completed'
                WHEN d.retry_ms < 0 OR e.attempt >= e.max_attempts THEN 'failed'
                ELSE 'retrying' END AS verdict
    FROM (SELECT * FROM done ORDER BY id) d CROSS JOIN LATERAL (
        -- Asked for each row alone, and only where anything is being cancelled: as a join
        -- it cost a twentieth of the statement.
        SELECT r.*, CASE WHEN r.cancel_requested_at IS NULL AND (SELECT EXISTS (SELECT 1 FROM cancellations)) THEN (
                   SELECT ARRAY[c.reason, c.cancelled_by] FROM cancellations c
                   WHERE c.job_id = r.job_id AND c.generation >= r.generation AND NOT (c.spare_backfills AND r.backfill_id IS NOT NULL)
                   ORDER BY c.generation LIMIT 1) END AS ordered_end
        FROM active_executions r
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
                                duration_us, attempt_started_at, result, error_type, error_message, error_stack, memory_peak_mb, cpu_time_ms, cancelled_by, created_at)
    SELECT l.id, l.scheduled_at, l.tenant_id, l.job_id, l.job_version, l.trigger_type, l.triggered_by, l.job_type, l.priority, l.parameters,
           l.verdict, CASE WHEN l.verdict = 'cancelled' THEN coalesce(l.cancel_reason, 'cancelled while running') ELSE '' END,
           l.attempt, l.max_attempts, CASE WHEN l.verdict = 'completed' THEN 100 ELSE l.progress END,
           l.attempts, l.worker_id, l.lease_token, l.backfill_id, l.started_at, clock.at,
           l.duration_us, CASE WHEN l.attempt > 1 THEN l.attempt_started_at END, nullif(l.result, '')::jsonb, CASE WHEN l.verdict = 'failed' THEN nullif(l.error_type, '') END,
           CASE WHEN l.verdict = 'failed' THEN nullif(l.error_message, '') END, CASE WHEN l.verdict = 'failed' THEN nullif(l.error_stack, '') END,
           nullif(l.memory_mb, 0), nullif(l.cpu_ms, 0), CASE WHEN l.verdict = 'cancelled' THEN coalesce(l.cancelled_by, '') ELSE '' END, l.created_at
    FROM locked l, clock WHERE l.verdict <> 'retrying'
      AND CASE WHEN @look_up::boolean THEN NOT outcome_is_recorded(l.tenant_id, l.job_id, l.id, l.scheduled_at) ELSE true END
    RETURNING id
),
again AS (
    UPDATE active_executions e SET
        status = 'retrying', worker_id = NULL, lease_token = NULL, deadline_at = NULL, pooled = (e.concurrency_limit = 0 AND e.concurrency_key IS NULL),
        available_at = clock.at + make_interval(secs => l.retry_ms / 1000.0), sweep_at = 'infinity',
        attempts = e.attempts || jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
            'number', l.attempt, 'startedAt', l.attempt_started_at, 'endedAt', clock.at, 'durationUs', l.duration_us, 'workerId', l.worker_id,
            'error', jsonb_build_object('type', l.error_type, 'message', l.error_message, 'stack', nullif(l.error_stack, '')))))
    FROM locked l, clock
    WHERE e.id = ANY (ARRAY(SELECT a.id FROM locked a WHERE a.verdict = 'retrying')) AND e.id = l.id
    RETURNING e.id
),
-- PostgreSQL runs a part that writes and that nobody reads at the very end. The
-- condition reads both, so that they are written before the counts are locked.
over AS (
    SELECT array_agg(l.tenant_id) AS tenant_ids, array_agg(l.job_type) AS job_types, array_agg(l.worker_id) AS workers, array_agg(l.id) FILTER (WHERE l.concurrency_key IS NOT NULL) AS keyed_ids
    FROM locked l WHERE (SELECT count(*) FROM recorded) + (SELECT count(*) FROM again) >= 0
),
ended AS MATERIALIZED (
    SELECT (r.tenant)::uuid AS tenant, (r.backlogged_since)::timestamptz AS backlogged_since FROM over o, end_runs(o.tenant_ids, o.job_types, o.workers, o.keyed_ids) r
)
SELECT l.id, l.verdict::text AS verdict, l.job_type, l.tenant_id, l.concurrency_key,
       -- The tenant's limits left something behind lately.
       coalesce(n.backlogged_since > clock.at - interval '2 minutes', false)::boolean AS backlogged,
       -- The next in line, in the row of a job's first end: one execution for each
       -- concurrency slot that its ends free.
       (CASE WHEN l.nth_of_job = 1 AND EXISTS (SELECT 1 FROM active_executions w WHERE w.job_id = l.job_id AND w.awaits_slot OFFSET 0)
             THEN ARRAY(SELECT s.id FROM next_for_slot(l.job_id, @left_types::text[], clock.at, l.slots, 64) s)
             ELSE '{}' END)::uuid[] AS next_ids
FROM (SELECT o.id, o.verdict, o.job_type, o.tenant_id, o.job_id, o.concurrency_key,
             row_number() OVER (PARTITION BY o.job_id ORDER BY o.id) AS nth_of_job,
             (count(*) FILTER (WHERE o.verdict <> 'retrying' OR o.concurrency_limit > 0) OVER (PARTITION BY o.job_id))::int AS slots
      FROM locked o) l
CROSS JOIN clock LEFT JOIN ended n ON n.tenant = l.tenant_id;
