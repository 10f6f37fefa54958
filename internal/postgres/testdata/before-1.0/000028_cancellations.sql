-- What is being cancelled in pieces, and what says so to claims and polls. Lock:
-- ACCESS EXCLUSIVE on scheduled_jobs, active_executions, running_counts and
-- tenants for the moment of adding columns with constant defaults (no rewrite)
-- and of making triggers again; SHARE on active_executions and tenants while an
-- index is built. Duration: instant, and as long as the active executions take.
--
-- Processes of the version before know no generation: executions that they make
-- of a job while it is being cancelled are cancelled too, and their workers may
-- start what waits to be cancelled; such a run is then asked to end.

-- +goose Up
-- generation counts how often everything of a job was cancelled in pieces. An
-- execution keeps that of its job from the moment in which it was made, so an
-- order for all up to a generation means what there was, whatever the clocks say.
ALTER TABLE scheduled_jobs ADD COLUMN generation integer NOT NULL DEFAULT 0;
ALTER TABLE active_executions ADD COLUMN generation integer NOT NULL DEFAULT 0;
GRANT UPDATE (generation) ON scheduled_jobs TO scheduler_engine;

-- Orders to cancel what a job has up to a generation. Nearly always empty: an
-- order is deleted once nothing under it waits and everything that runs is asked
-- to end.
CREATE TABLE cancellations (
    tenant_id       uuid        NOT NULL,
    job_id          uuid        NOT NULL,
    generation      integer     NOT NULL, -- and all before it
    spare_backfills boolean     NOT NULL, -- what backfills made goes on
    requested_at    timestamptz NOT NULL,
    reason          text        NOT NULL,
    cancelled_by    text        NOT NULL,
    PRIMARY KEY (job_id, generation)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX cancellations_turns ON cancellations (tenant_id, requested_at);
ALTER TABLE cancellations ENABLE ROW LEVEL SECURITY;
ALTER TABLE cancellations FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON cancellations TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON cancellations TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT ON cancellations TO scheduler_api;
GRANT SELECT, INSERT, DELETE ON cancellations TO scheduler_engine;

-- What a claim must know of a tenant stands in the row that it locks anyway, so
-- that it reads the newest state and not that of its snapshot: whoever suspends
-- a tenant or makes an order writes this row, and so waits for the claims under
-- way; those after it see what it wrote.
ALTER TABLE running_counts
    ADD COLUMN suspended  boolean NOT NULL DEFAULT false, -- the tenant is not active: nothing of it starts
    ADD COLUMN cancelling integer NOT NULL DEFAULT 0;     -- its orders in cancellations
GRANT UPDATE (suspended, cancelling) ON running_counts TO scheduler_api;

-- Whether an execution is under an order. Volatile, and in PL/pgSQL, so that it
-- sees what was committed when it is called: after the lock, not before. A claim
-- calls it for tenants that have an order.
-- +goose StatementBegin
CREATE FUNCTION is_cancelled(job uuid, made_in integer, of_backfill boolean) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM public.cancellations o
                   WHERE o.job_id = job AND o.generation >= made_in AND NOT (o.spare_backfills AND of_backfill));
END
$$;
-- +goose StatementEnd

-- count_active as it was, but for what waits to be cancelled: it takes no place
-- and stands in nobody's way.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION count_active(jobs uuid[]) RETURNS TABLE (job_id uuid, taken bigint, waiting bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT e.job_id, count(*) FILTER (WHERE e.status = 'running' OR e.concurrency_limit = 0),
           count(*) FILTER (WHERE e.status <> 'running' AND e.concurrency_limit > 0 AND e.backfill_id IS NULL)
    FROM public.active_executions e WHERE e.job_id = ANY (jobs)
      AND (e.status = 'running' OR NOT EXISTS (SELECT 1 FROM public.cancellations o
           WHERE o.job_id = e.job_id AND o.generation >= e.generation AND NOT (o.spare_backfills AND e.backfill_id IS NOT NULL)))
    GROUP BY e.job_id;
END
$$;
-- +goose StatementEnd

-- What one backfill has. No claim changes the column.
CREATE INDEX active_executions_backfill ON active_executions (backfill_id) WHERE backfill_id IS NOT NULL;

-- Deleted tenants stay for good and have nothing left to hold.
DROP INDEX tenants_held;
CREATE INDEX tenants_held ON tenants (id) WHERE status IN ('suspended', 'deleting');

