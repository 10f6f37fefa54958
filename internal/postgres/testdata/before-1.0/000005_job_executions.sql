-- What is over, append-only, one partition a month. Lock: none on existing
-- tables. Duration: instant.
--
-- Partitioned on scheduled_at and not on created_at: the primary key
-- (id, scheduled_at) then makes a second outcome for one due instant
-- impossible. Append-only by grant: nobody but the owner may update or
-- delete, so a terminal outcome cannot change and partitions need no vacuum.
-- No default partition: with one, no partition could be detached without
-- blocking writers, and rows in it would forbid making the right one.

-- +goose Up
CREATE TABLE job_executions (
    id             uuid        NOT NULL,
    scheduled_at   timestamptz NOT NULL,
    tenant_id      uuid        NOT NULL,
    job_id         uuid        NOT NULL,
    job_version    integer     NOT NULL,
    trigger_type   text        NOT NULL,
    triggered_by   text        NOT NULL DEFAULT '',
    job_type       text        NOT NULL,
    priority       smallint    NOT NULL DEFAULT 0,
    parameters     jsonb,
    status         text        NOT NULL CHECK (status IN ('completed', 'failed', 'cancelled', 'skipped', 'missed')),
    reason         text        NOT NULL DEFAULT '',
    -- A row of status missed may stand for a range of instants: how many, and
    -- the last of them; scheduled_at is the first.
    missed_count   bigint,
    missed_until   timestamptz,
    attempt        integer     NOT NULL DEFAULT 0,
    max_attempts   integer     NOT NULL DEFAULT 0,
    progress       smallint    NOT NULL DEFAULT 0,
    attempts       jsonb       NOT NULL DEFAULT '[]',
    worker_id      uuid,
    lease_token    uuid,
    started_at     timestamptz,
    completed_at   timestamptz NOT NULL,
    duration_ms    bigint,
    result         jsonb,
    error_type     text CHECK (error_type IN ('TIMEOUT', 'NETWORK_ERROR', 'VALIDATION_ERROR', 'SYSTEM_ERROR', 'USER_ERROR')),
    error_message  text,
    error_stack    text,
    memory_peak_mb real,
    cpu_time_ms    bigint,
    created_at     timestamptz NOT NULL,
    PRIMARY KEY (id, scheduled_at)
) PARTITION BY RANGE (scheduled_at);

CREATE INDEX job_executions_list ON job_executions (tenant_id, scheduled_at DESC, id DESC);
CREATE INDEX job_executions_job ON job_executions (job_id, scheduled_at DESC, id DESC);

ALTER TABLE job_executions ENABLE ROW LEVEL SECURITY;
ALTER TABLE job_executions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON job_executions TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON job_executions TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT ON job_executions TO scheduler_api, scheduler_engine;

-- Makes the partition of the month that holds the given instant; answers
-- whether it made one. SECURITY DEFINER, because the promoter keeps
-- partitions ahead without owning the table; it takes one instant, names
-- everything itself and has a fixed search path, so that is all it can do.
--
-- A policy of the parent does not guard a direct read of a partition, so each
-- gets its own, forced, and no grant at all. LIKE + CHECK + ATTACH takes only
-- a SHARE UPDATE EXCLUSIVE lock on the parent (CREATE … PARTITION OF would
-- take ACCESS EXCLUSIVE): writers are not blocked.
-- +goose StatementBegin
CREATE FUNCTION create_job_executions_partition(at timestamptz) RETURNS boolean
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
REVOKE ALL ON FUNCTION create_job_executions_partition(timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION create_job_executions_partition(timestamptz) TO scheduler_engine;

-- +goose Down
DROP TABLE job_executions;
DROP FUNCTION create_job_executions_partition(timestamptz);
