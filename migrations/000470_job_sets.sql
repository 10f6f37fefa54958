-- A job that files describe bears the name of the set that owns it. Lock: ACCESS EXCLUSIVE
-- on scheduled_jobs for a moment. The default is kept in the catalogue: no row is written.

-- +goose Up
ALTER TABLE scheduled_jobs ADD COLUMN set_name text NOT NULL DEFAULT ''; -- empty: no set

-- A set that takes a job over changes nothing else of it, which record_change would not see.
CREATE CONSTRAINT TRIGGER record_set AFTER UPDATE OF set_name ON scheduled_jobs
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('job', 'id', 'tenant_id',
    'id,tenant_id,created_at,created_by,updated_at,last_execution_at,execution_count,audited_at,audit_difference,next_execution_at,catch_up_until,anchor_at,secret_names,status_at,status_by,max_attempts,generation');

-- +goose Down
DROP TRIGGER record_set ON scheduled_jobs;
ALTER TABLE scheduled_jobs DROP COLUMN set_name;