-- The generation is no change that somebody made.
DROP TRIGGER record_change ON scheduled_jobs;
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR DELETE OR UPDATE OF version, status, deleted_at, paused_until ON scheduled_jobs
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited() OR current_setting('app.call', true) <> '') EXECUTE FUNCTION record_change('job', 'id', 'tenant_id',
    'id,tenant_id,created_at,created_by,updated_at,last_execution_at,execution_count,audited_at,audit_difference,next_execution_at,catch_up_until,anchor_at,secret_names,status_at,status_by,max_attempts,generation');
DROP TRIGGER record_change ON active_executions;
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT ON active_executions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('execution', 'id', 'tenant_id',
    'id,tenant_id,created_at,sweep_at,dispatch_seq,available_at,attempts,attempt,lost_count,progress,triggered_by,timeout_ms,max_attempts,concurrency_limit,generation');
DROP TRIGGER record_end ON active_executions;
CREATE CONSTRAINT TRIGGER record_end AFTER DELETE OR UPDATE OF cancel_requested_at ON active_executions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (audited() AND strpos(current_setting('app.call', true), '"executions":true') > 0)
    EXECUTE FUNCTION record_change('execution', 'id', 'tenant_id',
    'id,tenant_id,created_at,sweep_at,dispatch_seq,available_at,attempts,attempt,lost_count,progress,triggered_by,timeout_ms,max_attempts,concurrency_limit,generation');

-- The owner is bound by the policies too, and none is for it.
ALTER TABLE tenants NO FORCE ROW LEVEL SECURITY;
ALTER TABLE running_counts NO FORCE ROW LEVEL SECURITY;
UPDATE running_counts c SET suspended = true FROM tenants t WHERE t.id = c.tenant_id AND t.status <> 'active';
ALTER TABLE tenants FORCE ROW LEVEL SECURITY;
ALTER TABLE running_counts FORCE ROW LEVEL SECURITY;

-- +goose Down
DROP TRIGGER record_end ON active_executions;
CREATE CONSTRAINT TRIGGER record_end AFTER DELETE OR UPDATE OF cancel_requested_at ON active_executions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (audited() AND strpos(current_setting('app.call', true), '"executions":true') > 0)
    EXECUTE FUNCTION record_change('execution', 'id', 'tenant_id',
    'id,tenant_id,created_at,sweep_at,dispatch_seq,available_at,attempts,attempt,lost_count,progress,triggered_by,timeout_ms,max_attempts,concurrency_limit');
DROP TRIGGER record_change ON active_executions;
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT ON active_executions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('execution', 'id', 'tenant_id',
    'id,tenant_id,created_at,sweep_at,dispatch_seq,available_at,attempts,attempt,lost_count,progress,triggered_by,timeout_ms,max_attempts,concurrency_limit');
DROP TRIGGER record_change ON scheduled_jobs;
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR DELETE OR UPDATE OF version, status, deleted_at, paused_until ON scheduled_jobs
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited() OR current_setting('app.call', true) <> '') EXECUTE FUNCTION record_change('job', 'id', 'tenant_id',
    'id,tenant_id,created_at,created_by,updated_at,last_execution_at,execution_count,audited_at,audit_difference,next_execution_at,catch_up_until,anchor_at,secret_names,status_at,status_by,max_attempts');
DROP INDEX tenants_held;
CREATE INDEX tenants_held ON tenants (id) WHERE status <> 'active';
DROP INDEX active_executions_backfill;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION count_active(jobs uuid[]) RETURNS TABLE (job_id uuid, taken bigint, waiting bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT e.job_id, count(*) FILTER (WHERE e.status = 'running' OR e.concurrency_limit = 0),
           count(*) FILTER (WHERE e.status <> 'running' AND e.concurrency_limit > 0 AND e.backfill_id IS NULL)
    FROM public.active_executions e WHERE e.job_id = ANY (jobs) GROUP BY e.job_id;
END
$$;
-- +goose StatementEnd
DROP FUNCTION is_cancelled(uuid, integer, boolean);
ALTER TABLE running_counts DROP COLUMN suspended, DROP COLUMN cancelling;
DROP TABLE cancellations;
ALTER TABLE active_executions DROP COLUMN generation;
ALTER TABLE scheduled_jobs DROP COLUMN generation;
