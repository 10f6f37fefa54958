-- Who cancelled a run and why, and the versions of tenants. Lock: ACCESS
-- EXCLUSIVE on active_executions, job_executions (with its partitions) and
-- tenants for the moment of adding columns whose defaults need no rewrite.
-- Duration: instant.

-- +goose Up
-- NULL until somebody asks, and of one who asked before this migration.
ALTER TABLE active_executions ADD COLUMN cancel_reason text, ADD COLUMN cancelled_by text;
ALTER TABLE job_executions ADD COLUMN cancelled_by text NOT NULL DEFAULT '';

-- Counts the changes of what is said of a tenant; not those of its status.
ALTER TABLE tenants ADD COLUMN version integer NOT NULL DEFAULT 1;
GRANT UPDATE (version) ON tenants TO scheduler_api;

-- Columns are only added, so that those who read the view go on. What a
-- cancelled run's last attempt came to is no error of the run: rows from before
-- have one.
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

-- +goose Down
DROP VIEW executions;
CREATE VIEW executions WITH (security_invoker = true) AS
SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
       status, ''::text AS reason, NULL::bigint AS missed_count, NULL::timestamptz AS missed_until,
       attempt, max_attempts, progress, attempts, worker_id, started_at,
       NULL::timestamptz AS completed_at, NULL::bigint AS duration_ms, NULL::jsonb AS result,
       NULL::text AS error_type, NULL::text AS error_message, NULL::text AS error_stack,
       NULL::real AS memory_peak_mb, NULL::bigint AS cpu_time_ms, created_at,
       CASE WHEN status <> 'running' THEN available_at END AS available_at, cancel_requested_at, backfill_id
FROM active_executions
UNION ALL
SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
       status, reason, missed_count, missed_until,
       attempt, max_attempts, progress, attempts, worker_id, started_at,
       completed_at, duration_ms, result,
       error_type, error_message, error_stack,
       memory_peak_mb, cpu_time_ms, created_at,
       NULL::timestamptz AS available_at, NULL::timestamptz AS cancel_requested_at, backfill_id
FROM job_executions;
GRANT SELECT ON executions TO scheduler_api, scheduler_engine;
ALTER TABLE tenants DROP COLUMN version;
ALTER TABLE job_executions DROP COLUMN cancelled_by;
ALTER TABLE active_executions DROP COLUMN cancelled_by, DROP COLUMN cancel_reason;
