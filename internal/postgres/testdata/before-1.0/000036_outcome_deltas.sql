-- Outcomes that are counted and not folded into the roll-ups yet. Lock: none on
-- existing tables. Duration: instant. A collector of the version before goes on to
-- write roll-ups directly; both may run at once.

-- +goose Up
-- What a tenant's executions of one hour of scheduled_at (UTC) came to, a row for each
-- stretch of time that the collector counted: cells as outcome_rollups packs those of
-- an hour, all jobs together. Rows are added and removed, and never changed, so that an
-- outcome costs the same however many jobs the tenant has.
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

-- How much there is to fold for each tenant. Whoever folds holds the row locked, so
-- any number of promoters share the work.
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

-- +goose Down
-- Statistics of the version before know roll-ups alone: all is counted again.
ALTER TABLE outcome_rollups NO FORCE ROW LEVEL SECURITY;
ALTER TABLE rollup_cursor NO FORCE ROW LEVEL SECURITY;
DELETE FROM outcome_rollups;
UPDATE rollup_cursor SET rolled_from = rolled_to;
ALTER TABLE outcome_rollups FORCE ROW LEVEL SECURITY;
ALTER TABLE rollup_cursor FORCE ROW LEVEL SECURITY;
DROP TABLE fold_backlogs;
DROP TABLE outcome_deltas;
