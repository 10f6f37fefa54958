-- Jobs: their definitions, versions, calendars and backfills, and how many there are.

-- +goose Up
-- Promotion updates each due row: free space on its page keeps the row there.
CREATE TABLE scheduled_jobs (
    id                     uuid PRIMARY KEY,
    tenant_id              uuid        NOT NULL REFERENCES tenants (id),
    name                   text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    description            text        NOT NULL DEFAULT '',
    tags                   text[]      NOT NULL DEFAULT '{}',
    created_by             text        NOT NULL,
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),
    deleted_at             timestamptz, -- the row stays as long as its history is kept
    version                integer     NOT NULL DEFAULT 1 CHECK (version >= 1),

    -- When it runs: at most one of the three; none means "only when triggered".
    cron_expression        text CHECK (length(cron_expression) <= 256),
    interval_ms            bigint CHECK (interval_ms >= 1000),
    run_at                 timestamptz,
    timezone               text        NOT NULL DEFAULT 'UTC',
    anchor_at              timestamptz NOT NULL DEFAULT now(), -- an interval counts from here
    start_date             timestamptz,
    end_date               timestamptz,
    max_executions         bigint CHECK (max_executions >= 1),
    jitter_seconds         integer     NOT NULL DEFAULT 0 CHECK (jitter_seconds BETWEEN 0 AND 86400),
    dst_gap                text        NOT NULL DEFAULT 'shift' CHECK (dst_gap IN ('shift', 'skip')),
    dst_overlap            text        NOT NULL DEFAULT 'first' CHECK (dst_overlap IN ('first', 'last', 'both')),
    calendars              jsonb       NOT NULL DEFAULT '[]', -- [{"calendarId": "...", "mode": "exclude"}, ...], at most 10
    CONSTRAINT scheduled_jobs_one_schedule CHECK (num_nonnulls(cron_expression, interval_ms, run_at) <= 1),

    -- The work, and how it runs. The contract and the registry of executors say which job
    -- types there are.
    job_type               text        NOT NULL,
    config                 jsonb       NOT NULL,
    secret_names           text[]      NOT NULL DEFAULT '{}', -- that the config refers to
    retry_config           jsonb       NOT NULL DEFAULT '{}',
    max_attempts           integer     NOT NULL CHECK (max_attempts BETWEEN 1 AND 101),
    timeout_seconds        integer     NOT NULL CHECK (timeout_seconds BETWEEN 1 AND 86400),
    priority               smallint    NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 9),
    max_concurrent         integer     NOT NULL DEFAULT 1 CHECK (max_concurrent BETWEEN 1 AND 1000),
    concurrency_key        text        NOT NULL DEFAULT '' CHECK (length(concurrency_key) <= 200),
    overlap_policy         text        NOT NULL DEFAULT 'skip'
                           CHECK (overlap_policy IN ('skip', 'queue_one', 'queue_all', 'cancel_running', 'allow')),
    overlap_queue_limit    integer     NOT NULL DEFAULT 100 CHECK (overlap_queue_limit BETWEEN 1 AND 1000),
    misfire_policy         text        NOT NULL DEFAULT 'fire_once' CHECK (misfire_policy IN ('skip', 'fire_once', 'fire_all')),
    misfire_limit          integer     NOT NULL DEFAULT 100 CHECK (misfire_limit BETWEEN 1 AND 1000),
    misfire_grace_seconds  integer     NOT NULL DEFAULT 60 CHECK (misfire_grace_seconds BETWEEN 1 AND 86400),
    disable_after_failures integer CHECK (disable_after_failures BETWEEN 1 AND 1000),

    -- Whether its schedule fires, and who said so.
    status                 text        NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'paused', 'inactive')),
    status_reason          text        NOT NULL DEFAULT '',
    status_by              text        NOT NULL DEFAULT '',
    status_at              timestamptz NOT NULL DEFAULT now(),
    paused_until           timestamptz,
    -- The policy for the times that a pause held back; the next promotion clears it.
    resume_policy          text CHECK (resume_policy IN ('skip', 'fire_once', 'fire_all')),

    -- Where its schedule is. The promoter writes these when it advances the job, so a
    -- finished execution costs no write here.
    next_execution_at      timestamptz,
    last_execution_at      timestamptz,
    execution_count        bigint      NOT NULL DEFAULT 0,
    -- While a job catches up in pieces: its misfire policy has decided up to here, and
    -- the times from next_execution_at on run.
    catch_up_until         timestamptz,
    -- How often everything of the job was cancelled in pieces. An execution keeps the
    -- generation in which it was made, so an order for all up to one means what there
    -- was, whatever the clocks say.
    generation             integer     NOT NULL DEFAULT 0,

    -- The difference that reconciling found last: rows beyond (+) or short of (-) scheduled times.
    audited_at             timestamptz,
    audit_difference       bigint
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- The promoter's claim walks what is due from the oldest scheduled time on, or, when
-- more is due than it takes, by turns of the tenants.
CREATE INDEX scheduled_jobs_due ON scheduled_jobs (next_execution_at) WHERE status = 'active';
CREATE INDEX scheduled_jobs_turns ON scheduled_jobs (tenant_id, next_execution_at) WHERE status = 'active';
-- GET /jobs, also by another order, and bulk calls.
CREATE INDEX scheduled_jobs_list ON scheduled_jobs (tenant_id, created_at DESC, id DESC) WHERE deleted_at IS NULL;
-- Pauses that end by themselves.
CREATE INDEX scheduled_jobs_paused_until ON scheduled_jobs (paused_until) WHERE status = 'paused' AND paused_until IS NOT NULL;
-- Jobs that are paused because their tenant is suspended, to resume them with it.
CREATE INDEX scheduled_jobs_held ON scheduled_jobs (tenant_id) WHERE status = 'paused' AND status_by = 'platform';
-- Which jobs refer to a secret, before it is deleted.
CREATE INDEX scheduled_jobs_secrets ON scheduled_jobs (tenant_id) WHERE secret_names <> '{}' AND deleted_at IS NULL;
-- Retention.
CREATE INDEX scheduled_jobs_deleted ON scheduled_jobs (deleted_at) WHERE deleted_at IS NOT NULL;

