-- Secrets, and the credentials that stand in jobs' configurations, both
-- sealed. Lock: ACCESS EXCLUSIVE on scheduled_jobs for the moment of adding a
-- column with a constant default (no rewrite). Duration: instant, and the
-- index as long as the jobs' rows take.

-- +goose Up
CREATE TABLE secrets (
    id          uuid PRIMARY KEY,
    tenant_id   uuid        NOT NULL REFERENCES tenants (id),
    name        text        NOT NULL CHECK (name ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$'),
    description text        NOT NULL DEFAULT '',
    version     integer     NOT NULL DEFAULT 1 CHECK (version >= 1),
    key_id      text        NOT NULL,
    sealed      bytea       NOT NULL,
    created_by  text        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_by  text        NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant_id, name)
);
CREATE INDEX secrets_list ON secrets (tenant_id, created_at DESC, id DESC);
ALTER TABLE secrets ENABLE ROW LEVEL SECURITY;
ALTER TABLE secrets FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON secrets TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON secrets TO scheduler_engine USING (true) WITH CHECK (true);
-- The API writes values and cannot read them, not even sealed.
GRANT SELECT (id, tenant_id, name, description, version, key_id, created_by, created_at, updated_by, updated_at), INSERT, DELETE,
    UPDATE (description, version, key_id, sealed, updated_by, updated_at) ON secrets TO scheduler_api;
GRANT SELECT, UPDATE (key_id, sealed) ON secrets TO scheduler_engine;

-- The secrets that a job's current definition refers to.
ALTER TABLE scheduled_jobs ADD COLUMN secret_names text[] NOT NULL DEFAULT '{}';
CREATE INDEX scheduled_jobs_secrets ON scheduled_jobs (tenant_id) WHERE secret_names <> '{}' AND deleted_at IS NULL;

-- What stands as *** in the configuration of a job's version.
CREATE TABLE job_credentials (
    job_id    uuid    NOT NULL,
    version   integer NOT NULL,
    tenant_id uuid    NOT NULL,
    key_id    text    NOT NULL,
    sealed    bytea   NOT NULL,
    PRIMARY KEY (job_id, version),
    FOREIGN KEY (job_id, version) REFERENCES job_versions (job_id, version) ON DELETE CASCADE
);
ALTER TABLE job_credentials ENABLE ROW LEVEL SECURITY;
ALTER TABLE job_credentials FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON job_credentials TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON job_credentials TO scheduler_engine USING (true) WITH CHECK (true);
-- A new version keeps what the one before had.
GRANT SELECT, INSERT ON job_credentials TO scheduler_api;
GRANT SELECT, UPDATE (key_id, sealed) ON job_credentials TO scheduler_engine;

-- +goose Down
DROP TABLE job_credentials;
DROP INDEX scheduled_jobs_secrets;
ALTER TABLE scheduled_jobs DROP COLUMN secret_names;
DROP TABLE secrets;
