-- Partitions of the history of a day, a week or a month, and retention in days.

-- +goose Up
-- The partitions with their bounds, as the catalogue has them: a table that somebody
-- detached keeps its name and is none. A partition that somebody began to detach
-- CONCURRENTLY is pending and takes no more rows.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION job_executions_partitions() RETURNS TABLE (part text, from_at timestamptz, to_at timestamptz, pending boolean)
    LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO'
AS $$
    SELECT c.relname::text, coalesce(b.bounds[1], '-infinity')::timestamptz, coalesce(b.bounds[2], 'infinity')::timestamptz, i.inhdetachpending
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    CROSS JOIN LATERAL regexp_match(pg_get_expr(c.relpartbound, c.oid),
        '^FOR VALUES FROM \((?:''([^'']+)''|MINVALUE)\) TO \((?:''([^'']+)''|MAXVALUE)\)$') b (bounds)
    WHERE i.inhparent = 'public.job_executions'::regclass AND b.bounds IS NOT NULL
$$;
-- +goose StatementEnd

-- Takes beginnings of days. Returns each day with a moment that no partition holds,
-- and the table that has the day in its name, if somebody detached one by hand. A table
-- that retention detached is about to be dropped and counts as gone.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION job_executions_without(days timestamptz[]) RETURNS TABLE (day timestamptz, detached text)
    LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC'
