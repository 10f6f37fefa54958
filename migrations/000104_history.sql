-- Executions that are finished, in one partition a month, and one view over all.

-- +goose Up
-- Partitioned on scheduled_at and not on created_at: the primary key then makes a second
-- outcome for one scheduled time impossible. Append-only by grant: nobody but the owner
-- may update, so an outcome cannot change and partitions need no vacuum. There is no
-- default partition: with one, no partition could be detached without blocking writers.
CREATE TABLE job_executions (
    id                 uuid        NOT NULL,
    scheduled_at       timestamptz NOT NULL,
    tenant_id          uuid        NOT NULL,
    job_id             uuid        NOT NULL,
    job_version        integer     NOT NULL,
    backfill_id        uuid,
    trigger_type       text        NOT NULL,
    triggered_by       text        NOT NULL DEFAULT '',
    job_type           text        NOT NULL,
    priority           smallint    NOT NULL DEFAULT 0,
    parameters         jsonb,
    status             text        NOT NULL CHECK (status IN ('completed', 'failed', 'cancelled', 'skipped', 'missed')),
    reason             text        NOT NULL DEFAULT '',
    cancelled_by       text        NOT NULL DEFAULT '',
    -- A row of status missed may stand for several scheduled times: how many, and the
    -- last of them; scheduled_at is the first.
    missed_count       bigint,
    missed_until       timestamptz,
    attempt            integer     NOT NULL DEFAULT 0,
    max_attempts       integer     NOT NULL DEFAULT 0,
    progress           smallint    NOT NULL DEFAULT 0,
    attempts           jsonb       NOT NULL DEFAULT '[]',
    worker_id          uuid,
    lease_token        uuid,
    started_at         timestamptz,
    attempt_started_at timestamptz, -- of the last attempt; NULL where the first was the last
    completed_at       timestamptz NOT NULL,
    duration_us        bigint,
    duration_ms        bigint, -- only of executions from before 1.0, which have no duration_us
    result             jsonb,
    error_type         text CHECK (error_type IN ('TIMEOUT', 'NETWORK_ERROR', 'VALIDATION_ERROR', 'SYSTEM_ERROR', 'USER_ERROR')),
    error_message      text,
    error_stack        text,
    memory_peak_mb     real,
    cpu_time_ms        bigint,
    created_at         timestamptz NOT NULL,
    PRIMARY KEY (id, scheduled_at)
) PARTITION BY RANGE (scheduled_at);

-- A completed execution has an entry in the key and in three of these indexes: list, job and
-- completed.
-- GET /executions, also of one job type.
CREATE INDEX job_executions_list ON job_executions (tenant_id, scheduled_at DESC, id DESC);
-- GET /jobs/{id}/executions, the failures in a row that stop a job, and reconciling.
CREATE INDEX job_executions_job ON job_executions (job_id, scheduled_at DESC, id DESC);
-- Executions that did not complete are few of all and most of those that people ask
-- for: a completed one costs nothing here. The same two lists, by status.
CREATE INDEX job_executions_unsuccessful ON job_executions (tenant_id, scheduled_at DESC, id DESC) WHERE status <> 'completed';
CREATE INDEX job_executions_job_unsuccessful ON job_executions (job_id, scheduled_at DESC, id DESC) WHERE status <> 'completed';
-- Jobs that failed within the last minute, which may have to stop.
CREATE INDEX job_executions_failed ON job_executions (completed_at) WHERE status = 'failed';
-- The collector of metrics reads what ended since it last counted. A batch shares its
-- time, so an entry is small. No BRIN: the end of an interval is found by the order of the
-- index, and after an outage an interval has millions of rows to sort.
CREATE INDEX job_executions_completed ON job_executions (completed_at);

