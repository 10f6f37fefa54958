-- Where the schedule of a job is, apart from what the job is: the promoter writes the one
-- with each execution, and people write the other now and then. A row of the first has some 100
-- bytes and three index entries. In a row with the definition each execution wrote anew the whole
-- of it, and four index entries.
--
-- Three migrations bring it while processes of the version before work: this one makes the
-- table, which follows what they write; the next one fills it; the third divides the old table.

-- +goose Up
-- No foreign key: to check it at each creation takes a tenth of the creation. A trigger removes the
-- row with its job.
CREATE TABLE job_schedule (
    job_id            uuid PRIMARY KEY,
    tenant_id         uuid        NOT NULL,
    status            text        NOT NULL, -- the job's, by which the indexes choose
    next_execution_at timestamptz,
    last_execution_at timestamptz,
    execution_count   bigint      NOT NULL DEFAULT 0,
    -- While a job catches up in pieces: its misfire policy has decided up to here, and
    -- the times from next_execution_at on run.
    catch_up_until    timestamptz,
    -- The difference that reconciling found last: rows beyond (+) or short of (-) scheduled times.
    audited_at        timestamptz,
    audit_difference  bigint
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_threshold = 2000, autovacuum_analyze_scale_factor = 0.5);
-- The promoter's claim walks what is due from the oldest scheduled time on, or, when
-- more is due than it takes, by turns of the tenants.
CREATE INDEX job_schedule_due ON job_schedule (next_execution_at) WHERE status = 'active';
CREATE INDEX job_schedule_turns ON job_schedule (tenant_id, next_execution_at) WHERE status = 'active';
ALTER TABLE job_schedule ENABLE ROW LEVEL SECURITY;
ALTER TABLE job_schedule FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON job_schedule TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON job_schedule TO scheduler_engine USING (true) WITH CHECK (true);
CREATE POLICY retention ON job_schedule AS RESTRICTIVE FOR DELETE TO scheduler_engine
    USING (NOT EXISTS (SELECT 1 FROM scheduled_jobs j WHERE j.id = job_id));
GRANT SELECT, INSERT, UPDATE ON job_schedule TO scheduler_api;
-- INSERT until the old table is divided: a row that is updated before it is filled in.
GRANT SELECT, INSERT, UPDATE, DELETE ON job_schedule TO scheduler_engine;

-- The owner of the tables sees none of their rows. It fills the new table from the old one.
CREATE POLICY filling ON job_schedule TO CURRENT_USER USING (true) WITH CHECK (true);
CREATE POLICY filling ON scheduled_jobs TO CURRENT_USER USING (true) WITH CHECK (true);

-- +goose StatementBegin
CREATE FUNCTION follow_job() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM public.job_schedule s WHERE s.job_id = OLD.id;
        RETURN NULL;
    END IF;
    INSERT INTO public.job_schedule (job_id, tenant_id, status, next_execution_at, last_execution_at, execution_count, catch_up_until, audited_at, audit_difference)
    VALUES (NEW.id, NEW.tenant_id, NEW.status, NEW.next_execution_at, NEW.last_execution_at, NEW.execution_count, NEW.catch_up_until, NEW.audited_at, NEW.audit_difference)
    ON CONFLICT (job_id) DO UPDATE
    SET status = EXCLUDED.status, next_execution_at = EXCLUDED.next_execution_at, last_execution_at = EXCLUDED.last_execution_at,
        execution_count = EXCLUDED.execution_count, catch_up_until = EXCLUDED.catch_up_until, audited_at = EXCLUDED.audited_at,
        audit_difference = EXCLUDED.audit_difference;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER follow_job AFTER INSERT OR DELETE
    OR UPDATE OF status, next_execution_at, last_execution_at, execution_count, catch_up_until, audited_at, audit_difference ON scheduled_jobs
    FOR EACH ROW EXECUTE FUNCTION follow_job();

-- +goose Down
DROP TRIGGER follow_job ON scheduled_jobs;
DROP FUNCTION follow_job();
DROP POLICY filling ON scheduled_jobs;
DROP TABLE job_schedule;