AS $$
    WITH held AS MATERIALIZED (
        SELECT coalesce(range_agg(tstzrange(p.from_at, p.to_at)), '{}') AS times FROM public.job_executions_partitions() p WHERE NOT p.pending
    ),
    tables AS MATERIALIZED (
        SELECT c.relname::text AS name FROM pg_class c
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname LIKE 'job\_executions\_%'
          AND obj_description(c.oid, 'pg_class') IS DISTINCT FROM 'removed by retention'
    )
    SELECT a.day, coalesce((
               SELECT min(t.name) FROM tables t
               WHERE t.name ~ ('^job_executions_(' || to_char(a.day, 'YYYY_MM|"d"YYYY_MM_DD|') || 'w('
                               || (SELECT string_agg(to_char(w, 'YYYY_MM_DD'), '|') FROM generate_series(date_trunc('week', a.day), a.day, '1 day') w)
                               || '))(_[0-9]{1,2})?$')), '')
    FROM unnest(days) AS a (day)
    WHERE NOT (SELECT h.times FROM held h) @> tstzrange(a.day, a.day + interval '1 day')
    ORDER BY 1
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION job_executions_partitions() FROM PUBLIC;
REVOKE ALL ON FUNCTION job_executions_without(timestamptz[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION job_executions_partitions(), job_executions_without(timestamptz[]) TO scheduler_api, scheduler_engine;

-- Makes a partition for the day, the week or the month (Monday to Sunday; all of UTC)
-- that holds the given time, as far as no other partition has its times: around the first
-- moment from the given one to the end of its day that none has. It returns when the new one
-- ends, and NULL where there is no such moment. A partition that is being detached has its
-- times until that is finished: nothing can be attached beside it. SECURITY DEFINER,
-- because no process owns the table; it takes a time and one of three words, names
-- everything itself and has a fixed search path, so that is all it can do.
--
-- A policy of the parent does not guard a direct read of a partition: each gets its
-- own, forced, and no grant. LIKE, CHECK and ATTACH take only a SHARE UPDATE EXCLUSIVE
-- lock on the parent, where CREATE ... PARTITION OF would block all writers.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION make_job_executions_partition(at timestamptz, span text) RETURNS timestamptz
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO'
AS $$
DECLARE
    free   tstzmultirange; -- of the span
    begins timestamptz;
    ends   timestamptz;
    base   text;
    part   text;
    other  integer := 1;
BEGIN
    IF at < '1970-01-01' OR at >= '2200-01-01' THEN
        RAISE EXCEPTION 'no partition for %', at USING ERRCODE = 'datetime_field_overflow';
    END IF;
    IF span NOT IN ('day', 'week', 'month') THEN
        RAISE EXCEPTION 'no partition of a %', span USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('job_executions_partition'));
    SELECT tstzmultirange(tstzrange(date_trunc(span, at), date_trunc(span, at) + ('1 ' || span)::interval))
           - coalesce(range_agg(tstzrange(p.from_at, p.to_at)), '{}')
    INTO free FROM public.job_executions_partitions() p;
    SELECT lower(r), upper(r) INTO begins, ends FROM unnest(free) AS r
    WHERE r && tstzrange(at, date_trunc('day', at) + interval '1 day') ORDER BY r LIMIT 1;
    IF begins IS NULL THEN
        RETURN NULL;
    END IF;
    base := 'job_executions_' || CASE span WHEN 'month' THEN to_char(begins, 'YYYY_MM') ELSE left(span, 1) || to_char(begins, 'YYYY_MM_DD') END;
    part := base;
    WHILE to_regclass('public.' || part) IS NOT NULL LOOP
        other := other + 1;
        IF other > 99 THEN
            RAISE EXCEPTION 'no partition for %: tables % to % have its names', at, base, part USING ERRCODE = 'duplicate_table';
        END IF;
        part := base || '_' || other;
    END LOOP;
    EXECUTE format('CREATE TABLE public.%I (LIKE public.job_executions INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', part);
    EXECUTE format('ALTER TABLE public.%I ADD CONSTRAINT attach_bounds CHECK (scheduled_at >= %L AND scheduled_at < %L)',
                   part, begins, ends);
    EXECUTE format('ALTER TABLE public.%I ENABLE ROW LEVEL SECURITY', part);
    EXECUTE format('ALTER TABLE public.%I FORCE ROW LEVEL SECURITY', part);
    EXECUTE format('CREATE POLICY tenant ON public.%I TO scheduler_api'
                   ' USING (tenant_id = NULLIF(current_setting(''app.tenant_id'', true), '''')::uuid)'
                   ' WITH CHECK (tenant_id = NULLIF(current_setting(''app.tenant_id'', true), '''')::uuid)', part);
    EXECUTE format('CREATE POLICY engine ON public.%I TO scheduler_engine USING (true) WITH CHECK (true)', part);
    EXECUTE format('ALTER TABLE public.job_executions ATTACH PARTITION public.%I FOR VALUES FROM (%L) TO (%L)',
                   part, begins, ends);
    EXECUTE format('ALTER TABLE public.%I DROP CONSTRAINT attach_bounds', part);
    RETURN ends;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION make_job_executions_partition(timestamptz, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION make_job_executions_partition(timestamptz, text) TO scheduler_engine;

-- The functions of the release before. Its processes call them until the last of them is
-- replaced. They know only months, and a part of a month may have partitions already.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION create_job_executions_partition(at timestamptz) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC'
AS $$
DECLARE
    day  timestamptz := date_trunc('month', at);
    made boolean := false;
BEGIN
    WHILE day < date_trunc('month', at) + interval '1 month' LOOP
        IF public.make_job_executions_partition(day, 'month') IS NULL THEN
            day := day + interval '1 day';
        ELSE
            made := true;
        END IF;
    END LOOP;
    RETURN made;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION job_executions_missing(months timestamptz[]) RETURNS TABLE (month timestamptz, detached text)
    LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC'
AS $$
    SELECT m.month, max(w.detached)
    FROM unnest(months) AS m (month)
    JOIN public.job_executions_without(ARRAY(
        SELECT generate_series(n, n + interval '1 month - 1 day', '1 day') FROM unnest(months) n)) w ON w.day >= m.month AND w.day < m.month + interval '1 month'
    GROUP BY 1 ORDER BY 1
$$;
-- +goose StatementEnd

-- Detaches the oldest partition that lies wholly before the given time. Returns
-- its name, 'busy' when it did not get a lock in time, and '' when there is none. It
-- never removes one of the last seven days.
--
-- A plain DETACH: DETACH ... CONCURRENTLY runs in no function, and would need the
-- owner's password in a process that runs all the time. While a plain one waits for its
-- lock, readers and writers wait behind it: it gives up after 50 ms for each of its two
-- locks and is asked again later.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION detach_job_executions_partition(before timestamptz) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO' SET lock_timeout = '50ms'
AS $$
DECLARE
    part    text;
    pending boolean;
BEGIN
    IF before > date_trunc('day', now()) - interval '7 days' THEN
        RAISE EXCEPTION 'partitions up to % are too young to be removed', before USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF EXISTS (SELECT 1 FROM pg_partitioned_table WHERE partrelid = 'public.job_executions'::regclass AND partdefid <> 0) THEN
        RAISE EXCEPTION 'job_executions has a default partition, which a DETACH would lock and read: move its rows and drop it';
    END IF;
    -- A process that makes partitions holds the same.
    IF NOT pg_try_advisory_xact_lock(hashtext('job_executions_partition')) THEN
        RETURN 'busy';
    END IF;
    SELECT p.part, p.pending INTO part, pending FROM public.job_executions_partitions() p
    WHERE p.part ~ '^job_executions_([0-9]{4}_(0[1-9]|1[0-2])|[dw][0-9]{4}_[0-9]{2}_[0-9]{2})(_[0-9]{1,2})?$' AND p.to_at <= before
    ORDER BY p.pending DESC, p.from_at LIMIT 1;
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

-- Drops the oldest table that the function above detached, and returns as it does. A
-- table that somebody else detached has no such comment and stays.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION drop_job_executions_partition() RETURNS text
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
      AND c.relname ~ '^job_executions_([0-9]{4}_(0[1-9]|1[0-2])|[dw][0-9]{4}_[0-9]{2}_[0-9]{2})(_[0-9]{1,2})?$'
      AND obj_description(c.oid, 'pg_class') = 'removed by retention'
    ORDER BY ltrim(c.relname, 'job_executions_dw') LIMIT 1;
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

-- A row that the processes may delete by itself is as old as the youngest partition that
-- they may remove.
ALTER POLICY retention ON job_versions
    USING (created_at < now() - interval '7 days' AND version < (SELECT j.version FROM scheduled_jobs j WHERE j.id = job_id));
ALTER POLICY retention ON scheduled_jobs USING (deleted_at < now() - interval '7 days' OR tenant_is_deleting(tenant_id));
ALTER POLICY retention ON backfills USING (status <> 'running' AND finished_at < now() - interval '7 days');
ALTER POLICY retention ON outcome_rollups USING (at < now() - interval '7 days' OR tenant_is_deleting(tenant_id));

-- +goose Down
-- The release before is content with all of it.
SELECT 1;
