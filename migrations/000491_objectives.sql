-- Objectives: which share of a job's executions, or of those of a tag, has to succeed or to
-- start on time.
--
-- A pass reads what ended once, in the order in which it ended, and adds it to the counts of
-- the objectives that it concerns, so completing an execution costs nothing for them. The
-- roll-ups of statistics were weighed: they do not know when an execution started, and know
-- no tags.

-- +goose Up
CREATE TABLE objectives (
    id           uuid PRIMARY KEY,
    tenant_id    uuid             NOT NULL,
    name         text             NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    kind         text             NOT NULL CHECK (kind IN ('success', 'onTime')),
    job_id       uuid,
    tag          text CHECK (length(tag) BETWEEN 1 AND 50),
    threshold_ms integer CHECK (threshold_ms > 0), -- how late a start may be that is on time
    target       double precision NOT NULL CHECK (target BETWEEN 0.5 AND 0.99999),
    window_days  smallint         NOT NULL CHECK (window_days BETWEEN 1 AND 31),
    created_by   text             NOT NULL,
    created_at   timestamptz      NOT NULL, -- what ended before does not count
    CHECK (num_nonnulls(job_id, tag) = 1),
    CHECK ((kind = 'onTime') = (threshold_ms IS NOT NULL))
);
CREATE INDEX objectives_list ON objectives (tenant_id, created_at DESC, id DESC);
ALTER TABLE objectives ENABLE ROW LEVEL SECURITY;
ALTER TABLE objectives FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON objectives TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON objectives TO scheduler_engine USING (true) WITH CHECK (true);
CREATE POLICY purge ON objectives AS RESTRICTIVE FOR DELETE TO scheduler_engine USING (tenant_is_deleting(tenant_id));
GRANT SELECT, INSERT, DELETE ON objectives TO scheduler_api;
GRANT SELECT, DELETE ON objectives TO scheduler_engine;
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR DELETE ON objectives
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('objective', 'id', 'tenant_id',
    'id,tenant_id,created_at,created_by');

-- How many executions that ended in a span of time met the objective, and how many did not.
CREATE TABLE objective_counts (
    objective_id uuid        NOT NULL REFERENCES objectives ON DELETE CASCADE,
    tenant_id    uuid        NOT NULL,
    span         smallint    NOT NULL CHECK (span BETWEEN 0 AND 1), -- 0: five minutes, 1: an hour
    at           timestamptz NOT NULL,                              -- its beginning
    good         bigint      NOT NULL,
    bad          bigint      NOT NULL,
    PRIMARY KEY (objective_id, span, at)
) WITH (fillfactor = 50);
CREATE INDEX objective_counts_age ON objective_counts (span, at);
ALTER TABLE objective_counts ENABLE ROW LEVEL SECURITY;
ALTER TABLE objective_counts FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON objective_counts FOR SELECT TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON objective_counts TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT ON objective_counts TO scheduler_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON objective_counts TO scheduler_engine;

-- One row: what ended up to read_to is counted.
CREATE TABLE objective_cursor (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    read_to timestamptz NOT NULL
) WITH (fillfactor = 10);
INSERT INTO objective_cursor (read_to) VALUES (now());
ALTER TABLE objective_cursor ENABLE ROW LEVEL SECURITY;
ALTER TABLE objective_cursor FORCE ROW LEVEL SECURITY;
CREATE POLICY everybody ON objective_cursor FOR SELECT TO scheduler_api USING (true);
CREATE POLICY engine ON objective_cursor TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT ON objective_cursor TO scheduler_api;
GRANT SELECT, UPDATE ON objective_cursor TO scheduler_engine;

-- +goose Down
DROP TABLE objective_cursor;
DROP TABLE objective_counts;
DROP TABLE objectives;
