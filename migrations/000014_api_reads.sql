-- What the readers of the API and the cancelling of single runs need. Lock:
-- SHARE on active_executions while its index is built. Duration: as long as
-- the rows take.

-- +goose Up
-- Runs whose end was asked for: workers look twice a second. Over columns that
-- a claim leaves alone, so that claiming stays a HOT update.
CREATE INDEX active_executions_cancelling ON active_executions (id) WHERE cancel_requested_at IS NOT NULL;

-- +goose Down
DROP INDEX active_executions_cancelling;
