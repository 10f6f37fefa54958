-- Calendars, overlap, pause and backfills. Lock: ACCESS EXCLUSIVE on
-- scheduled_jobs, active_executions and job_executions for the moment of
-- adding columns with constant defaults (no rewrite). Duration: instant, and
-- the index on job_executions as long as its rows take.

-- +goose Up
CREATE TABLE calendars (
    id          uuid PRIMARY KEY,
    tenant_id   uuid        NOT NULL REFERENCES tenants (id),
    name        text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    description text        NOT NULL DEFAULT '',
    timezone    text        NOT NULL DEFAULT 'UTC',
    -- [{"start": "2026-12-24", "end": "2026-12-27", "yearly": false}, ...]
    days        jsonb       NOT NULL,
    version     integer     NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant_id, name)
);
ALTER TABLE calendars ENABLE ROW LEVEL SECURITY;
ALTER TABLE calendars FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON calendars TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON calendars FOR SELECT TO scheduler_engine USING (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON calendars TO scheduler_api;
GRANT SELECT ON calendars TO scheduler_engine;

ALTER TABLE scheduled_jobs
    ALTER COLUMN overlap_policy SET DEFAULT 'skip',
    ADD COLUMN overlap_queue_limit integer     NOT NULL DEFAULT 100 CHECK (overlap_queue_limit BETWEEN 1 AND 1000),
    -- [{"calendarId": "...", "mode": "exclude"}, ...], at most 10
    ADD COLUMN calendars           jsonb       NOT NULL DEFAULT '[]',
    -- Who set the status, and when; a pause may end by itself.
    ADD COLUMN status_by           text        NOT NULL DEFAULT '',
    ADD COLUMN status_at           timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN paused_until        timestamptz,
    -- What happens to the instants that a pause held back; read by the next
    -- promotion, which clears it.
    ADD COLUMN resume_policy       text CHECK (resume_policy IN ('skip', 'fire_once', 'fire_all')),
    -- What the auditor found last: rows beyond (+) or short of (-) due instants.
    ADD COLUMN audited_at          timestamptz,
    ADD COLUMN audit_difference    bigint;
CREATE INDEX scheduled_jobs_paused_until ON scheduled_jobs (paused_until) WHERE status = 'paused' AND paused_until IS NOT NULL;
GRANT UPDATE (paused_until, resume_policy, status_by, status_at, audited_at, audit_difference) ON scheduled_jobs TO scheduler_engine;

-- 0: the run's place was reserved when it was made, or it needs none. Above:
-- it waits until fewer than so many runs of its job are running or hold a
-- place.
ALTER TABLE active_executions ADD COLUMN concurrency_limit smallint NOT NULL DEFAULT 0, ADD COLUMN backfill_id uuid;
ALTER TABLE job_executions ADD COLUMN backfill_id uuid;
-- Failures alone: what succeeds costs nothing here.
CREATE INDEX job_executions_failed ON job_executions (completed_at) WHERE status = 'failed';

CREATE TABLE backfills (
    id              uuid PRIMARY KEY,
    tenant_id       uuid        NOT NULL,
    job_id          uuid        NOT NULL REFERENCES scheduled_jobs (id) ON DELETE CASCADE,
    job_version     integer     NOT NULL,
    from_at         timestamptz NOT NULL,
    to_at           timestamptz NOT NULL,
    -- Instants up to here have their execution.
    cursor_at       timestamptz NOT NULL,
    rate_per_minute integer     NOT NULL CHECK (rate_per_minute BETWEEN 1 AND 6000),
    parameters      jsonb,
    status          text        NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'completed', 'cancelled')),
    total           integer     NOT NULL,
    created         integer     NOT NULL DEFAULT 0,
    next_batch_at   timestamptz NOT NULL DEFAULT now(),
    requested_by    text        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    finished_at     timestamptz,
    CHECK (from_at < to_at)
);
CREATE INDEX backfills_due ON backfills (next_batch_at) WHERE status = 'running';
CREATE INDEX backfills_job ON backfills (tenant_id, job_id, created_at DESC, id DESC);
ALTER TABLE backfills ENABLE ROW LEVEL SECURITY;
ALTER TABLE backfills FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON backfills TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON backfills TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE ON backfills TO scheduler_api;
GRANT SELECT, UPDATE ON backfills TO scheduler_engine;

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

-- +goose Down
DROP VIEW executions;
DROP TABLE backfills;
DROP INDEX job_executions_failed;
ALTER TABLE job_executions DROP COLUMN backfill_id;
ALTER TABLE active_executions DROP COLUMN backfill_id, DROP COLUMN concurrency_limit;
DROP INDEX scheduled_jobs_paused_until;
ALTER TABLE scheduled_jobs
    ALTER COLUMN overlap_policy SET DEFAULT 'allow',
    DROP COLUMN overlap_queue_limit, DROP COLUMN calendars, DROP COLUMN status_by, DROP COLUMN status_at, DROP COLUMN paused_until,
    DROP COLUMN resume_policy, DROP COLUMN audited_at, DROP COLUMN audit_difference;
DROP TABLE calendars;
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
