-- The index serves only statements that compare its first column, which is never null.
-- The table is empty between two bursts. Then all indexes cost a plan the same, and a look-up
-- by id took the one before, read the whole of it for each row, and was kept for the next burst.
-- It is built beside writers.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS active_executions_by_job;
CREATE INDEX CONCURRENTLY active_executions_by_job ON active_executions (job_id, scheduled_at DESC, id DESC, has_slot) WHERE job_id IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS active_executions_job;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS active_executions_job;
CREATE INDEX CONCURRENTLY active_executions_job ON active_executions (job_id, scheduled_at DESC, id DESC, has_slot);
DROP INDEX CONCURRENTLY IF EXISTS active_executions_by_job;
