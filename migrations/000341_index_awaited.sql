-- Maintenance finds the attempts whose wait for a callback must end. None is there yet, so
-- the index is small; it is built beside writers all the same.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS active_executions_awaited;
-- A claim changes no column of it and stays a HOT update.
CREATE INDEX CONCURRENTLY active_executions_awaited ON active_executions (awaited_until) WHERE awaited_until IS NOT NULL;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS active_executions_awaited;
