-- What a version changed is stored with it, and the API may remove versions of a
-- job that are beyond those that are kept. Lock: ACCESS EXCLUSIVE on job_versions
-- for the moment of adding a column without a default and a policy. Duration:
-- instant. Versions from before have no changed_fields: they are compared while
-- they are listed, in bounded pages.

-- +goose Up
-- The fields that differ from the version before, as the contract writes them;
-- empty for the first one.
ALTER TABLE job_versions ADD COLUMN changed_fields text[];
-- An update removes what lies behind the versions that are kept. The policy keeps
-- the newest 100, whatever the statement says, and what a run or a backfill needs.
GRANT DELETE ON job_versions TO scheduler_api;
CREATE POLICY surplus ON job_versions AS RESTRICTIVE FOR DELETE TO scheduler_api USING (
    version <= (SELECT j.version - 100 FROM scheduled_jobs j WHERE j.id = job_id)
    AND NOT EXISTS (SELECT 1 FROM active_executions a WHERE a.job_id = job_versions.job_id AND a.job_version = job_versions.version)
    AND NOT EXISTS (SELECT 1 FROM backfills b WHERE b.job_id = job_versions.job_id AND b.job_version = job_versions.version AND b.status = 'running')
);

-- +goose Down
DROP POLICY surplus ON job_versions;
REVOKE DELETE ON job_versions FROM scheduler_api;
ALTER TABLE job_versions DROP COLUMN changed_fields;
