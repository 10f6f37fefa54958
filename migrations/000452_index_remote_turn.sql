-- A claim through the API finds the jobs whose executions wait for a concurrency slot or key.
-- No other execution stands in this index. It is built beside writers.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS active_executions_remote_turn;
CREATE INDEX CONCURRENTLY active_executions_remote_turn ON active_executions (tenant_id, remote_function, job_id)
    WHERE awaits_turn AND remote_function IS NOT NULL;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS active_executions_remote_turn;
