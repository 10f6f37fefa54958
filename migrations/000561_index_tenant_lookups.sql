-- The index serves only statements that compare its first column, which is never null.
-- The table is empty between two bursts. Then all indexes cost a plan the same, and a look-up
-- by id took the one before, read the whole of it for each row, and was kept for the next burst.
-- It is built beside writers.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS active_executions_by_tenant;
CREATE INDEX CONCURRENTLY active_executions_by_tenant ON active_executions (tenant_id, scheduled_at DESC, id DESC) WHERE tenant_id IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS active_executions_list;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS active_executions_list;
CREATE INDEX CONCURRENTLY active_executions_list ON active_executions (tenant_id, scheduled_at DESC, id DESC);
DROP INDEX CONCURRENTLY IF EXISTS active_executions_by_tenant;
