-- Leases for what one process does at a time, and what retention may remove.
-- Lock: ACCESS EXCLUSIVE on scheduled_jobs, job_versions and backfills for the
-- moment of making policies, SHARE on job_executions while its index is made.
-- Duration: as long as these tables take to read.

-- +goose Up
-- One row for each lease that was ever taken, and never deleted: its fencing
-- number grows with each acquisition, so a late owner has a lower one.
CREATE TABLE scheduler_locks (
    name        text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 100),
    owner       uuid        NOT NULL, -- random, of this acquisition
    holder      text        NOT NULL CHECK (length(holder) <= 200), -- host and process id, for the operator
    fence       bigint      NOT NULL DEFAULT 1 CHECK (fence >= 1),
    acquired_at timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL
) WITH (fillfactor = 50);
-- The API takes one lease only: the one by which GET /health tries whether
-- leases work.
ALTER TABLE scheduler_locks ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler_locks FORCE ROW LEVEL SECURITY;
CREATE POLICY health ON scheduler_locks TO scheduler_api USING (name = 'health') WITH CHECK (name = 'health');
CREATE POLICY engine ON scheduler_locks TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE ON scheduler_locks TO scheduler_api, scheduler_engine;

-- Takes the oldest partition out of job_executions whose month lies wholly
-- before the given instant. Answers its name, 'busy' when a lock was not to be
-- had in time, and '' when there is none. SECURITY DEFINER, because retention
-- must not own the table; it names everything itself, and refuses the current
-- month and the one before it whatever it is asked.
--
-- A plain DETACH, because DETACH … CONCURRENTLY runs in no function and would
-- take the owner's password into a process that runs all the time. It needs
-- ACCESS EXCLUSIVE on the parent for a moment: while it waits for that, readers
-- and writers wait behind it, and so it gives up after 50 ms for each of its two
-- locks and is asked again later. One that somebody began CONCURRENTLY and did not
-- finish is finished first.
-- +goose StatementBegin
CREATE FUNCTION detach_job_executions_partition(before timestamptz) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO' SET lock_timeout = '50ms'
AS $$
DECLARE
    part    text;
    pending boolean;
BEGIN
    IF before > date_trunc('month', now()) - interval '1 month' THEN
        RAISE EXCEPTION 'partitions up to % are too young to be removed', before USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF EXISTS (SELECT 1 FROM pg_partitioned_table WHERE partrelid = 'public.job_executions'::regclass AND partdefid <> 0) THEN
        RAISE EXCEPTION 'job_executions has a default partition, which a DETACH would lock and read: move its rows and drop it';
    END IF;
    -- Who makes partitions holds the same.
    IF NOT pg_try_advisory_xact_lock(hashtext('job_executions_partition')) THEN
        RETURN 'busy';
    END IF;
    SELECT month.name, month.pending INTO part, pending
    FROM (SELECT c.relname::text AS name, i.inhdetachpending AS pending, to_date(right(c.relname, 7), 'YYYY_MM')::timestamptz AS start,
                 pg_get_expr(c.relpartbound, c.oid) AS bounds
          FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
          WHERE i.inhparent = 'public.job_executions'::regclass AND c.relname ~ '^job_executions_[0-9]{4}_(0[1-9]|1[0-2])$') month
    WHERE month.start + interval '1 month' <= before
      AND (month.pending OR month.bounds = format('FOR VALUES FROM (%L) TO (%L)', month.start, month.start + interval '1 month'))
    ORDER BY month.pending DESC, month.start LIMIT 1;
    IF part IS NULL THEN
        RETURN '';
    END IF;
    BEGIN
        EXECUTE format('ALTER TABLE public.job_executions DETACH PARTITION public.%I %s', part, CASE WHEN pending THEN 'FINALIZE' ELSE '' END);
        EXECUTE format('COMMENT ON TABLE public.%I IS %L', part, 'removed by retention');
    EXCEPTION WHEN lock_not_available THEN
        RETURN 'busy';
    END;
    RETURN part;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION detach_job_executions_partition(timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION detach_job_executions_partition(timestamptz) TO scheduler_engine;

-- Drops the oldest table that the function above took out, and answers as it
-- does. A table that somebody else detached has not its comment and stays.
-- +goose StatementBegin
CREATE FUNCTION drop_job_executions_partition() RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp SET lock_timeout = '50ms'
AS $$
DECLARE
    part text;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('job_executions_partition')) THEN
        RETURN 'busy';
    END IF;
    SELECT c.relname INTO part FROM pg_class c
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND NOT c.relispartition
      AND c.relowner = (SELECT p.relowner FROM pg_class p WHERE p.oid = 'public.job_executions'::regclass)
      AND c.relname ~ '^job_executions_[0-9]{4}_(0[1-9]|1[0-2])$' AND obj_description(c.oid, 'pg_class') = 'removed by retention'
    ORDER BY c.relname LIMIT 1;
    IF part IS NULL THEN
        RETURN '';
    END IF;
    BEGIN
        EXECUTE format('DROP TABLE IF EXISTS public.%I', part);
    EXCEPTION WHEN lock_not_available THEN
        RETURN 'busy';
    END;
    RETURN part;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION drop_job_executions_partition() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION drop_job_executions_partition() TO scheduler_engine;

