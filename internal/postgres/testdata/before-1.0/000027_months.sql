-- Whether a month of job_executions is there is what the catalogue says, and not
-- the name of a table. Lock: none. Duration: instant.
--
-- Until now a table that an operator detached by hand, with the name of its month,
-- passed for the month's partition: none was made, and every row of that month was
-- refused. A month whose name is taken now gets a partition with another name,
-- job_executions_2026_11_2.

-- +goose Up
-- The partitions of job_executions with their bounds. A partition that somebody
-- began to detach CONCURRENTLY is pending and takes no more rows.
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
-- Of the given beginnings of months those that have no partition, and the table
-- with the month's name where there is one: somebody detached it by hand. What
-- retention detached is about to be dropped and counts as gone.
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

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION create_job_executions_partition(at timestamptz) RETURNS boolean
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

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION detach_job_executions_partition(before timestamptz) RETURNS text
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

-- +goose Down
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

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION detach_job_executions_partition(before timestamptz) RETURNS text
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

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION create_job_executions_partition(at timestamptz) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET timezone = 'UTC'
AS $$
DECLARE
    month_start timestamptz := date_trunc('month', at);
    month_end   timestamptz := date_trunc('month', at) + interval '1 month';
    part        text        := 'job_executions_' || to_char(month_start, 'YYYY_MM');
BEGIN
    IF at < '1970-01-01' OR at >= '2200-01-01' THEN
        RAISE EXCEPTION 'no partition for %', at USING ERRCODE = 'datetime_field_overflow';
    END IF;
    IF to_regclass('public.' || part) IS NOT NULL THEN
        RETURN false;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('job_executions_partition'));
    IF to_regclass('public.' || part) IS NOT NULL THEN
        RETURN false;
    END IF;
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
DROP FUNCTION job_executions_missing(timestamptz[]);
DROP FUNCTION job_executions_months();
