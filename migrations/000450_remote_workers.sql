-- Workers of tenants, which run executions outside our processes and claim them through the
-- API: who they are, the functions that they registered, and which executions wait for one.

-- +goose Up
-- A row without a tenant is a worker of the service.
ALTER TABLE workers
    ADD COLUMN tenant_id     uuid,
    ADD COLUMN name          text,
    ADD COLUMN functions     text[] NOT NULL DEFAULT '{}',
    ADD COLUMN lease_seconds integer;
ALTER TABLE workers ENABLE ROW LEVEL SECURITY;
ALTER TABLE workers FORCE ROW LEVEL SECURITY;
CREATE POLICY fleet ON workers FOR SELECT TO scheduler_api USING (tenant_id IS NULL);
CREATE POLICY tenant ON workers TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON workers TO scheduler_engine USING (true) WITH CHECK (true);
GRANT INSERT, UPDATE (drained, dead) ON workers TO scheduler_api;
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR UPDATE OF drained ON workers
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('worker', 'id', 'tenant_id',
    'id,tenant_id,host,pid,running,job_types,started_at,heartbeat_at,expires_at,dead');

-- The functions that workers of a tenant registered, so that the API can check the jobs that
-- call them. A function stays when its last worker goes: its executions wait.
CREATE TABLE remote_functions (
    tenant_id    uuid        NOT NULL REFERENCES tenants (id),
    name         text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    description  text        NOT NULL CHECK (length(description) <= 1000),
    parameters   jsonb       NOT NULL CHECK (pg_column_size(parameters) <= 65536), -- their JSON schema; {} takes any
    published_at timestamptz NOT NULL DEFAULT now(), -- since when it is described so
    PRIMARY KEY (tenant_id, name)
);
ALTER TABLE remote_functions ENABLE ROW LEVEL SECURITY;
ALTER TABLE remote_functions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON remote_functions TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON remote_functions TO scheduler_engine USING (true) WITH CHECK (true);
CREATE POLICY purge ON remote_functions AS RESTRICTIVE FOR DELETE TO scheduler_engine USING (tenant_is_deleting(tenant_id));
GRANT SELECT, INSERT, UPDATE (description, parameters, published_at) ON remote_functions TO scheduler_api;
GRANT SELECT, DELETE ON remote_functions TO scheduler_engine;
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR UPDATE ON remote_functions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('remoteFunction', 'name', 'tenant_id',
    'tenant_id,published_at');

-- The function that an execution of type remote calls; NULL of every other. Claims through
-- the API find it by this.
ALTER TABLE active_executions ADD COLUMN remote_function text;

-- No hint brings such an execution: it is in the pool at once, or waits for its turn. One
-- place for all statements that insert executions; those of other types pay for the condition alone.
-- +goose StatementBegin
CREATE FUNCTION set_remote_function() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    NEW.remote_function := coalesce((SELECT v.spec -> 'config' ->> 'functionName' FROM public.job_versions v
                                     WHERE v.job_id = NEW.job_id AND v.version = NEW.job_version), '');
    NEW.pooled := NEW.concurrency_limit = 0 AND NEW.concurrency_key IS NULL;
    NEW.sweep_at := 'infinity';
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER set_remote_function BEFORE INSERT ON active_executions
    FOR EACH ROW WHEN (NEW.job_type = 'remote') EXECUTE FUNCTION set_remote_function();

-- Whether a live worker of the service runs a type.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION is_served(kind text, at timestamptz) RETURNS boolean LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (SELECT 1 FROM workers v WHERE v.tenant_id IS NULL AND NOT v.dead AND v.expires_at > at AND (v.job_types = '{}' OR kind = ANY (v.job_types)))
$$;
-- +goose StatementEnd

-- Whether a live worker of a tenant has a function.
-- +goose StatementBegin
CREATE FUNCTION is_served_by(tenant uuid, called text, at timestamptz) RETURNS boolean LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (SELECT 1 FROM workers v WHERE v.tenant_id = tenant AND NOT v.dead AND v.expires_at > at AND called = ANY (v.functions))
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION is_served_by(uuid, text, timestamptz);
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION is_served(kind text, at timestamptz) RETURNS boolean LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (SELECT 1 FROM workers v WHERE NOT v.dead AND v.expires_at > at AND (v.job_types = '{}' OR kind = ANY (v.job_types)))
$$;
-- +goose StatementEnd
DROP TRIGGER set_remote_function ON active_executions;
DROP FUNCTION set_remote_function();
ALTER TABLE active_executions DROP COLUMN remote_function;
DROP TABLE remote_functions;
DROP TRIGGER record_change ON workers;
REVOKE INSERT, UPDATE (drained, dead) ON workers FROM scheduler_api;
DROP POLICY engine ON workers;
DROP POLICY tenant ON workers;
DROP POLICY fleet ON workers;
ALTER TABLE workers NO FORCE ROW LEVEL SECURITY;
ALTER TABLE workers DISABLE ROW LEVEL SECURITY;
DELETE FROM workers WHERE tenant_id IS NOT NULL;
ALTER TABLE workers DROP COLUMN lease_seconds, DROP COLUMN functions, DROP COLUMN name, DROP COLUMN tenant_id;
