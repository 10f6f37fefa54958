-- Monitors: crons that run elsewhere and ping us; who does not ping in time is told of.
--
-- One row holds both what the tenant set and what pings change, so that a ping locks and writes
-- one. The columns that statements ask for stand alone; the rest of the state is the
-- program's and is one value.

-- +goose Up
CREATE TABLE monitors (
    id                       uuid PRIMARY KEY,
    tenant_id                uuid        NOT NULL REFERENCES tenants (id),
    name                     text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    tags                     text[]      NOT NULL DEFAULT '{}',
    cron_expression          text,
    timezone                 text        NOT NULL DEFAULT 'UTC',
    interval_seconds         integer CHECK (interval_seconds > 0),
    start_grace_seconds      integer     NOT NULL CHECK (start_grace_seconds > 0),
    completion_grace_seconds integer     NOT NULL CHECK (completion_grace_seconds > 0),
    max_runtime_seconds      integer     NOT NULL DEFAULT 0 CHECK (max_runtime_seconds >= 0), -- 0: the grace alone
    min_runtime_seconds      integer     NOT NULL DEFAULT 0 CHECK (min_runtime_seconds >= 0), -- 0: none is too fast
    alert_too_often          boolean     NOT NULL DEFAULT false,
    extend_on_log            boolean     NOT NULL DEFAULT false,
    failure_threshold        smallint    NOT NULL DEFAULT 1 CHECK (failure_threshold > 0),
    recovery_threshold       smallint    NOT NULL DEFAULT 1 CHECK (recovery_threshold > 0),
    paused                   boolean     NOT NULL DEFAULT false,
    ping_key                 text        NOT NULL UNIQUE, -- a secret: callers who have it may ping
    version                  integer     NOT NULL DEFAULT 1,
    created_by               text        NOT NULL,
    created_at               timestamptz NOT NULL DEFAULT now(),
    updated_at               timestamptz NOT NULL DEFAULT now(),

    -- Pings write these, and the pass that finds out who is late.
    status                   text        NOT NULL DEFAULT 'new' CHECK (status IN ('new', 'ok', 'down')),
    expected_at              timestamptz, -- when the next run should start
    running_since            timestamptz,
    deadline                 timestamptz, -- when the pass has to look at it; NULL: never
    state                    jsonb       NOT NULL DEFAULT '{}',
    UNIQUE (tenant_id, name),
    CHECK (num_nonnulls(cron_expression, interval_seconds) = 1)
) WITH (fillfactor = 70);
CREATE INDEX monitors_list ON monitors (tenant_id, created_at DESC, id DESC);
CREATE INDEX monitors_due ON monitors (deadline) WHERE deadline IS NOT NULL;
ALTER TABLE monitors ENABLE ROW LEVEL SECURITY;
ALTER TABLE monitors FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON monitors TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON monitors TO scheduler_engine USING (true) WITH CHECK (true);
CREATE POLICY purge ON monitors AS RESTRICTIVE FOR DELETE TO scheduler_engine USING (tenant_is_deleting(tenant_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON monitors TO scheduler_api;
GRANT SELECT, DELETE, UPDATE (status, expected_at, running_since, deadline, state) ON monitors TO scheduler_engine;
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR DELETE OR UPDATE OF version ON monitors
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('monitor', 'id', 'tenant_id',
    'id,tenant_id,created_at,created_by,updated_at,ping_key,status,expected_at,running_since,deadline,state');

-- The last runs of each monitor: run n lies in place n modulo 1,000, so the table is bounded
-- by the number of monitors however often they ping, and nothing has to trim it in time.
CREATE TABLE monitor_runs (
    monitor_id  uuid        NOT NULL REFERENCES monitors (id) ON DELETE CASCADE,
    place       smallint    NOT NULL,
    n           bigint      NOT NULL,
    tenant_id   uuid        NOT NULL,
    at          timestamptz NOT NULL, -- when it was stored first
    expected_at timestamptz,
    started_at  timestamptz,
    ended_at    timestamptz,
    outcome     text        NOT NULL CHECK (outcome IN ('running', 'completed', 'failed', 'missed', 'abandoned', 'unknown', 'logged')),
    reason      text        NOT NULL DEFAULT '',
    exit_code   smallint,
    run_id      text        NOT NULL DEFAULT '', -- by which the caller pairs pings
    log         text        NOT NULL DEFAULT '',
    PRIMARY KEY (monitor_id, place)
) WITH (fillfactor = 80);
CREATE INDEX monitor_runs_age ON monitor_runs (at);
CREATE INDEX monitor_runs_tenant ON monitor_runs (tenant_id);
ALTER TABLE monitor_runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE monitor_runs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON monitor_runs TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON monitor_runs TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT ON monitor_runs TO scheduler_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON monitor_runs TO scheduler_engine;

-- Events that notifications have not been told of yet; written with the change that they are
-- about, and removed with the deliveries that tell them.
CREATE TABLE monitor_events (
    id        uuid PRIMARY KEY,
    tenant_id uuid        NOT NULL,
    at        timestamptz NOT NULL,
    tags      text[]      NOT NULL,
    event     jsonb       NOT NULL
);
CREATE INDEX monitor_events_order ON monitor_events (at, id);
ALTER TABLE monitor_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE monitor_events FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON monitor_events FOR SELECT TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON monitor_events TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, DELETE ON monitor_events TO scheduler_engine;

-- One row: when pings could be stored last.
CREATE TABLE monitor_intake (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    touched_at timestamptz NOT NULL
) WITH (fillfactor = 10);
INSERT INTO monitor_intake (touched_at) VALUES (now());
ALTER TABLE monitor_intake ENABLE ROW LEVEL SECURITY;
ALTER TABLE monitor_intake FORCE ROW LEVEL SECURITY;
CREATE POLICY engine ON monitor_intake TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, UPDATE ON monitor_intake TO scheduler_engine;

-- When pings may have been lost, by our fault: nobody is late because of those times.
CREATE TABLE monitor_gaps (
    from_at timestamptz PRIMARY KEY,
    to_at   timestamptz NOT NULL CHECK (to_at >= from_at)
);
CREATE INDEX monitor_gaps_end ON monitor_gaps (to_at);
ALTER TABLE monitor_gaps ENABLE ROW LEVEL SECURITY;
ALTER TABLE monitor_gaps FORCE ROW LEVEL SECURITY;
CREATE POLICY engine ON monitor_gaps TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON monitor_gaps TO scheduler_engine;

-- +goose Down
DROP TABLE monitor_gaps;
DROP TABLE monitor_intake;
DROP TABLE monitor_events;
DROP TABLE monitor_runs;
DROP TABLE monitors;
