-- Durations with fractions of a millisecond, when the last attempt started, and
-- which execution repeats which. Lock: ACCESS EXCLUSIVE on job_executions and its
-- partitions for the moment of adding columns without defaults; SHARE ROW EXCLUSIVE
-- on scheduled_jobs for the moment of adding a reference to it. Duration: instant.

-- +goose Up
-- duration_us takes the place of duration_ms, which only rows from before have.
-- attempt_started_at is null where the first attempt was the last: that is started_at.
ALTER TABLE job_executions ADD COLUMN duration_us bigint, ADD COLUMN attempt_started_at timestamptz;

-- A table of its own, because history is append-only: the execution that is
-- repeated cannot be changed, and one that repeats another is rare.
CREATE TABLE execution_retries (
    execution_id uuid        PRIMARY KEY,
    tenant_id    uuid        NOT NULL,
    job_id       uuid        NOT NULL REFERENCES scheduled_jobs (id) ON DELETE CASCADE,
    retry_of     uuid        NOT NULL,
    created_at   timestamptz NOT NULL
);
CREATE INDEX execution_retries_of ON execution_retries (retry_of, created_at);
CREATE INDEX execution_retries_job ON execution_retries (job_id);
CREATE INDEX execution_retries_age ON execution_retries (created_at);
ALTER TABLE execution_retries ENABLE ROW LEVEL SECURITY;
ALTER TABLE execution_retries FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON execution_retries TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON execution_retries TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT ON execution_retries TO scheduler_api;
GRANT SELECT, DELETE ON execution_retries TO scheduler_engine;

CREATE OR REPLACE VIEW executions WITH (security_invoker = true) AS
SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
       (CASE WHEN status = 'parked' THEN 'pending' ELSE status END)::text AS status,
       coalesce(parked_reason, cancel_reason, '') AS reason, NULL::bigint AS missed_count, NULL::timestamptz AS missed_until,
       attempt, max_attempts, progress, attempts, worker_id, started_at,
       NULL::timestamptz AS completed_at, NULL::bigint AS duration_ms, NULL::jsonb AS result,
       NULL::text AS error_type, NULL::text AS error_message, NULL::text AS error_stack,
       NULL::real AS memory_peak_mb, NULL::bigint AS cpu_time_ms, created_at,
       CASE WHEN status NOT IN ('running', 'parked') THEN available_at END AS available_at, cancel_requested_at, backfill_id,
       coalesce(cancelled_by, '') AS cancelled_by, NULL::bigint AS duration_us,
       CASE WHEN status = 'running' THEN attempt_started_at END AS attempt_started_at
FROM active_executions
UNION ALL
SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
       status, reason, missed_count, missed_until,
       attempt, max_attempts, progress, attempts, worker_id, started_at,
       completed_at, coalesce(duration_ms, duration_us / 1000) AS duration_ms, result,
       CASE WHEN status <> 'cancelled' THEN error_type END, CASE WHEN status <> 'cancelled' THEN error_message END,
       CASE WHEN status <> 'cancelled' THEN error_stack END,
       memory_peak_mb, cpu_time_ms, created_at,
       NULL::timestamptz AS available_at, NULL::timestamptz AS cancel_requested_at, backfill_id, cancelled_by,
       coalesce(duration_us, duration_ms * 1000) AS duration_us,
       CASE WHEN attempt > 1 THEN attempt_started_at ELSE started_at END AS attempt_started_at
FROM job_executions;

-- +goose Down
DROP VIEW executions;
CREATE VIEW executions WITH (security_invoker = true) AS
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
GRANT SELECT ON executions TO scheduler_api, scheduler_engine;
DROP TABLE execution_retries;
ALTER TABLE job_executions DROP COLUMN duration_us, DROP COLUMN attempt_started_at;
