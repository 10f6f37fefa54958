-- What the readers of the API and the cancelling of single runs need. Lock:
-- SHARE on active_executions while its index is built, ACCESS EXCLUSIVE on
-- job_versions for the moment of adding a column. Duration: as long as the rows
-- take.

-- +goose Up
-- Runs whose end was asked for: workers look twice a second. Over columns that
-- a claim leaves alone, so that claiming stays a HOT update.
CREATE INDEX active_executions_cancelling ON active_executions (id) WHERE cancel_requested_at IS NOT NULL;

-- Which version a rollback brought back.
ALTER TABLE job_versions ADD COLUMN restored_from integer;

-- +goose Down
ALTER TABLE job_versions DROP COLUMN restored_from;
DROP INDEX active_executions_cancelling;
