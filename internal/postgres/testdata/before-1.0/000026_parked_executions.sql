-- Executions whose end the database refuses are parked. Lock: ACCESS EXCLUSIVE
-- on active_executions while the rows are checked against the new status, and
-- for the moment of adding columns without defaults. Duration: instant, as the
-- table holds what is not finished.

-- +goose Up
-- A parked execution runs no more, and its end waits to be stored. It holds no
-- worker slot, no concurrency slot (concurrency_limit is -1 less what it was, so
-- that no count takes it for one that waits or has its place), no key and no
-- place in a running count; nobody claims or polls it. sweep_at is when its end
-- is tried again, parked_outcome the JSON of its end as text, because what the
-- database refuses as jsonb it must still keep.
ALTER TABLE active_executions
    ADD COLUMN parked_at timestamptz, ADD COLUMN parked_reason text, ADD COLUMN parked_outcome text,
    DROP CONSTRAINT active_executions_status_check,
    ADD CONSTRAINT active_executions_status_check CHECK (status IN ('pending', 'running', 'retrying', 'parked'));
-- Its condition is over a column that a claim leaves alone: claims stay HOT.
CREATE INDEX active_executions_parked ON active_executions (tenant_id, sweep_at) WHERE parked_at IS NOT NULL;

CREATE OR REPLACE VIEW executions WITH (security_invoker = true) AS
SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
       (CASE WHEN status = 'parked' THEN 'pending' ELSE status END)::text AS status,
       coalesce(parked_reason, cancel_reason, '') AS reason, NULL::bigint AS missed_count, NULL::timestamptz AS missed_until,
       attempt, max_attempts, progress, attempts, worker_id, started_at,
       NULL::timestamptz AS completed_at, NULL::bigint AS duration_ms, NULL::jsonb AS result,
       NULL::text AS error_type, NULL::text AS error_message, NULL::text AS error_stack,
       NULL::real AS memory_peak_mb, NULL::bigint AS cpu_time_ms, created_at,
       CASE WHEN status NOT IN ('running', 'parked') THEN available_at END AS available_at, cancel_requested_at, backfill_id,
       coalesce(cancelled_by, '') AS cancelled_by
FROM active_executions
UNION ALL
SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
       status, reason, missed_count, missed_until,
       attempt, max_attempts, progress, attempts, worker_id, started_at,
       completed_at, duration_ms, result,
       CASE WHEN status <> 'cancelled' THEN error_type END, CASE WHEN status <> 'cancelled' THEN error_message END,
       CASE WHEN status <> 'cancelled' THEN error_stack END,
       memory_peak_mb, cpu_time_ms, created_at,
       NULL::timestamptz AS available_at, NULL::timestamptz AS cancel_requested_at, backfill_id, cancelled_by
FROM job_executions;

-- +goose Down
CREATE OR REPLACE VIEW executions WITH (security_invoker = true) AS
SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
       status, coalesce(cancel_reason, '') AS reason, NULL::bigint AS missed_count, NULL::timestamptz AS missed_until,
       attempt, max_attempts, progress, attempts, worker_id, started_at,
       NULL::timestamptz AS completed_at, NULL::bigint AS duration_ms, NULL::jsonb AS result,
       NULL::text AS error_type, NULL::text AS error_message, NULL::text AS error_stack,
       NULL::real AS memory_peak_mb, NULL::bigint AS cpu_time_ms, created_at,
       CASE WHEN status <> 'running' THEN available_at END AS available_at, cancel_requested_at, backfill_id,
       coalesce(cancelled_by, '') AS cancelled_by
FROM active_executions
UNION ALL
SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
       status, reason, missed_count, missed_until,
       attempt, max_attempts, progress, attempts, worker_id, started_at,
       completed_at, duration_ms, result,
       CASE WHEN status <> 'cancelled' THEN error_type END, CASE WHEN status <> 'cancelled' THEN error_message END,
       CASE WHEN status <> 'cancelled' THEN error_stack END,
       memory_peak_mb, cpu_time_ms, created_at,
       NULL::timestamptz AS available_at, NULL::timestamptz AS cancel_requested_at, backfill_id, cancelled_by
FROM job_executions;
-- The version before does not know the status and runs what is parked again.
DROP INDEX active_executions_parked;
ALTER TABLE active_executions NO FORCE ROW LEVEL SECURITY;
UPDATE active_executions SET status = 'retrying', concurrency_limit = -1 - concurrency_limit, available_at = now(), sweep_at = now(),
       worker_id = NULL, lease_token = NULL
WHERE status = 'parked';
ALTER TABLE active_executions FORCE ROW LEVEL SECURITY;
ALTER TABLE active_executions
    DROP CONSTRAINT active_executions_status_check,
    ADD CONSTRAINT active_executions_status_check CHECK (status IN ('pending', 'running', 'retrying')),
    DROP COLUMN parked_at, DROP COLUMN parked_reason, DROP COLUMN parked_outcome;
