-- Within a set a name is one job, also when two callers apply it at the same time. The order is
-- that of the sections: byte by byte. Jobs of no set are not in it, so promoting them costs no more.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS scheduled_jobs_set;
CREATE UNIQUE INDEX CONCURRENTLY scheduled_jobs_set ON scheduled_jobs (tenant_id, set_name, name COLLATE "C") WHERE set_name <> '' AND deleted_at IS NULL;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS scheduled_jobs_set;
