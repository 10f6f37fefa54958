-- A backfill keeps the moment from which its interval counts. Until now the
-- promoter read it from the version that introduced the interval, which
-- retention may remove while the interval is still in force. Lock: ACCESS
-- EXCLUSIVE on backfills for the moment of adding a column. Duration: as long
-- as the running backfills take, of which a job has ten at most.

-- +goose Up
-- NULL: made by a process of the version before, see ClaimBackfills.
ALTER TABLE backfills ADD COLUMN anchor_at timestamptz;

-- The owner is bound by the policies too, and none is for it.
ALTER TABLE backfills NO FORCE ROW LEVEL SECURITY;
ALTER TABLE scheduled_jobs NO FORCE ROW LEVEL SECURITY;
ALTER TABLE job_versions NO FORCE ROW LEVEL SECURITY;
-- While the job still has the interval of the backfill's version, its own anchor
-- is the right one, whatever versions are left. Once it has another, the version
-- that introduced the interval tells, if retention left it.
UPDATE backfills b SET anchor_at = CASE
    WHEN EXISTS (SELECT 1 FROM job_versions n WHERE n.job_id = b.job_id AND n.version > b.job_version
                                                AND n.spec->'interval' IS DISTINCT FROM v.spec->'interval')
    THEN (SELECT max(n.created_at) FROM job_versions n
          WHERE n.job_id = b.job_id AND n.version <= b.job_version
            AND NOT EXISTS (SELECT 1 FROM job_versions p WHERE p.job_id = n.job_id AND p.version = n.version - 1
                                                           AND p.spec->'interval' IS NOT DISTINCT FROM n.spec->'interval'))
    ELSE (SELECT j.anchor_at FROM scheduled_jobs j WHERE j.id = b.job_id)
    END
FROM job_versions v
WHERE b.status = 'running' AND v.job_id = b.job_id AND v.version = b.job_version;
ALTER TABLE job_versions FORCE ROW LEVEL SECURITY;
ALTER TABLE scheduled_jobs FORCE ROW LEVEL SECURITY;
ALTER TABLE backfills FORCE ROW LEVEL SECURITY;

-- +goose Down
ALTER TABLE backfills DROP COLUMN anchor_at;
