-- API keys, and what a tenant may. Lock: ACCESS EXCLUSIVE on tenants for the
-- moment of adding columns with constant defaults (no rewrite). Duration:
-- instant, and one partial index as long as the rows of scheduled_jobs take.

-- +goose Up
CREATE TABLE api_keys (
    id            uuid PRIMARY KEY,
    tenant_id     uuid        NOT NULL REFERENCES tenants (id),
    name          text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    -- What of the key may be shown, so that people can tell keys apart.
    prefix        text        NOT NULL,
    -- SHA-256 of the whole key. It has 256 random bits, so a slow hash would
    -- cost each request time and protect nothing.
    hash          bytea       NOT NULL CHECK (length(hash) = 32),
    -- The hash that rotation replaced, believed for a while longer.
    old_hash      bytea CHECK (length(old_hash) = 32),
    old_until     timestamptz,
    scopes        text[]      NOT NULL,
    expires_at    timestamptz,
    last_used_at  timestamptz,
    created_by    text        NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    rotated_at    timestamptz
);
CREATE INDEX api_keys_list ON api_keys (tenant_id, created_at DESC, id DESC);
ALTER TABLE api_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE api_keys FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON api_keys TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
-- Promoters purge what a deleted tenant left.
CREATE POLICY engine ON api_keys TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON api_keys TO scheduler_api;
GRANT SELECT, DELETE ON api_keys TO scheduler_engine;

-- NULL is always: as the processes' configuration says.
ALTER TABLE tenants
    DROP CONSTRAINT tenants_status_check,
    -- Of a deleting tenant everything that it had is removed in pieces. This row
    -- is left, so that no token brings it back to life, and so are the audit log
    -- and its counts, which are zero.
    ADD CONSTRAINT tenants_status_check CHECK (status IN ('active', 'suspended', 'deleting', 'deleted')),
    ADD COLUMN status_reason          text    NOT NULL DEFAULT '' CHECK (length(status_reason) <= 500),
    ADD COLUMN max_jobs               integer CHECK (max_jobs BETWEEN 0 AND 10000000),
    ADD COLUMN max_executions_per_day integer CHECK (max_executions_per_day BETWEEN 0 AND 1000000000),
    ADD COLUMN requests_per_second    integer CHECK (requests_per_second BETWEEN 1 AND 1000000),
    ADD COLUMN min_interval_seconds   integer CHECK (min_interval_seconds BETWEEN 1 AND 86400),
    ADD COLUMN max_payload_bytes      integer CHECK (max_payload_bytes BETWEEN 1024 AND 8388608),
    ADD COLUMN job_types              text[],
    -- Networks that its API calls may come from; none: any.
    ADD COLUMN allowed_ips            text[]  NOT NULL DEFAULT '{}';
-- Who is in custody: nearly nobody. Who has a bound on executions: few.
CREATE INDEX tenants_held ON tenants (id) WHERE status <> 'active';
CREATE INDEX tenants_daily ON tenants (id) WHERE max_executions_per_day IS NOT NULL;
CREATE INDEX tenants_list ON tenants (created_at DESC, id DESC);
-- Platform administrators list tenants; each other statement names one.
CREATE POLICY platform ON tenants FOR SELECT TO scheduler_api USING (current_setting('app.platform', true) = 'on');
-- Also for locking a row, so that limits hold among concurrent requests.
GRANT UPDATE (name, status, status_reason, max_running, max_running_by_type, max_jobs, max_executions_per_day, requests_per_second,
              min_interval_seconds, max_payload_bytes, job_types, allowed_ips, updated_at) ON tenants TO scheduler_api;
CREATE POLICY purge ON tenants FOR UPDATE TO scheduler_engine USING (status = 'deleting') WITH CHECK (status = 'deleted');
GRANT UPDATE (name, status, updated_at) ON tenants TO scheduler_engine;