ALTER TABLE job_executions ENABLE ROW LEVEL SECURITY;
ALTER TABLE job_executions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON job_executions TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON job_executions TO scheduler_engine USING (true) WITH CHECK (true);
CREATE POLICY purge ON job_executions AS RESTRICTIVE FOR DELETE TO scheduler_engine USING (tenant_is_deleting(tenant_id));
GRANT SELECT, INSERT ON job_executions TO scheduler_api;
GRANT SELECT, INSERT, DELETE ON job_executions TO scheduler_engine;

-- Which execution repeats which. A table of its own, because history is append-only: the
-- execution that is repeated cannot be changed, and one that repeats another is rare.
CREATE TABLE execution_retries (
    execution_id uuid        PRIMARY KEY,
    tenant_id    uuid        NOT NULL,
    job_id       uuid        NOT NULL REFERENCES scheduled_jobs (id) ON DELETE CASCADE,
    retry_of     uuid        NOT NULL,
    created_at   timestamptz NOT NULL
);
CREATE INDEX execution_retries_of ON execution_retries (retry_of, created_at);
CREATE INDEX execution_retries_job ON execution_retries (job_id);
CREATE INDEX execution_retries_age ON execution_retries (created_at);
ALTER TABLE execution_retries ENABLE ROW LEVEL SECURITY;
ALTER TABLE execution_retries FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON execution_retries TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON execution_retries TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT ON execution_retries TO scheduler_api;
GRANT SELECT, DELETE ON execution_retries TO scheduler_engine;

-- All executions. security_invoker: the reader's own policies apply. The last attempt's
-- error of a cancelled execution is no error of the execution.
CREATE VIEW executions WITH (security_invoker = true) AS
SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
       (CASE WHEN status = 'parked' THEN 'pending' ELSE status END)::text AS status,
       coalesce(parked_reason, cancel_reason, '') AS reason, NULL::bigint AS missed_count, NULL::timestamptz AS missed_until,
       attempt, max_attempts, progress, attempts, worker_id, started_at,
       NULL::timestamptz AS completed_at, NULL::bigint AS duration_ms, NULL::jsonb AS result,
       NULL::text AS error_type, NULL::text AS error_message, NULL::text AS error_stack,
       NULL::real AS memory_peak_mb, NULL::bigint AS cpu_time_ms, created_at,
       CASE WHEN status NOT IN ('running', 'parked') THEN available_at END AS available_at, cancel_requested_at, backfill_id,
       coalesce(cancelled_by, '') AS cancelled_by, NULL::bigint AS duration_us,
       CASE WHEN status = 'running' THEN attempt_started_at END AS attempt_started_at
FROM active_executions
UNION ALL
SELECT id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
       status, reason, missed_count, missed_until,
       attempt, max_attempts, progress, attempts, worker_id, started_at,
       completed_at, coalesce(duration_ms, duration_us / 1000) AS duration_ms, result,
       CASE WHEN status <> 'cancelled' THEN error_type END, CASE WHEN status <> 'cancelled' THEN error_message END,
       CASE WHEN status <> 'cancelled' THEN error_stack END,
       memory_peak_mb, cpu_time_ms, created_at,
       NULL::timestamptz AS available_at, NULL::timestamptz AS cancel_requested_at, backfill_id, cancelled_by,
       coalesce(duration_us, duration_ms * 1000) AS duration_us,
       CASE WHEN attempt > 1 THEN attempt_started_at ELSE started_at END AS attempt_started_at
FROM job_executions;
GRANT SELECT ON executions TO scheduler_api, scheduler_engine;

-- The partitions with their bounds, as the catalogue has them: a table that somebody
-- detached keeps its name and is none. A partition that somebody began to detach
-- CONCURRENTLY is pending and takes no more rows.
-- +goose StatementBegin
CREATE FUNCTION job_executions_months() RETURNS TABLE (part text, from_at timestamptz, to_at timestamptz, pending boolean)
    LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO'
