-- How long the jobs usually take whose tenants want to be told of slow executions.

-- +goose Up
CREATE TABLE job_durations (
    job_id    uuid PRIMARY KEY,
    tenant_id uuid    NOT NULL,
    usual_us  bigint  NOT NULL, -- a moving average of what its completed executions took
    runs      integer NOT NULL, -- how many are in it, up to what it goes by
    slow      boolean NOT NULL  -- the last one was: the next slow one is not told
) WITH (fillfactor = 70);
CREATE INDEX job_durations_tenant ON job_durations (tenant_id);
ALTER TABLE job_durations ENABLE ROW LEVEL SECURITY;
ALTER TABLE job_durations FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON job_durations TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON job_durations TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON job_durations TO scheduler_engine;

-- +goose Down
DROP TABLE job_durations;
