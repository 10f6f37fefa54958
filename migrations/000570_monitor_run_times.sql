-- GET /monitor-runs counts a tenant's runs of a range by this index. It begins as the index before it, which goes: a ping
-- writes as many as it did. No lock holds up a ping; it takes as long as the table is read.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS monitor_runs_times;
CREATE INDEX CONCURRENTLY monitor_runs_times ON monitor_runs (tenant_id, at);
DROP INDEX CONCURRENTLY IF EXISTS monitor_runs_tenant;

-- +goose Down
CREATE INDEX CONCURRENTLY IF NOT EXISTS monitor_runs_tenant ON monitor_runs (tenant_id);
DROP INDEX CONCURRENTLY IF EXISTS monitor_runs_times;
