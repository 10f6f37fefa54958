-- What runs, counted: per tenant and type, and per concurrency key. Lock:
-- ACCESS EXCLUSIVE on tenants, scheduled_jobs, active_executions and workers for
-- the moment of adding columns with constant defaults (no rewrite). Duration:
-- instant, and the index on active_executions as long as its rows take.
--
-- Workers of the version before do not count: what they claim and end while
-- versions are mixed makes the counts differ, and the auditor corrects that
-- within two minutes of the last of them.

-- +goose Up
ALTER TABLE tenants
    -- NULL: as the processes' configuration says (TENANT_MAX_RUNNING).
    ADD COLUMN max_running         integer CHECK (max_running BETWEEN 0 AND 1000000),
    -- {"http": 50}; a type that is not named has no limit of its own.
    ADD COLUMN max_running_by_type jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(max_running_by_type) = 'object');

-- How many executions of a tenant run: one row, so that one lock decides about
-- the whole tenant and both limits, and a claim writes one tuple for it. It is
-- written by every statement that starts or ends a run, after the executions
-- themselves are locked and in the order of tenants, so that no two statements
-- wait for one another. Room for hundreds of versions on a page: updates are
-- HOT and the page is pruned as they go.
CREATE TABLE running_counts (
    tenant_id        uuid PRIMARY KEY,
    running          integer NOT NULL DEFAULT 0,
    running_http     integer NOT NULL DEFAULT 0,
    running_function integer NOT NULL DEFAULT 0,
    running_command  integer NOT NULL DEFAULT 0,
    -- When a claim last had to leave something behind: for a minute after it,
    -- whatever ends looks for the next in line.
    crowded_at       timestamptz
) WITH (
    fillfactor = 10,
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE running_counts ENABLE ROW LEVEL SECURITY;
ALTER TABLE running_counts FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON running_counts TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON running_counts TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT ON running_counts TO scheduler_api;
GRANT SELECT, INSERT, UPDATE ON running_counts TO scheduler_engine;

-- Every tenant has its row from the beginning: a claim finds and locks it, and
-- nothing of a tenant without one starts.
-- +goose StatementBegin
CREATE FUNCTION count_new_tenant() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    INSERT INTO public.running_counts (tenant_id) VALUES (NEW.id) ON CONFLICT (tenant_id) DO NOTHING;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER count_new_tenant AFTER INSERT ON tenants FOR EACH ROW EXECUTE FUNCTION count_new_tenant();

ALTER TABLE scheduled_jobs ADD COLUMN concurrency_key text NOT NULL DEFAULT '' CHECK (length(concurrency_key) <= 200);
ALTER TABLE active_executions ADD COLUMN concurrency_key text CHECK (octet_length(concurrency_key) BETWEEN 1 AND 256);
-- Who waits for a key. A claim leaves both columns alone, so it stays a HOT
-- update, and a run without a key has no entry.
CREATE INDEX active_executions_key ON active_executions (tenant_id, concurrency_key) WHERE concurrency_key IS NOT NULL;

-- Which run holds a key. The primary key is the limit: of two claims one
-- inserts.
CREATE TABLE running_keys (
    tenant_id    uuid NOT NULL,
    key          text NOT NULL,
    execution_id uuid NOT NULL UNIQUE,
    PRIMARY KEY (tenant_id, key)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE running_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE running_keys FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON running_keys FOR SELECT TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON running_keys TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT ON running_keys TO scheduler_api;
GRANT SELECT, INSERT, DELETE ON running_keys TO scheduler_engine;

-- Which job types a worker runs.
ALTER TABLE workers ADD COLUMN job_types text[] NOT NULL DEFAULT '{}';

-- The owner is bound by the policies too, and none is for it.
ALTER TABLE tenants NO FORCE ROW LEVEL SECURITY;
ALTER TABLE active_executions NO FORCE ROW LEVEL SECURITY;
ALTER TABLE running_counts NO FORCE ROW LEVEL SECURITY;
INSERT INTO running_counts (tenant_id, running, running_http, running_function, running_command)
SELECT t.id, count(e.id), count(e.id) FILTER (WHERE e.job_type = 'http'), count(e.id) FILTER (WHERE e.job_type = 'function'),
       count(e.id) FILTER (WHERE e.job_type = 'command')
FROM tenants t LEFT JOIN active_executions e ON e.tenant_id = t.id AND e.status = 'running'
GROUP BY t.id;
ALTER TABLE tenants FORCE ROW LEVEL SECURITY;
ALTER TABLE active_executions FORCE ROW LEVEL SECURITY;
ALTER TABLE running_counts FORCE ROW LEVEL SECURITY;

-- +goose Down
ALTER TABLE workers DROP COLUMN job_types;
DROP TABLE running_keys;
DROP INDEX active_executions_key;
ALTER TABLE active_executions DROP COLUMN concurrency_key;
ALTER TABLE scheduled_jobs DROP COLUMN concurrency_key;
DROP TRIGGER count_new_tenant ON tenants;
DROP FUNCTION count_new_tenant();
DROP TABLE running_counts;
ALTER TABLE tenants DROP COLUMN max_running_by_type, DROP COLUMN max_running;
