-- What the readers of the API and the cancelling of single runs need. Lock:
-- SHARE on active_executions and job_executions while indexes are built,
-- ACCESS EXCLUSIVE on job_versions for the moment of adding a column. Duration: as long as the rows
-- take.

-- +goose Up
-- Runs whose end was asked for: workers look twice a second. Over columns that
-- a claim leaves alone, so that claiming stays a HOT update.
CREATE INDEX active_executions_cancelling ON active_executions (id) WHERE cancel_requested_at IS NOT NULL;

-- What did not complete, which is little of all that ran and most of what is
-- asked for: a completed run costs nothing here.
CREATE INDEX job_executions_unsuccessful ON job_executions (tenant_id, scheduled_at DESC, id DESC) WHERE status <> 'completed';
CREATE INDEX job_executions_job_unsuccessful ON job_executions (job_id, scheduled_at DESC, id DESC) WHERE status <> 'completed';

-- Which version a rollback brought back.
ALTER TABLE job_versions ADD COLUMN restored_from integer;

-- +goose Down
ALTER TABLE job_versions DROP COLUMN restored_from;
DROP INDEX job_executions_job_unsuccessful;
DROP INDEX job_executions_unsuccessful;
DROP INDEX active_executions_cancelling;
