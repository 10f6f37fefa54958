-- Notifications tell of jobs that were disabled by themselves. Few are.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS scheduled_jobs_disabled;
CREATE INDEX CONCURRENTLY scheduled_jobs_disabled ON scheduled_jobs (status_at) WHERE status = 'inactive' AND status_by = 'system';

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS scheduled_jobs_disabled;
