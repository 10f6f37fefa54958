-- The WebAssembly modules that tenants upload, each under a name, in versions that never
-- change. The bytes have a table of their own, so that lists read none.

-- +goose Up
CREATE TABLE functions (
    id         uuid PRIMARY KEY,
    tenant_id  uuid        NOT NULL REFERENCES tenants (id),
    name       text        NOT NULL CHECK (name ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$'),
    version    integer     NOT NULL DEFAULT 1 CHECK (version >= 1), -- the newest, with
    digest     text        NOT NULL CHECK (digest ~ '^[0-9a-f]{64}$'), -- its SHA-256
    size_bytes integer     NOT NULL CHECK (size_bytes BETWEEN 1 AND 8388608),
    created_by text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_by text        NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant_id, name)
);
CREATE INDEX functions_list ON functions (tenant_id, created_at DESC, id DESC);

CREATE TABLE function_versions (
    function_id uuid        NOT NULL REFERENCES functions (id) ON DELETE CASCADE,
    version     integer     NOT NULL CHECK (version >= 1),
    tenant_id   uuid        NOT NULL,
    digest      text        NOT NULL CHECK (digest ~ '^[0-9a-f]{64}$'),
    size_bytes  integer     NOT NULL CHECK (size_bytes BETWEEN 1 AND 8388608),
    created_by  text        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (function_id, version)
);
CREATE INDEX function_versions_tenant ON function_versions (tenant_id) INCLUDE (size_bytes);

CREATE TABLE function_modules (
    function_id uuid    NOT NULL,
    version     integer NOT NULL,
    tenant_id   uuid    NOT NULL,
    module      bytea   NOT NULL,
    PRIMARY KEY (function_id, version),
    FOREIGN KEY (function_id, version) REFERENCES function_versions (function_id, version) ON DELETE CASCADE
);
-- Code hardly compresses, and is read whole.
ALTER TABLE function_modules ALTER COLUMN module SET STORAGE EXTERNAL;

ALTER TABLE functions ENABLE ROW LEVEL SECURITY;
ALTER TABLE functions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON functions TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON functions TO scheduler_engine USING (true) WITH CHECK (true);
CREATE POLICY purge ON functions AS RESTRICTIVE FOR DELETE TO scheduler_engine USING (tenant_is_deleting(tenant_id));
GRANT SELECT, INSERT, DELETE, UPDATE (version, digest, size_bytes, updated_by, updated_at) ON functions TO scheduler_api;
GRANT SELECT, DELETE ON functions TO scheduler_engine;

ALTER TABLE function_versions ENABLE ROW LEVEL SECURITY;
ALTER TABLE function_versions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON function_versions TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON function_versions TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, DELETE ON function_versions TO scheduler_api;
GRANT SELECT ON function_versions TO scheduler_engine;

-- The API stores modules; only a worker reads them.
ALTER TABLE function_modules ENABLE ROW LEVEL SECURITY;
ALTER TABLE function_modules FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON function_modules TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON function_modules TO scheduler_engine USING (true) WITH CHECK (true);
GRANT INSERT ON function_modules TO scheduler_api;
GRANT SELECT ON function_modules TO scheduler_engine;

CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR DELETE OR UPDATE ON functions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('function', 'name', 'tenant_id',
    'tenant_id,created_at,created_by,updated_at,updated_by');

-- +goose Down
DROP TABLE function_modules;
DROP TABLE function_versions;
DROP TABLE functions;
