-- How many executions may wait, and how many do. Lock: ACCESS EXCLUSIVE on
-- tenants for the moment of adding columns without defaults. Duration: instant.

-- +goose Up
-- NULL is always: as the processes' configuration says.
ALTER TABLE tenants
    ADD COLUMN max_waiting         integer CHECK (max_waiting BETWEEN 1 AND 100000000),
    ADD COLUMN max_waiting_per_job integer CHECK (max_waiting_per_job BETWEEN 1 AND 100000000);
GRANT UPDATE (max_waiting, max_waiting_per_job) ON tenants TO scheduler_api;

-- How many executions wait, of a job and, under the nil id, of a tenant; only
-- where they are many. One promoter at a time counts them again and again, so a
-- number is as old as a round of counting takes.
CREATE TABLE waiting_counts (
    tenant_id uuid   NOT NULL,
    job_id    uuid   NOT NULL,
    waiting   bigint NOT NULL,
    PRIMARY KEY (tenant_id, job_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE waiting_counts ENABLE ROW LEVEL SECURITY;
ALTER TABLE waiting_counts FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON waiting_counts FOR SELECT TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON waiting_counts TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT ON waiting_counts TO scheduler_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON waiting_counts TO scheduler_engine;

-- +goose Down
DROP TABLE waiting_counts;
ALTER TABLE tenants DROP COLUMN max_waiting, DROP COLUMN max_waiting_per_job;
