-- Jobs and their versions. Lock: none on existing tables. Duration: instant.
--
-- Fill factor 80 on scheduled_jobs: promotion updates next_execution_at of
-- every due row, and free space on the page keeps those rows together.

-- +goose Up
CREATE TABLE scheduled_jobs (
    id                     uuid PRIMARY KEY,
    tenant_id              uuid        NOT NULL REFERENCES tenants (id),
    name                   text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    description            text        NOT NULL DEFAULT '',
    tags                   text[]      NOT NULL DEFAULT '{}',
    created_by             text        NOT NULL,
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),
    deleted_at             timestamptz,
    version                integer     NOT NULL DEFAULT 1 CHECK (version >= 1),

    -- The schedule: at most one of the three; none means "only when triggered".
    cron_expression        text CHECK (length(cron_expression) <= 256),
    timezone               text        NOT NULL DEFAULT 'UTC',
    interval_ms            bigint CHECK (interval_ms >= 1000),
    run_at                 timestamptz,
    anchor_at              timestamptz NOT NULL DEFAULT now(),
    start_date             timestamptz,
    end_date               timestamptz,
    max_executions         bigint CHECK (max_executions >= 1),
    jitter_seconds         integer     NOT NULL DEFAULT 0 CHECK (jitter_seconds BETWEEN 0 AND 86400),
    dst_gap                text        NOT NULL DEFAULT 'shift' CHECK (dst_gap IN ('shift', 'skip')),
    dst_overlap            text        NOT NULL DEFAULT 'first' CHECK (dst_overlap IN ('first', 'last', 'both')),
    CONSTRAINT scheduled_jobs_one_schedule CHECK (num_nonnulls(cron_expression, interval_ms, run_at) <= 1),

    job_type               text        NOT NULL CHECK (job_type IN ('http', 'function', 'command')),
    config                 jsonb       NOT NULL,
    retry_config           jsonb       NOT NULL DEFAULT '{}',
    max_attempts           integer     NOT NULL CHECK (max_attempts BETWEEN 1 AND 101),
    timeout_seconds        integer     NOT NULL CHECK (timeout_seconds BETWEEN 1 AND 86400),
    max_concurrent         integer     NOT NULL DEFAULT 1 CHECK (max_concurrent BETWEEN 1 AND 1000),
    overlap_policy         text        NOT NULL DEFAULT 'allow'
                           CHECK (overlap_policy IN ('skip', 'queue_one', 'queue_all', 'cancel_running', 'allow')),
    misfire_policy         text        NOT NULL DEFAULT 'fire_once'
                           CHECK (misfire_policy IN ('skip', 'fire_once', 'fire_all')),
    misfire_limit          integer     NOT NULL DEFAULT 100 CHECK (misfire_limit BETWEEN 1 AND 1000),
    misfire_grace_seconds  integer     NOT NULL DEFAULT 60 CHECK (misfire_grace_seconds BETWEEN 1 AND 86400),
    priority               smallint    NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 9),
    disable_after_failures integer CHECK (disable_after_failures BETWEEN 1 AND 1000),

    status                 text        NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'paused', 'inactive')),
    status_reason          text        NOT NULL DEFAULT '',

    -- Kept by the promoter in the statement that advances the job, so that a
    -- finished run costs no write here.
    next_execution_at      timestamptz,
    last_execution_at      timestamptz,
    execution_count        bigint      NOT NULL DEFAULT 0
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- What is due. The promoter's claim walks it from the oldest instant on.
CREATE INDEX scheduled_jobs_due ON scheduled_jobs (next_execution_at) WHERE status = 'active';
-- A tenant's list, newest first; deleted jobs are not listed.
CREATE INDEX scheduled_jobs_list ON scheduled_jobs (tenant_id, created_at DESC, id DESC) WHERE deleted_at IS NULL;

ALTER TABLE scheduled_jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduled_jobs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON scheduled_jobs TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON scheduled_jobs TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE ON scheduled_jobs TO scheduler_api;
GRANT SELECT, UPDATE (next_execution_at, last_execution_at, execution_count, status, status_reason, updated_at)
    ON scheduled_jobs TO scheduler_engine;

-- What an execution runs: the definition as it was when the run was promoted.
-- Never changed: there is no grant to do so.
CREATE TABLE job_versions (
    job_id     uuid        NOT NULL REFERENCES scheduled_jobs (id) ON DELETE CASCADE,
    version    integer     NOT NULL,
    tenant_id  uuid        NOT NULL,
    spec       jsonb       NOT NULL,
    created_by text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job_id, version)
);

ALTER TABLE job_versions ENABLE ROW LEVEL SECURITY;
ALTER TABLE job_versions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON job_versions TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON job_versions FOR SELECT TO scheduler_engine USING (true);
GRANT SELECT, INSERT ON job_versions TO scheduler_api;
GRANT SELECT ON job_versions TO scheduler_engine;

-- +goose Down
DROP TABLE job_versions;
DROP TABLE scheduled_jobs;
