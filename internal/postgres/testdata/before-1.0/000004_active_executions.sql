-- What is pending or running: the outbox. Lock: none on existing tables.
-- Duration: instant.
--
-- Fill factor 50 and indexes only over columns that a claim leaves alone:
-- claiming is then a HOT update, which writes to no index (measured: 40,700
-- lifecycles a second against 32,400 with an index over the status).
--
-- sweep_at is the one instant by which somebody must have looked at the row.
-- It stands in the insert already (now + 5 s), the claim leaves it or brings
-- it nearer, and nothing but a sweep or a retry moves it away. So every row
-- that runs is found by "sweep_at <= now + 5 s", without an index over the
-- worker, and every hint that was lost by "sweep_at <= now".

-- +goose Up
CREATE TABLE active_executions (
    id                  uuid PRIMARY KEY,
    tenant_id           uuid        NOT NULL,
    job_id              uuid        NOT NULL,
    job_version         integer     NOT NULL,
    scheduled_at        timestamptz NOT NULL,
    trigger_type        text        NOT NULL CHECK (trigger_type IN ('scheduled', 'manual', 'retry', 'backfill', 'dependency')),
    triggered_by        text        NOT NULL DEFAULT '',
    job_type            text        NOT NULL,
    priority            smallint    NOT NULL DEFAULT 0,
    parameters          jsonb,
    status              text        NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'running', 'retrying')),
    attempt             integer     NOT NULL DEFAULT 0,
    max_attempts        integer     NOT NULL,
    lost_count          smallint    NOT NULL DEFAULT 0,
    timeout_ms          integer     NOT NULL,
    progress            smallint    NOT NULL DEFAULT 0 CHECK (progress BETWEEN 0 AND 100),
    attempts            jsonb       NOT NULL DEFAULT '[]',
    available_at        timestamptz NOT NULL,
    sweep_at            timestamptz NOT NULL,
    dispatch_seq        smallint    NOT NULL DEFAULT 0,
    worker_id           uuid,
    lease_token         uuid,
    started_at          timestamptz,
    attempt_started_at  timestamptz,
    deadline_at         timestamptz,
    cancel_requested_at timestamptz,
    created_at          timestamptz NOT NULL DEFAULT now()
) WITH (
    fillfactor = 50,
    -- Rows live for milliseconds: the table is small and its dead rows are
    -- not, so it is vacuumed by count and without being throttled.
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.0, autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX active_executions_sweep ON active_executions (sweep_at);
-- A tenant's list and a job's list, newest first: the same order as the
-- indexes of job_executions, so that a reader of both merges them.
CREATE INDEX active_executions_list ON active_executions (tenant_id, scheduled_at DESC, id DESC);
CREATE INDEX active_executions_job ON active_executions (job_id, scheduled_at DESC, id DESC);

ALTER TABLE active_executions ENABLE ROW LEVEL SECURITY;
ALTER TABLE active_executions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON active_executions TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON active_executions TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON active_executions TO scheduler_api, scheduler_engine;

-- +goose Down
DROP TABLE active_executions;
