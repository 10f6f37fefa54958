-- One view over what is pending, running and over. Lock: none. Duration:
-- instant.
--
-- security_invoker: the reader's own policies apply, not the owner's.

-- +goose Up
CREATE VIEW executions WITH (security_invoker = true) AS
SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
       status, ''::text AS reason, NULL::bigint AS missed_count, NULL::timestamptz AS missed_until,
       attempt, max_attempts, progress, attempts, worker_id, started_at,
       NULL::timestamptz AS completed_at, NULL::bigint AS duration_ms, NULL::jsonb AS result,
       NULL::text AS error_type, NULL::text AS error_message, NULL::text AS error_stack,
       NULL::real AS memory_peak_mb, NULL::bigint AS cpu_time_ms, created_at,
       CASE WHEN status <> 'running' THEN available_at END AS available_at, cancel_requested_at
FROM active_executions
UNION ALL
SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
       status, reason, missed_count, missed_until,
       attempt, max_attempts, progress, attempts, worker_id, started_at,
       completed_at, duration_ms, result,
       error_type, error_message, error_stack,
       memory_peak_mb, cpu_time_ms, created_at,
       NULL::timestamptz AS available_at, NULL::timestamptz AS cancel_requested_at
FROM job_executions;
GRANT SELECT ON executions TO scheduler_api, scheduler_engine;

-- +goose Down
DROP VIEW executions;
