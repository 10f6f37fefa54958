-- The output of executions and the message of their progress, in tables of their own: a
-- run that writes none has no row here, and nothing else is read or written for it.

-- +goose Up
-- Lines of one attempt that were written together. The worker numbers the lines of an
-- attempt from 1; last_line is the highest number of the chunk. Rows are only inserted, and
-- retention removes the oldest. Lines are a JSON array as text: nothing in the database
-- looks into it.
CREATE TABLE execution_output (
    execution_id uuid        NOT NULL,
    attempt      integer     NOT NULL,
    last_line    integer     NOT NULL,
    tenant_id    uuid        NOT NULL,
    lines        text        NOT NULL CHECK (octet_length(lines) <= 1048576),
    written_at   timestamptz NOT NULL,
    PRIMARY KEY (execution_id, attempt, last_line)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);
CREATE INDEX execution_output_age ON execution_output (written_at);
CREATE INDEX execution_output_tenant ON execution_output (tenant_id);
ALTER TABLE execution_output ENABLE ROW LEVEL SECURITY;
ALTER TABLE execution_output FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON execution_output TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON execution_output TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT ON execution_output TO scheduler_api;
GRANT SELECT, INSERT, DELETE ON execution_output TO scheduler_engine;

-- The message of the last progress that a run reported. How far it is stands in
-- active_executions and job_executions. begun_at is of the first report and does not change,
-- so that updates are HOT.
CREATE TABLE execution_progress (
    execution_id uuid        PRIMARY KEY,
    tenant_id    uuid        NOT NULL,
    message      text        NOT NULL CHECK (octet_length(message) <= 200),
    begun_at     timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX execution_progress_age ON execution_progress (begun_at);
CREATE INDEX execution_progress_tenant ON execution_progress (tenant_id);
ALTER TABLE execution_progress ENABLE ROW LEVEL SECURITY;
ALTER TABLE execution_progress FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON execution_progress TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON execution_progress TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT ON execution_progress TO scheduler_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON execution_progress TO scheduler_engine;

-- +goose Down
DROP TABLE execution_progress;
DROP TABLE execution_output;
