-- GET /status counts the jobs that are not active by this index. Active ones, which are promoted, have no entry in it.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS scheduled_jobs_idle;
CREATE INDEX CONCURRENTLY scheduled_jobs_idle ON scheduled_jobs (tenant_id, status) WHERE status <> 'active' AND deleted_at IS NULL;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS scheduled_jobs_idle;
