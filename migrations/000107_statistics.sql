-- Statistics: totals, their history, and executions counted ahead, so that statistics
-- do not read executions.

-- +goose Up
-- The outcomes of each tenant's executions since counting began, and of the whole
-- service under the nil id, which no tenant has. The service's counted_to is the time up
-- to which outcomes are counted, its taken_at the newest half minute in the history.
CREATE TABLE metric_totals (
    tenant_id   uuid PRIMARY KEY,
    counted_to  timestamptz NOT NULL,
    taken_at    timestamptz,
    completed   bigint      NOT NULL DEFAULT 0,
    failed      bigint      NOT NULL DEFAULT 0,
    cancelled   bigint      NOT NULL DEFAULT 0,
    skipped     bigint      NOT NULL DEFAULT 0, -- rows of status skipped and missed
    timed_out   bigint      NOT NULL DEFAULT 0, -- of those that failed
    retried     bigint      NOT NULL DEFAULT 0, -- took more than one attempt
    timed       bigint      NOT NULL DEFAULT 0, -- have a duration
    duration_ms bigint      NOT NULL DEFAULT 0  -- of these, together
) WITH (fillfactor = 50);
INSERT INTO metric_totals (tenant_id, counted_to) VALUES ('00000000-0000-0000-0000-000000000000', now());
ALTER TABLE metric_totals ENABLE ROW LEVEL SECURITY;
ALTER TABLE metric_totals FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON metric_totals TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON metric_totals TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE ON metric_totals TO scheduler_engine;

-- The numbers of each tenant and of the service as they were, every half minute.
CREATE TABLE metric_history (
    tenant_id   uuid        NOT NULL,
    taken_at    timestamptz NOT NULL,
    coarse      boolean     NOT NULL, -- kept when the others of its five minutes are gone
    jobs        bigint      NOT NULL,
    active_jobs bigint      NOT NULL,
    paused_jobs bigint      NOT NULL,
    waiting     bigint      NOT NULL,
    running     bigint      NOT NULL,
    workers     bigint      NOT NULL,
    completed   bigint      NOT NULL,
    failed      bigint      NOT NULL,
    cancelled   bigint      NOT NULL,
    skipped     bigint      NOT NULL,
    timed_out   bigint      NOT NULL,
    retried     bigint      NOT NULL,
    timed       bigint      NOT NULL,
    duration_ms bigint      NOT NULL,
    PRIMARY KEY (tenant_id, taken_at)
);
CREATE INDEX metric_history_fine ON metric_history (taken_at) WHERE NOT coarse;
CREATE INDEX metric_history_coarse ON metric_history (taken_at) WHERE coarse;
ALTER TABLE metric_history ENABLE ROW LEVEL SECURITY;
ALTER TABLE metric_history FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON metric_history TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON metric_history TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT ON metric_history TO scheduler_api;
GRANT SELECT, INSERT, DELETE ON metric_history TO scheduler_engine;

-- One row for a span of scheduled times and a part of a tenant's executions: part 0 is
-- all of them without their jobs, parts 1 to 32 are those of the jobs whose ids fall
-- there. cells is what package rollup packs: counts by job, type, trigger, status,
-- quarter of the hour and length of time. Packed, because a row for each of them would
-- cost ten times the bytes and an update for nearly each execution.
CREATE TABLE outcome_rollups (
    tenant_id uuid        NOT NULL,
    part      smallint    NOT NULL CHECK (part BETWEEN 0 AND 32),
    span      smallint    NOT NULL CHECK (span BETWEEN 0 AND 2), -- 0 an hour, 1 a day, 2 days 1, 8, 15 or 22 of a month to the next of these; UTC
    at        timestamptz NOT NULL,                              -- its beginning
    cells     bytea       NOT NULL,
    PRIMARY KEY (tenant_id, part, span, at)
) WITH (
    fillfactor = 80,
    -- Rows of the present hour and day are replaced each few seconds.
    autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05
);
-- Cells are small and do not compress.
ALTER TABLE outcome_rollups ALTER COLUMN cells SET STORAGE EXTERNAL;
-- Retention removes the oldest. An expression, so that nobody's read of an hour takes
-- this index and with it every tenant's rows.
CREATE INDEX outcome_rollups_age ON outcome_rollups ((at AT TIME ZONE 'UTC'));
ALTER TABLE outcome_rollups ENABLE ROW LEVEL SECURITY;
ALTER TABLE outcome_rollups FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON outcome_rollups FOR SELECT TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON outcome_rollups TO scheduler_engine USING (true) WITH CHECK (true);
CREATE POLICY retention ON outcome_rollups AS RESTRICTIVE FOR DELETE TO scheduler_engine
    USING (at < now() - interval '1 month' OR tenant_is_deleting(tenant_id));
