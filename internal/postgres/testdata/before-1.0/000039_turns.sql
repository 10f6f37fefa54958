-- Due jobs of each tenant, so that a promoter that finds more due than it takes can
-- give each tenant its turn. Lock: SHARE on scheduled_jobs, which lets nobody write
-- a job while the index is made. Duration: as long as the active jobs take to read,
-- some 2 s a million.

-- +goose Up
CREATE INDEX scheduled_jobs_turns ON scheduled_jobs (tenant_id, next_execution_at) WHERE status = 'active';

-- +goose Down
DROP INDEX scheduled_jobs_turns;