-- What else retention removes, row by row. The policies refuse what is in use
-- or was a month ago, whatever the statement says.
GRANT DELETE ON scheduled_jobs, job_versions, backfills TO scheduler_engine;
CREATE POLICY retention ON scheduled_jobs AS RESTRICTIVE FOR DELETE TO scheduler_engine
    USING (deleted_at < now() - interval '1 month');
CREATE POLICY retention ON job_versions FOR DELETE TO scheduler_engine
    USING (created_at < now() - interval '1 month' AND version < (SELECT j.version FROM scheduled_jobs j WHERE j.id = job_id));
CREATE POLICY retention ON backfills AS RESTRICTIVE FOR DELETE TO scheduler_engine
    USING (status <> 'running' AND finished_at < now() - interval '1 month');
CREATE INDEX scheduled_jobs_deleted ON scheduled_jobs (deleted_at) WHERE deleted_at IS NOT NULL;
-- The first version of a job supersedes none.
CREATE INDEX job_versions_superseding ON job_versions (created_at, job_id, version) WHERE version > 1;
CREATE INDEX backfills_finished ON backfills (finished_at) WHERE status <> 'running';

-- What the executions of each tenant came to since counting began, and of the
-- whole service under the nil id, which no tenant has. The service's counted_to
-- is the instant up to which outcomes are counted, its taken_at the newest half
-- minute in the history.
CREATE TABLE metric_totals (
    tenant_id   uuid PRIMARY KEY,
    counted_to  timestamptz NOT NULL,
    taken_at    timestamptz,
    completed   bigint      NOT NULL DEFAULT 0,
    failed      bigint      NOT NULL DEFAULT 0,
    cancelled   bigint      NOT NULL DEFAULT 0,
    skipped     bigint      NOT NULL DEFAULT 0, -- rows of status skipped and missed
    timed_out   bigint      NOT NULL DEFAULT 0, -- of those that failed
    retried     bigint      NOT NULL DEFAULT 0, -- took more than one attempt
    timed       bigint      NOT NULL DEFAULT 0, -- have a duration
    duration_ms bigint      NOT NULL DEFAULT 0  -- of these, together
) WITH (fillfactor = 50);
INSERT INTO metric_totals (tenant_id, counted_to) VALUES ('00000000-0000-0000-0000-000000000000', now());
ALTER TABLE metric_totals ENABLE ROW LEVEL SECURITY;
ALTER TABLE metric_totals FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON metric_totals TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON metric_totals TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE ON metric_totals TO scheduler_engine;
-- Outcomes since an instant, however many there were before. Those of one batch
-- share theirs, so an entry is small.
CREATE INDEX job_executions_completed ON job_executions (completed_at);

-- The numbers of each tenant and of the service as they were, every half minute.
CREATE TABLE metric_history (
    tenant_id   uuid        NOT NULL,
    taken_at    timestamptz NOT NULL,
    coarse      boolean     NOT NULL, -- kept when the others of its five minutes are gone
    jobs        bigint      NOT NULL,
    active_jobs bigint      NOT NULL,
    paused_jobs bigint      NOT NULL,
    waiting     bigint      NOT NULL,
    running     bigint      NOT NULL,
    workers     bigint      NOT NULL,
    completed   bigint      NOT NULL,
    failed      bigint      NOT NULL,
    cancelled   bigint      NOT NULL,
    skipped     bigint      NOT NULL,
    timed_out   bigint      NOT NULL,
    retried     bigint      NOT NULL,
    timed       bigint      NOT NULL,
    duration_ms bigint      NOT NULL,
    PRIMARY KEY (tenant_id, taken_at)
);
CREATE INDEX metric_history_fine ON metric_history (taken_at) WHERE NOT coarse;
CREATE INDEX metric_history_coarse ON metric_history (taken_at) WHERE coarse;
ALTER TABLE metric_history ENABLE ROW LEVEL SECURITY;
ALTER TABLE metric_history FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON metric_history TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON metric_history TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT ON metric_history TO scheduler_api;
GRANT SELECT, INSERT, DELETE ON metric_history TO scheduler_engine;

-- +goose Down
DROP TABLE metric_history;
DROP INDEX job_executions_completed;
DROP TABLE metric_totals;
DROP INDEX backfills_finished;
DROP INDEX job_versions_superseding;
DROP INDEX scheduled_jobs_deleted;
DROP POLICY retention ON backfills;
DROP POLICY retention ON job_versions;
DROP POLICY retention ON scheduled_jobs;
REVOKE DELETE ON scheduled_jobs, job_versions, backfills FROM scheduler_engine;
DROP FUNCTION drop_job_executions_partition();
DROP FUNCTION detach_job_executions_partition(timestamptz);
DROP TABLE scheduler_locks;
