-- Tenants. Lock: none on existing tables. Duration: instant.

-- +goose Up
CREATE TABLE tenants (
    id         uuid PRIMARY KEY,
    name       text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    status     text        NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'suspended')),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

ALTER TABLE tenants ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenants FORCE ROW LEVEL SECURITY;
-- The setting reverts to an empty text, not to NULL, on a connection on which
-- it was once set: hence NULLIF.
CREATE POLICY tenant ON tenants TO scheduler_api
    USING (id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON tenants FOR SELECT TO scheduler_engine USING (true);
GRANT SELECT, INSERT ON tenants TO scheduler_api;
GRANT SELECT ON tenants TO scheduler_engine;

-- +goose Down
DROP TABLE tenants;
