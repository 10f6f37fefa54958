-- A job may bound an execution over all its attempts. Workers and callbacks read the bound
-- from the job's version; the statements that move executions do not read it.

-- +goose Up
ALTER TABLE scheduled_jobs ADD COLUMN execution_timeout_seconds integer;
-- +goose StatementBegin
CREATE FUNCTION check_execution_timeout() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'new row for relation "%" violates check constraint "scheduled_jobs_execution_timeout_seconds_check"', TG_TABLE_NAME
        USING ERRCODE = 'check_violation', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = 'scheduled_jobs_execution_timeout_seconds_check';
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION check_execution_timeout() FROM PUBLIC;
-- A trigger of its own, which is called for no row that is right: its condition is cheaper
-- than another case of check_job, which each insertion and each update of a setting runs.
CREATE TRIGGER check_execution_timeout BEFORE INSERT OR UPDATE OF execution_timeout_seconds ON scheduled_jobs
    FOR EACH ROW WHEN (NOT NEW.execution_timeout_seconds BETWEEN 1 AND 2592000) EXECUTE FUNCTION check_execution_timeout();
ALTER TABLE scheduled_jobs ENABLE ALWAYS TRIGGER check_execution_timeout;

-- +goose Down
DROP TRIGGER check_execution_timeout ON scheduled_jobs;
DROP FUNCTION check_execution_timeout();
ALTER TABLE scheduled_jobs DROP COLUMN execution_timeout_seconds;