GRANT SELECT ON outcome_rollups TO scheduler_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON outcome_rollups TO scheduler_engine;

-- Outcomes that are counted and not folded into the roll-ups yet: a row for each interval
-- that the collector counted, of one hour of scheduled times, all jobs together.
-- Rows are added and removed, and never changed, so that an outcome costs the same
-- however many jobs the tenant has.
CREATE TABLE outcome_deltas (
    tenant_id uuid        NOT NULL,
    at        timestamptz NOT NULL, -- the beginning of the hour
    seq       bigint      GENERATED ALWAYS AS IDENTITY,
    outcomes  bigint      NOT NULL,
    cells     bytea       NOT NULL,
    PRIMARY KEY (tenant_id, at, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE outcome_deltas ALTER COLUMN cells SET STORAGE EXTERNAL;
ALTER TABLE outcome_deltas ENABLE ROW LEVEL SECURITY;
ALTER TABLE outcome_deltas FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON outcome_deltas FOR SELECT TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON outcome_deltas TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT ON outcome_deltas TO scheduler_api;
GRANT SELECT, INSERT, DELETE ON outcome_deltas TO scheduler_engine;

-- How much there is to fold for each tenant. A process that folds holds the row locked, so
-- any number of them share the work.
CREATE TABLE fold_backlogs (
    tenant_id uuid PRIMARY KEY,
    rows      bigint      NOT NULL, -- of outcome_deltas
    outcomes  bigint      NOT NULL, -- that these count
    since     timestamptz NOT NULL, -- when the first of them was counted
    folded    bigint      NOT NULL DEFAULT 0 -- bytes that the last fold wrote
) WITH (fillfactor = 50);
ALTER TABLE fold_backlogs ENABLE ROW LEVEL SECURITY;
ALTER TABLE fold_backlogs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON fold_backlogs FOR SELECT TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON fold_backlogs TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON fold_backlogs TO scheduler_engine;

-- One row: outcomes that ended after rolled_from and up to rolled_to are in the roll-ups,
-- all others are not. rolled_from is NULL once there is nothing before it. An execution
-- that is being finished now may be committed later with an earlier time.
CREATE TABLE rollup_cursor (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    rolled_from timestamptz,
    rolled_to   timestamptz NOT NULL
) WITH (fillfactor = 10);
INSERT INTO rollup_cursor (rolled_from, rolled_to) VALUES (now() - interval '1 minute', now() - interval '1 minute');
ALTER TABLE rollup_cursor ENABLE ROW LEVEL SECURITY;
ALTER TABLE rollup_cursor FORCE ROW LEVEL SECURITY;
CREATE POLICY everybody ON rollup_cursor FOR SELECT TO scheduler_api USING (true);
CREATE POLICY engine ON rollup_cursor TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT ON rollup_cursor TO scheduler_api;
GRANT SELECT, UPDATE ON rollup_cursor TO scheduler_engine;

-- +goose Down
DROP TABLE rollup_cursor;
DROP TABLE fold_backlogs;
DROP TABLE outcome_deltas;
DROP TABLE outcome_rollups;
DROP TABLE metric_history;
DROP TABLE metric_totals;