-- How many executions were made on a day (UTC), for tenants with a bound.
CREATE TABLE execution_days (
    tenant_id  uuid PRIMARY KEY,
    day        date    NOT NULL,
    executions integer NOT NULL
);
ALTER TABLE execution_days ENABLE ROW LEVEL SECURITY;
ALTER TABLE execution_days FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON execution_days TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON execution_days TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE ON execution_days TO scheduler_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON execution_days TO scheduler_engine;

-- Jobs that are paused because their tenant is, to be found again. Few.
CREATE INDEX scheduled_jobs_held ON scheduled_jobs (tenant_id) WHERE status = 'paused' AND status_by = 'platform';

-- Everything of a tenant that is being deleted may be removed, and nothing
-- else: append-only tables stay so for all others.
-- +goose StatementBegin
CREATE FUNCTION tenant_is_deleting(tenant uuid) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
AS $$ SELECT EXISTS (SELECT 1 FROM public.tenants t WHERE t.id = tenant AND t.status = 'deleting') $$;
-- +goose StatementEnd
GRANT DELETE ON job_executions, calendars TO scheduler_engine;
CREATE POLICY purge ON job_executions AS RESTRICTIVE FOR DELETE TO scheduler_engine USING (tenant_is_deleting(tenant_id));
CREATE POLICY purge ON calendars FOR DELETE TO scheduler_engine USING (tenant_is_deleting(tenant_id));
DROP POLICY retention ON scheduled_jobs;
CREATE POLICY retention ON scheduled_jobs AS RESTRICTIVE FOR DELETE TO scheduler_engine
    USING (deleted_at < now() - interval '1 month' OR tenant_is_deleting(tenant_id));
CREATE POLICY purge ON api_keys AS RESTRICTIVE FOR DELETE TO scheduler_engine USING (tenant_is_deleting(tenant_id));
CREATE POLICY purge ON execution_days AS RESTRICTIVE FOR DELETE TO scheduler_engine USING (tenant_is_deleting(tenant_id));

-- +goose Down
DROP POLICY purge ON calendars;
DROP POLICY purge ON job_executions;
REVOKE DELETE ON job_executions, calendars FROM scheduler_engine;
DROP POLICY retention ON scheduled_jobs;
CREATE POLICY retention ON scheduled_jobs AS RESTRICTIVE FOR DELETE TO scheduler_engine USING (deleted_at < now() - interval '1 month');
DROP POLICY purge ON api_keys;
DROP POLICY purge ON execution_days;
DROP FUNCTION tenant_is_deleting(uuid);
DROP INDEX scheduled_jobs_held;
DROP TABLE execution_days;
REVOKE UPDATE (name, status, updated_at) ON tenants FROM scheduler_engine;
DROP POLICY purge ON tenants;
REVOKE UPDATE (name, status, status_reason, max_running, max_running_by_type, max_jobs, max_executions_per_day, requests_per_second,
               min_interval_seconds, max_payload_bytes, job_types, allowed_ips, updated_at) ON tenants FROM scheduler_api;
DROP POLICY platform ON tenants;
DROP INDEX tenants_list;
DROP INDEX tenants_daily;
DROP INDEX tenants_held;
ALTER TABLE tenants NO FORCE ROW LEVEL SECURITY;
UPDATE tenants SET status = 'suspended' WHERE status <> 'active';
ALTER TABLE tenants FORCE ROW LEVEL SECURITY;
ALTER TABLE tenants
    DROP CONSTRAINT tenants_status_check,
    ADD CONSTRAINT tenants_status_check CHECK (status IN ('active', 'suspended')),
    DROP COLUMN status_reason, DROP COLUMN max_jobs, DROP COLUMN max_executions_per_day, DROP COLUMN requests_per_second,
    DROP COLUMN min_interval_seconds, DROP COLUMN max_payload_bytes, DROP COLUMN job_types, DROP COLUMN allowed_ips;
DROP TABLE api_keys;
