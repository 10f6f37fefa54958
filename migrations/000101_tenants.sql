-- Tenants: what each may have, its API keys, and its refused calls.

-- +goose Up
CREATE TABLE tenants (
    id                     uuid PRIMARY KEY,
    name                   text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    -- Everything of a deleting tenant is removed in pieces. This row stays as deleted,
    -- so that no token brings the tenant back, and so do its audit log and its counts.
    status                 text        NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'suspended', 'deleting', 'deleted')),
    status_reason          text        NOT NULL DEFAULT '' CHECK (length(status_reason) <= 500),
    version                integer     NOT NULL DEFAULT 1, -- counts changes, except those of the status
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),

    -- Quotas. NULL: as the configuration of the processes says.
    max_running            integer CHECK (max_running BETWEEN 0 AND 1000000),
    max_running_by_type    jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(max_running_by_type) = 'object'), -- {"http": 50}
    max_jobs               integer CHECK (max_jobs BETWEEN 0 AND 10000000),
    max_calendars          integer CHECK (max_calendars BETWEEN 0 AND 100000),
    max_secrets            integer CHECK (max_secrets BETWEEN 0 AND 100000),
    max_api_keys           integer CHECK (max_api_keys BETWEEN 0 AND 100000),
    max_waiting            integer CHECK (max_waiting BETWEEN 1 AND 100000000),
    max_waiting_per_job    integer CHECK (max_waiting_per_job BETWEEN 1 AND 100000000),
    max_executions_per_day integer CHECK (max_executions_per_day BETWEEN 0 AND 1000000000),
    requests_per_second    integer CHECK (requests_per_second BETWEEN 1 AND 1000000),
    min_interval_seconds   integer CHECK (min_interval_seconds BETWEEN 1 AND 86400),
    max_payload_bytes      integer CHECK (max_payload_bytes BETWEEN 1024 AND 8388608),
    job_types              text[],
    allowed_ips            text[]      NOT NULL DEFAULT '{}' -- networks that its calls may come from; none: any
);
CREATE INDEX tenants_list ON tenants (created_at DESC, id DESC);
-- Few tenants are suspended or deleting, or have a bound on the executions of a day.
CREATE INDEX tenants_held ON tenants (id) WHERE status IN ('suspended', 'deleting');
CREATE INDEX tenants_daily ON tenants (id) WHERE max_executions_per_day IS NOT NULL;

ALTER TABLE tenants ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenants FORCE ROW LEVEL SECURITY;
-- On a connection that once set it the setting reverts to an empty text and not to
-- NULL: hence NULLIF, here and in every policy.
CREATE POLICY tenant ON tenants TO scheduler_api
    USING (id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
-- Platform administrators list tenants; every other statement names one. Of a CASE the
-- planner expects half of the rows to pass, of `setting = 'on'` one in 200, and then it
-- reads and sorts all tenants.
CREATE POLICY platform ON tenants FOR SELECT TO scheduler_api
    USING (CASE WHEN current_setting('app.platform', true) = 'on' THEN true ELSE false END);
CREATE POLICY engine ON tenants FOR SELECT TO scheduler_engine USING (true);
CREATE POLICY purge ON tenants FOR UPDATE TO scheduler_engine USING (status = 'deleting') WITH CHECK (status = 'deleted');
-- Locking a row takes the right to update some column of it.
GRANT SELECT, INSERT,
    UPDATE (name, status, status_reason, version, updated_at, max_running, max_running_by_type, max_jobs, max_calendars, max_secrets, max_api_keys,
            max_waiting, max_waiting_per_job, max_executions_per_day, requests_per_second, min_interval_seconds, max_payload_bytes, job_types, allowed_ips)
    ON tenants TO scheduler_api;
GRANT SELECT, UPDATE (name, status, updated_at) ON tenants TO scheduler_engine;

-- Policies let everything of a deleting tenant be removed, and nothing of any other.
-- +goose StatementBegin
CREATE FUNCTION tenant_is_deleting(tenant uuid) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp
AS $$ SELECT EXISTS (SELECT 1 FROM public.tenants t WHERE t.id = tenant AND t.status = 'deleting') $$;
-- +goose StatementEnd

CREATE TABLE api_keys (
    id            uuid PRIMARY KEY,
    tenant_id     uuid        NOT NULL REFERENCES tenants (id),
    name          text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    prefix        text        NOT NULL, -- the part that may be shown, so that people can tell keys apart
    -- SHA-256 of the whole key. It has 256 random bits, so a slow hash would cost each
    -- request time and protect nothing.
    hash          bytea       NOT NULL CHECK (length(hash) = 32),
    old_hash      bytea CHECK (length(old_hash) = 32), -- replaced by rotation and accepted until old_until
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
CREATE POLICY engine ON api_keys TO scheduler_engine USING (true) WITH CHECK (true);
CREATE POLICY purge ON api_keys AS RESTRICTIVE FOR DELETE TO scheduler_engine USING (tenant_is_deleting(tenant_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON api_keys TO scheduler_api;
GRANT SELECT, DELETE ON api_keys TO scheduler_engine;

-- Refused calls. A row is here for its transaction only: a trigger records it in the
-- audit log.
CREATE TABLE denied_calls (
    id        uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL REFERENCES tenants (id),
    operation text NOT NULL,
    reason    text NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
ALTER TABLE denied_calls ENABLE ROW LEVEL SECURITY;
ALTER TABLE denied_calls FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON denied_calls TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
GRANT SELECT, INSERT, DELETE ON denied_calls TO scheduler_api;

-- Remembered answers, by Idempotency-Key, written in the transaction of the change
-- itself.
CREATE TABLE idempotency_keys (
    tenant_id   uuid        NOT NULL,
    key         text        NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    route       text        NOT NULL,
    body_sha256 bytea       NOT NULL,
    status      integer     NOT NULL,
    response    jsonb       NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, key)
);
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);
ALTER TABLE idempotency_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE idempotency_keys FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON idempotency_keys TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON idempotency_keys TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_keys TO scheduler_api;
GRANT SELECT, UPDATE (expires_at), DELETE ON idempotency_keys TO scheduler_engine;

-- +goose Down
DROP TABLE idempotency_keys;
DROP TABLE denied_calls;
DROP TABLE api_keys;
DROP TABLE tenants;
DROP FUNCTION tenant_is_deleting(uuid);
