-- What executions came to, counted ahead, so that statistics do not read
-- executions. Lock: none on existing tables. Duration: instant. What was over
-- before is counted by the collector of metrics afterwards, in bounded steps;
-- statistics are exact meanwhile, and as slow as before for what is not counted yet.

-- +goose Up
-- One row for a span (an hour, a day, about a week; UTC) of scheduled_at, and a
-- part of a tenant's executions: part 0 is all of them without their jobs, parts 1 to 32 are those of
-- the jobs whose ids fall there. cells is what package rollup packs: counts by
-- job, type, trigger, status, quarter of the hour and length of time. Packed,
-- because a row for each of them would cost ten times the bytes and an update for
-- nearly each execution.
CREATE TABLE outcome_rollups (
    tenant_id uuid        NOT NULL,
    part      smallint    NOT NULL CHECK (part BETWEEN 0 AND 32),
    span      smallint    NOT NULL CHECK (span BETWEEN 0 AND 2), -- 0 an hour, 1 a day, 2 days 1, 8, 15 or 22 of a month to the next of these
    at        timestamptz NOT NULL,                              -- its beginning
    cells     bytea       NOT NULL,
    PRIMARY KEY (tenant_id, part, span, at)
) WITH (
    fillfactor = 80,
    -- Rows of the present hour and day are replaced each few seconds.
    autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05
);
-- They are small and do not compress.
ALTER TABLE outcome_rollups ALTER COLUMN cells SET STORAGE EXTERNAL;
-- For retention, which removes the oldest. An expression, so that nobody's read of
-- an hour takes this index and with it every tenant's rows.
CREATE INDEX outcome_rollups_age ON outcome_rollups ((at AT TIME ZONE 'UTC'));
ALTER TABLE outcome_rollups ENABLE ROW LEVEL SECURITY;
ALTER TABLE outcome_rollups FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON outcome_rollups FOR SELECT TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON outcome_rollups TO scheduler_engine USING (true) WITH CHECK (true);
-- What retention keeps goes with its tenant only.
CREATE POLICY retention ON outcome_rollups AS RESTRICTIVE FOR DELETE TO scheduler_engine
    USING (at < now() - interval '1 month' OR tenant_is_deleting(tenant_id));
GRANT SELECT ON outcome_rollups TO scheduler_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON outcome_rollups TO scheduler_engine;

-- One row: outcomes that ended after rolled_from and up to rolled_to are in the
-- roll-ups, all others are not. rolled_from is NULL once there is nothing before it.
-- Not counted_to of metric_totals, because collectors of the version before move that
-- and know no roll-ups.
CREATE TABLE rollup_cursor (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    rolled_from timestamptz,
    rolled_to   timestamptz NOT NULL
) WITH (fillfactor = 10);
-- What is under way now has this or an earlier instant and may commit later.
INSERT INTO rollup_cursor (rolled_from, rolled_to) VALUES (now() - interval '1 minute', now() - interval '1 minute');
-- Who reads roll-ups has to know what is in them.
ALTER TABLE rollup_cursor ENABLE ROW LEVEL SECURITY;
ALTER TABLE rollup_cursor FORCE ROW LEVEL SECURITY;
CREATE POLICY everybody ON rollup_cursor FOR SELECT TO scheduler_api USING (true);
CREATE POLICY engine ON rollup_cursor TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT ON rollup_cursor TO scheduler_api;
GRANT SELECT, UPDATE ON rollup_cursor TO scheduler_engine;

-- +goose Down
DROP TABLE rollup_cursor;
DROP TABLE outcome_rollups;
