-- How many jobs a tenant has, counted as they come and go; more of what a
-- tenant may have; why a backfill waits. Lock: ACCESS EXCLUSIVE on tenants and
-- backfills for adding columns with constant defaults (no rewrite), and on
-- scheduled_jobs, whose policies are put off while its rows are counted once; all
-- until that is done, so the processes wait. Duration: one walk of
-- scheduled_jobs_list.

-- +goose Up
-- NULL is always: as the processes' configuration says.
ALTER TABLE tenants
    ADD COLUMN max_calendars integer CHECK (max_calendars BETWEEN 0 AND 100000),
    ADD COLUMN max_secrets   integer CHECK (max_secrets BETWEEN 0 AND 100000),
    ADD COLUMN max_api_keys  integer CHECK (max_api_keys BETWEEN 0 AND 100000);
GRANT UPDATE (max_calendars, max_secrets, max_api_keys) ON tenants TO scheduler_api;

-- Why a running backfill makes nothing now; empty: it does.
ALTER TABLE backfills ADD COLUMN held_by text NOT NULL DEFAULT '';

-- Jobs that are not deleted: the sum over a tenant's strands, of which a
-- transaction writes the one whose audit chain it writes too. That one it holds
-- already, so counting makes nobody wait who did not wait before.
CREATE TABLE job_counts (
    tenant_id uuid     NOT NULL,
    strand    smallint NOT NULL CHECK (strand BETWEEN 0 AND 7),
    jobs      bigint   NOT NULL, -- below zero where a job went by another strand than it came
    PRIMARY KEY (tenant_id, strand)
) WITH (
    fillfactor = 10,
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE job_counts ENABLE ROW LEVEL SECURITY;
ALTER TABLE job_counts FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON job_counts FOR SELECT TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON job_counts TO scheduler_engine USING (true) WITH CHECK (true);
CREATE POLICY purge ON job_counts AS RESTRICTIVE FOR DELETE TO scheduler_engine USING (tenant_is_deleting(tenant_id));
-- The trigger acts as the owner, whom the policies bind too.
CREATE POLICY owner ON job_counts TO CURRENT_USER USING (true) WITH CHECK (true);
GRANT SELECT ON job_counts TO scheduler_api;
GRANT SELECT, DELETE ON job_counts TO scheduler_engine;

-- What a transaction adds is gathered in app.jobs, by tenant, and written once,
-- whatever the number of jobs: a row that one transaction wrote 100,000 times
-- took two minutes (measured).
-- +goose StatementBegin
CREATE FUNCTION note_job() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    noted jsonb := coalesce(nullif(current_setting('app.jobs', true), ''), '{}')::jsonb;
    owner text;
    added int := 0;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        owner := OLD.tenant_id;
        IF OLD.deleted_at IS NULL THEN added := -1; END IF;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        owner := NEW.tenant_id;
        IF NEW.deleted_at IS NULL THEN added := added + 1; END IF;
    END IF;
    IF added <> 0 THEN
        PERFORM set_config('app.jobs', (noted || jsonb_build_object(owner, coalesce((noted ->> owner)::int, 0) + added))::text, true);
    END IF;
    RETURN NULL;
END
$$;

-- Deferred to the commit, as record_change is and, by its name, after it: the
-- row is locked for the moment of the commit only.
CREATE FUNCTION tally_jobs() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    noted text := coalesce(current_setting('app.jobs', true), '');
BEGIN
    IF noted <> '' THEN
        PERFORM set_config('app.jobs', '', true);
        INSERT INTO public.job_counts AS c (tenant_id, strand, jobs)
        SELECT n.key::uuid, coalesce(nullif(current_setting('app.strand', true), '')::smallint, 0), n.value::bigint
        FROM jsonb_each_text(noted::jsonb) n ORDER BY n.key
        ON CONFLICT (tenant_id, strand) DO UPDATE SET jobs = c.jobs + EXCLUDED.jobs;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION note_job(), tally_jobs() FROM PUBLIC;
CREATE TRIGGER note_job AFTER INSERT OR DELETE OR UPDATE OF deleted_at ON scheduled_jobs
    FOR EACH ROW EXECUTE FUNCTION note_job();
CREATE CONSTRAINT TRIGGER tally_jobs AFTER INSERT OR DELETE OR UPDATE OF deleted_at ON scheduled_jobs
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tally_jobs();

-- The owner is bound by the policies too, and none is for it.
ALTER TABLE scheduled_jobs NO FORCE ROW LEVEL SECURITY;
INSERT INTO job_counts (tenant_id, strand, jobs)
SELECT tenant_id, 0, count(*) FROM scheduled_jobs WHERE deleted_at IS NULL GROUP BY tenant_id;
ALTER TABLE scheduled_jobs FORCE ROW LEVEL SECURITY;

-- +goose Down
DROP TRIGGER tally_jobs ON scheduled_jobs;
DROP TRIGGER note_job ON scheduled_jobs;
DROP FUNCTION tally_jobs();
DROP FUNCTION note_job();
DROP TABLE job_counts;
ALTER TABLE backfills DROP COLUMN held_by;
ALTER TABLE tenants DROP COLUMN max_calendars, DROP COLUMN max_secrets, DROP COLUMN max_api_keys;