ALTER TABLE scheduled_jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduled_jobs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON scheduled_jobs TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON scheduled_jobs TO scheduler_engine USING (true) WITH CHECK (true);
CREATE POLICY retention ON scheduled_jobs AS RESTRICTIVE FOR DELETE TO scheduler_engine
    USING (deleted_at < now() - interval '1 month' OR tenant_is_deleting(tenant_id));
GRANT SELECT, INSERT, UPDATE ON scheduled_jobs TO scheduler_api;
GRANT SELECT, DELETE,
    UPDATE (next_execution_at, last_execution_at, execution_count, catch_up_until, generation, status, status_reason, status_by, status_at, updated_at,
            paused_until, resume_policy, audited_at, audit_difference)
    ON scheduled_jobs TO scheduler_engine;

-- The definitions that a job had. An execution runs that of the version with which it
-- was promoted. Nobody may change one: there is no grant to do so.
CREATE TABLE job_versions (
    job_id         uuid        NOT NULL REFERENCES scheduled_jobs (id) ON DELETE CASCADE,
    version        integer     NOT NULL,
    tenant_id      uuid        NOT NULL,
    spec           jsonb       NOT NULL,
    created_by     text        NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    restored_from  integer, -- the version that it brought back
    -- The fields that differ from the version before, as the contract names them. NULL:
    -- made before they were stored; they are compared when they are listed.
    changed_fields text[],
    PRIMARY KEY (job_id, version)
);
-- The first version of a job takes no other's place.
CREATE INDEX job_versions_superseding ON job_versions (created_at, job_id, version) WHERE version > 1;
ALTER TABLE job_versions ENABLE ROW LEVEL SECURITY;
ALTER TABLE job_versions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON job_versions TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON job_versions FOR SELECT TO scheduler_engine USING (true);
CREATE POLICY retention ON job_versions FOR DELETE TO scheduler_engine
    USING (created_at < now() - interval '1 month' AND version < (SELECT j.version FROM scheduled_jobs j WHERE j.id = job_id));
-- The API removes versions beyond those that are kept: see policy surplus in 000103.
GRANT SELECT, INSERT, DELETE ON job_versions TO scheduler_api;
GRANT SELECT, DELETE ON job_versions TO scheduler_engine;

CREATE TABLE calendars (
    id          uuid PRIMARY KEY,
    tenant_id   uuid        NOT NULL REFERENCES tenants (id),
    name        text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    description text        NOT NULL DEFAULT '',
    timezone    text        NOT NULL DEFAULT 'UTC',
    days        jsonb       NOT NULL, -- [{"start": "2026-12-24", "end": "2026-12-27", "yearly": false}, ...]
    version     integer     NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant_id, name)
);
CREATE INDEX calendars_list ON calendars (tenant_id, created_at DESC, id DESC);
ALTER TABLE calendars ENABLE ROW LEVEL SECURITY;
ALTER TABLE calendars FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON calendars TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON calendars FOR SELECT TO scheduler_engine USING (true);
CREATE POLICY purge ON calendars FOR DELETE TO scheduler_engine USING (tenant_is_deleting(tenant_id));
GRANT SELECT, INSERT, UPDATE, DELETE ON calendars TO scheduler_api;
GRANT SELECT, DELETE ON calendars TO scheduler_engine;

