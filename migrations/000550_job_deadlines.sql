-- A job may say within how many seconds of a scheduled time its execution has to be
-- completed, so that somebody is told where it is not. Such jobs have a row that says when they are
-- looked at next; the others cost nothing.

-- +goose Up
ALTER TABLE scheduled_jobs ADD COLUMN complete_within_seconds integer;

CREATE TABLE job_deadlines (
    job_id     uuid PRIMARY KEY REFERENCES scheduled_jobs ON DELETE CASCADE,
    tenant_id  uuid        NOT NULL,
    checked_to timestamptz NOT NULL, -- scheduled times up to then are checked, or came before the setting
    check_at   timestamptz NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX job_deadlines_due ON job_deadlines (tenant_id, check_at, job_id);
ALTER TABLE job_deadlines ENABLE ROW LEVEL SECURITY;
ALTER TABLE job_deadlines FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON job_deadlines TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON job_deadlines TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE ON job_deadlines TO scheduler_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON job_deadlines TO scheduler_engine;

-- +goose StatementBegin
CREATE FUNCTION check_complete_within() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'new row for relation "%" violates check constraint "scheduled_jobs_complete_within_seconds_check"', TG_TABLE_NAME
        USING ERRCODE = 'check_violation', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = 'scheduled_jobs_complete_within_seconds_check';
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION check_complete_within() FROM PUBLIC;
CREATE TRIGGER check_complete_within BEFORE INSERT OR UPDATE OF complete_within_seconds ON scheduled_jobs
    FOR EACH ROW WHEN (NOT NEW.complete_within_seconds BETWEEN 60 AND 604800) EXECUTE FUNCTION check_complete_within();
ALTER TABLE scheduled_jobs ENABLE ALWAYS TRIGGER check_complete_within;

-- A job that is made with the setting, or changed in any way, is looked at anew: its next
-- deadline may be another. Scheduled times from before the setting have none.
-- +goose StatementBegin
CREATE FUNCTION set_job_deadline() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    INSERT INTO public.job_deadlines AS d (job_id, tenant_id, checked_to, check_at) VALUES (NEW.id, NEW.tenant_id, now(), now())
    ON CONFLICT (job_id) DO UPDATE
    SET check_at = now(), checked_to = CASE WHEN TG_OP = 'UPDATE' AND OLD.complete_within_seconds IS NULL THEN now() ELSE d.checked_to END;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION set_job_deadline() FROM PUBLIC;
CREATE TRIGGER set_job_deadline AFTER INSERT OR UPDATE OF complete_within_seconds ON scheduled_jobs
    FOR EACH ROW WHEN (NEW.complete_within_seconds IS NOT NULL) EXECUTE FUNCTION set_job_deadline();

-- +goose Down
DROP TRIGGER set_job_deadline ON scheduled_jobs;
DROP FUNCTION set_job_deadline();
DROP TRIGGER check_complete_within ON scheduled_jobs;
DROP FUNCTION check_complete_within();
DROP TABLE job_deadlines;
ALTER TABLE scheduled_jobs DROP COLUMN complete_within_seconds;
