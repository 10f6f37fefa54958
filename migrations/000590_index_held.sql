-- Once a circuit breaker has closed, the executions that it held back are looked up by it.
-- No other execution stands in this index. It is built beside writers.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS active_executions_held;
CREATE INDEX CONCURRENTLY active_executions_held ON active_executions (tenant_id, held_host) WHERE held_host IS NOT NULL;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS active_executions_held;
