-- API keys. Lock: none on existing tables. Duration: instant.

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
-- Locking a tenant's row, so that its limits hold among concurrent requests,
-- takes the right to update some column of it.
GRANT UPDATE (updated_at) ON tenants TO scheduler_api;

-- +goose Down
REVOKE UPDATE (updated_at) ON tenants FROM scheduler_api;
DROP TABLE api_keys;