AS $$
    SELECT c.relname::text, coalesce(b.bounds[1], '-infinity')::timestamptz, coalesce(b.bounds[2], 'infinity')::timestamptz, i.inhdetachpending
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    CROSS JOIN LATERAL regexp_match(pg_get_expr(c.relpartbound, c.oid),
        '^FOR VALUES FROM \((?:''([^'']+)''|MINVALUE)\) TO \((?:''([^'']+)''|MAXVALUE)\)$') b (bounds)
    WHERE i.inhparent = 'public.job_executions'::regclass AND b.bounds IS NOT NULL
$$;
-- +goose StatementEnd

-- Of the given beginnings of months those that have no partition, and the table with
-- the month's name where somebody detached it by hand. A table that retention detached
-- is about to be dropped and counts as gone.
-- +goose StatementBegin
CREATE FUNCTION job_executions_missing(months timestamptz[]) RETURNS TABLE (month timestamptz, detached text)
    LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC'
AS $$
    SELECT a.month, coalesce((
               SELECT min(c.relname::text) FROM pg_class c
               WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
                 AND c.relname ~ ('^job_executions_' || to_char(a.month, 'YYYY_MM') || '(_[0-9]{1,2})?$')
                 AND obj_description(c.oid, 'pg_class') IS DISTINCT FROM 'removed by retention'), '')
    FROM unnest(months) AS a (month)
    WHERE NOT EXISTS (SELECT 1 FROM public.job_executions_months() m
                      WHERE NOT m.pending AND m.from_at <= a.month AND m.to_at >= a.month + interval '1 month')
    ORDER BY 1
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION job_executions_months() FROM PUBLIC;
REVOKE ALL ON FUNCTION job_executions_missing(timestamptz[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION job_executions_months(), job_executions_missing(timestamptz[]) TO scheduler_api, scheduler_engine;

-- Makes the partition of the month that holds the given time, and returns whether it
-- made one. SECURITY DEFINER, because no process owns the table; it takes one time,
-- names everything itself and has a fixed search path, so that is all it can do.
--
-- A policy of the parent does not guard a direct read of a partition: each gets its
-- own, forced, and no grant. LIKE, CHECK and ATTACH take only a SHARE UPDATE EXCLUSIVE
-- lock on the parent, where CREATE ... PARTITION OF would block all writers.
-- +goose StatementBegin
CREATE FUNCTION create_job_executions_partition(at timestamptz) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC'
AS $$
DECLARE
    month_start timestamptz := date_trunc('month', at);
    month_end   timestamptz := date_trunc('month', at) + interval '1 month';
    base        text        := 'job_executions_' || to_char(month_start, 'YYYY_MM');
    part        text        := base;
    other       integer     := 1;
BEGIN
    IF at < '1970-01-01' OR at >= '2200-01-01' THEN
        RAISE EXCEPTION 'no partition for %', at USING ERRCODE = 'datetime_field_overflow';
    END IF;
    IF EXISTS (SELECT 1 FROM public.job_executions_months() m WHERE NOT m.pending AND m.from_at <= month_start AND m.to_at >= month_end) THEN
        RETURN false;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('job_executions_partition'));
    IF EXISTS (SELECT 1 FROM public.job_executions_months() m WHERE NOT m.pending AND m.from_at <= month_start AND m.to_at >= month_end) THEN
        RETURN false;
    END IF;
    WHILE to_regclass('public.' || part) IS NOT NULL LOOP
        other := other + 1;
        IF other > 99 THEN
            RAISE EXCEPTION 'no partition for %: tables % to % are not of the history and have its names', at, base, part USING ERRCODE = 'duplicate_table';
        END IF;
        part := base || '_' || other;
    END LOOP;
    EXECUTE format('CREATE TABLE public.%I (LIKE public.job_executions INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', part);
    EXECUTE format('ALTER TABLE public.%I ADD CONSTRAINT attach_bounds CHECK (scheduled_at >= %L AND scheduled_at < %L)',
                   part, month_start, month_end);
    EXECUTE format('ALTER TABLE public.%I ENABLE ROW LEVEL SECURITY', part);
    EXECUTE format('ALTER TABLE public.%I FORCE ROW LEVEL SECURITY', part);
    EXECUTE format('CREATE POLICY tenant ON public.%I TO scheduler_api'
                   ' USING (tenant_id = NULLIF(current_setting(''app.tenant_id'', true), '''')::uuid)'
                   ' WITH CHECK (tenant_id = NULLIF(current_setting(''app.tenant_id'', true), '''')::uuid)', part);
    EXECUTE format('CREATE POLICY engine ON public.%I TO scheduler_engine USING (true) WITH CHECK (true)', part);
    EXECUTE format('ALTER TABLE public.job_executions ATTACH PARTITION public.%I FOR VALUES FROM (%L) TO (%L)',
                   part, month_start, month_end);
    EXECUTE format('ALTER TABLE public.%I DROP CONSTRAINT attach_bounds', part);
    RETURN true;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION create_job_executions_partition(timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION create_job_executions_partition(timestamptz) TO scheduler_engine;

-- Detaches the oldest partition whose month lies wholly before the given time. Returns
-- its name, 'busy' when it did not get a lock in time, and '' when there is none. It
-- refuses the current month and the one before it, whatever it is asked.
--
-- A plain DETACH: DETACH ... CONCURRENTLY runs in no function, and would need the
-- owner's password in a process that runs all the time. While a plain one waits for its
-- lock, readers and writers wait behind it: it gives up after 50 ms for each of its two
-- locks and is asked again later.
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
    SELECT m.part, m.pending INTO part, pending FROM public.job_executions_months() m
    WHERE m.part ~ '^job_executions_[0-9]{4}_(0[1-9]|1[0-2])(_[0-9]{1,2})?$' AND m.to_at <= before
      AND m.from_at = date_trunc('month', m.from_at) AND m.to_at = m.from_at + interval '1 month'
    ORDER BY m.pending DESC, m.from_at LIMIT 1;
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

-- Drops the oldest table that the function above detached, and returns as it does. A
-- table that somebody else detached has no such comment and stays.
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
      AND c.relname ~ '^job_executions_[0-9]{4}_(0[1-9]|1[0-2])(_[0-9]{1,2})?$' AND obj_description(c.oid, 'pg_class') = 'removed by retention'
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

-- Moves waiting executions, whose rows the caller holds locked, to the history as
-- cancelled, and returns how many they were.
-- +goose StatementBegin
CREATE FUNCTION cancel_waiting(ids uuid[], why text, by_whom text, at timestamptz) RETURNS bigint
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, public, pg_temp
AS $$
    WITH moved AS (
        DELETE FROM public.active_executions e WHERE e.id = ANY (ids) AND e.status IN ('pending', 'retrying') RETURNING e.*
    ),
    recorded AS (
        INSERT INTO public.job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
                                           status, reason, cancelled_by, attempt, max_attempts, progress, attempts, backfill_id, started_at, completed_at, created_at)
        SELECT m.id, m.scheduled_at, m.tenant_id, m.job_id, m.job_version, m.trigger_type, m.triggered_by, m.job_type, m.priority, m.parameters,
               'cancelled', why, by_whom, m.attempt, m.max_attempts, m.progress, m.attempts, m.backfill_id, m.started_at, at, m.created_at
        FROM moved m
        ON CONFLICT (id, scheduled_at) DO NOTHING
    )
    SELECT count(*) FROM moved
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION cancel_waiting(uuid[], text, text, timestamptz);
DROP FUNCTION drop_job_executions_partition();
DROP FUNCTION detach_job_executions_partition(timestamptz);
DROP FUNCTION create_job_executions_partition(timestamptz);
DROP FUNCTION job_executions_missing(timestamptz[]);
DROP FUNCTION job_executions_months();
DROP VIEW executions;
DROP TABLE execution_retries;
DROP TABLE job_executions;
