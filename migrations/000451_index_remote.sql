-- A claim through the API finds the executions of a function that may start. No other
-- execution stands in this index. It is built beside writers.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS active_executions_remote;
CREATE INDEX CONCURRENTLY active_executions_remote ON active_executions (tenant_id, remote_function, priority, available_at)
    WHERE pooled AND remote_function IS NOT NULL;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS active_executions_remote;