CREATE TABLE backfills (
    id              uuid PRIMARY KEY,
    tenant_id       uuid        NOT NULL,
    job_id          uuid        NOT NULL REFERENCES scheduled_jobs (id) ON DELETE CASCADE,
    job_version     integer     NOT NULL,
    from_at         timestamptz NOT NULL,
    to_at           timestamptz NOT NULL,
    cursor_at       timestamptz NOT NULL, -- scheduled times up to here have their execution
    anchor_at       timestamptz,          -- its interval counts from here; NULL: see ClaimBackfills
    rate_per_minute integer     NOT NULL CHECK (rate_per_minute BETWEEN 1 AND 6000),
    parameters      jsonb,
    status          text        NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'completed', 'cancelled')),
    held_by         text        NOT NULL DEFAULT '', -- why it makes nothing now; empty: it does
    total           integer     NOT NULL,
    created         integer     NOT NULL DEFAULT 0,
    next_batch_at   timestamptz NOT NULL DEFAULT now(),
    requested_by    text        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    finished_at     timestamptz,
    CHECK (from_at < to_at)
);
CREATE INDEX backfills_due ON backfills (next_batch_at) WHERE status = 'running';
CREATE INDEX backfills_job ON backfills (tenant_id, job_id, created_at DESC, id DESC);
CREATE INDEX backfills_finished ON backfills (finished_at) WHERE status <> 'running';
ALTER TABLE backfills ENABLE ROW LEVEL SECURITY;
ALTER TABLE backfills FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON backfills TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON backfills TO scheduler_engine USING (true) WITH CHECK (true);
CREATE POLICY retention ON backfills AS RESTRICTIVE FOR DELETE TO scheduler_engine
    USING (status <> 'running' AND finished_at < now() - interval '1 month');
GRANT SELECT, INSERT, UPDATE ON backfills TO scheduler_api;
GRANT SELECT, UPDATE, DELETE ON backfills TO scheduler_engine;

-- How many jobs a tenant has that are not deleted: the sum over its eight shards
-- (column strand). A transaction writes the shard whose audit chain it writes too and
-- holds already, so counting makes nobody wait.
CREATE TABLE job_counts (
    tenant_id uuid     NOT NULL,
    strand    smallint NOT NULL CHECK (strand BETWEEN 0 AND 7),
    jobs      bigint   NOT NULL, -- below zero where a job went by another shard than it came
    PRIMARY KEY (tenant_id, strand)
) WITH (
    fillfactor = 10,
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE job_counts ENABLE ROW LEVEL SECURITY;
ALTER TABLE job_counts FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON job_counts FOR SELECT TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON job_counts TO scheduler_engine USING (true) WITH CHECK (true);
CREATE POLICY purge ON job_counts AS RESTRICTIVE FOR DELETE TO scheduler_engine USING (tenant_is_deleting(tenant_id));
-- The trigger acts as the owner.
CREATE POLICY owner ON job_counts TO CURRENT_USER USING (true) WITH CHECK (true);
GRANT SELECT ON job_counts TO scheduler_api;
GRANT SELECT, DELETE ON job_counts TO scheduler_engine;

-- Gathers what a transaction adds in app.jobs, by tenant, so that it is written once: a
-- row that one transaction wrote 100,000 times took two minutes (measured).
-- +goose StatementBegin
CREATE FUNCTION note_job() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    noted jsonb := coalesce(nullif(current_setting('app.jobs', true), ''), '{}')::jsonb;
    owner text;
    added int := 0;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        owner := OLD.tenant_id;
        IF OLD.deleted_at IS NULL THEN added := -1; END IF;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        owner := NEW.tenant_id;
        IF NEW.deleted_at IS NULL THEN added := added + 1; END IF;
    END IF;
    IF added <> 0 THEN
        PERFORM set_config('app.jobs', (noted || jsonb_build_object(owner, coalesce((noted ->> owner)::int, 0) + added))::text, true);
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- Writes what was gathered. It is deferred to the commit and comes after record_change,
-- by its name: the row is locked for the moment of the commit only.
-- +goose StatementBegin
CREATE FUNCTION tally_jobs() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    noted text := coalesce(current_setting('app.jobs', true), '');
BEGIN
    IF noted <> '' THEN
        PERFORM set_config('app.jobs', '', true);
        INSERT INTO public.job_counts AS c (tenant_id, strand, jobs)
        SELECT n.key::uuid, coalesce(nullif(current_setting('app.strand', true), '')::smallint, 0), n.value::bigint
        FROM jsonb_each_text(noted::jsonb) n ORDER BY n.key
        ON CONFLICT (tenant_id, strand) DO UPDATE SET jobs = c.jobs + EXCLUDED.jobs;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION note_job(), tally_jobs() FROM PUBLIC;
CREATE TRIGGER note_job AFTER INSERT OR DELETE OR UPDATE OF deleted_at ON scheduled_jobs
    FOR EACH ROW EXECUTE FUNCTION note_job();
CREATE CONSTRAINT TRIGGER tally_jobs AFTER INSERT OR DELETE OR UPDATE OF deleted_at ON scheduled_jobs
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tally_jobs();

-- +goose Down
DROP TABLE backfills;
DROP TABLE calendars;
DROP TABLE job_versions;
DROP TABLE scheduled_jobs;
DROP TABLE job_counts;
DROP FUNCTION tally_jobs();
DROP FUNCTION note_job();
