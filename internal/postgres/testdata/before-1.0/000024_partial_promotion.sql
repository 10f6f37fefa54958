-- A job that owes more than a pass takes is promoted in pieces, and a job that
-- cannot be promoted is parked, which the audit log shows. Lock: ACCESS EXCLUSIVE
-- on scheduled_jobs for the moment of adding a column without a default (no
-- rewrite) and of replacing a trigger. Duration: instant.

-- +goose Up
-- While a job catches up in pieces: its misfire policy has decided about the
-- scheduled times up to this one, and those from next_execution_at on run.
ALTER TABLE scheduled_jobs ADD COLUMN catch_up_until timestamptz;
GRANT UPDATE (catch_up_until) ON scheduled_jobs TO scheduler_engine;

-- Also what a process changes that names its call in app.call.
DROP TRIGGER record_change ON scheduled_jobs;
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR DELETE OR UPDATE OF version, status, deleted_at, paused_until ON scheduled_jobs
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited() OR current_setting('app.call', true) <> '')
    EXECUTE FUNCTION record_change('job', 'id', 'tenant_id',
    'id,tenant_id,created_at,created_by,updated_at,last_execution_at,execution_count,audited_at,audit_difference,next_execution_at,catch_up_until,anchor_at,secret_names,status_at,status_by,max_attempts');

-- +goose Down
DROP TRIGGER record_change ON scheduled_jobs;
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR DELETE OR UPDATE OF version, status, deleted_at, paused_until ON scheduled_jobs
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('job', 'id', 'tenant_id',
    'id,tenant_id,created_at,created_by,updated_at,last_execution_at,execution_count,audited_at,audit_difference,next_execution_at,anchor_at,secret_names,status_at,status_by,max_attempts');
ALTER TABLE scheduled_jobs DROP COLUMN catch_up_until;
