-- Executions that are pending or running, what limits them, and who is next. The table
-- is the outbox: Redis carries ids of its rows and nothing else.

-- +goose Up
-- Half of each page is free and no index holds a column that a claim changes: a claim
-- is a HOT update, which writes to no index (measured: 40,700 lifecycles a second
-- against 32,400 with an index over the status). Rows live for milliseconds, so the
-- table is vacuumed by count and without a pause.
CREATE TABLE active_executions (
    id                  uuid PRIMARY KEY,
    tenant_id           uuid        NOT NULL,
    job_id              uuid        NOT NULL,
    job_version         integer     NOT NULL,
    backfill_id         uuid,
    scheduled_at        timestamptz NOT NULL,
    trigger_type        text        NOT NULL CHECK (trigger_type IN ('scheduled', 'manual', 'retry', 'backfill', 'dependency')),
    triggered_by        text        NOT NULL DEFAULT '',
    job_type            text        NOT NULL,
    priority            smallint    NOT NULL DEFAULT 0,
    parameters          jsonb,
    generation          integer     NOT NULL DEFAULT 0, -- of its job when it was made
    created_at          timestamptz NOT NULL DEFAULT now(),

    status              text        NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'running', 'retrying', 'parked')),
    attempt             integer     NOT NULL DEFAULT 0,
    max_attempts        integer     NOT NULL,
    lost_count          smallint    NOT NULL DEFAULT 0,
    timeout_ms          integer     NOT NULL,
    progress            smallint    NOT NULL DEFAULT 0 CHECK (progress BETWEEN 0 AND 100),
    attempts            jsonb       NOT NULL DEFAULT '[]',
    started_at          timestamptz,
    attempt_started_at  timestamptz,
    deadline_at         timestamptz,
    -- The worker that runs it. The token is new with each claim: a write that names another one is
    -- refused.
    worker_id           uuid,
    lease_token         uuid,

    -- When it may start, and by when somebody must look at it. The insert sets sweep_at
    -- to now + 5 s, the claim leaves it or brings it nearer, and only a sweep or a retry
    -- moves it away. So "sweep_at <= now + 5 s" finds everything that runs without an
    -- index over the worker, and "sweep_at <= now" every lost hint.
    available_at        timestamptz NOT NULL,
    sweep_at            timestamptz NOT NULL,
    -- It waits without a hint under way, and workers poll it. Its claim takes it out.
    pooled              boolean     NOT NULL DEFAULT false,

    -- 0: it has its concurrency slot, or needs none. Above: it waits until fewer than so
    -- many executions of its job have one.
    concurrency_limit   smallint    NOT NULL DEFAULT 0,
    concurrency_key     text CHECK (octet_length(concurrency_key) BETWEEN 1 AND 256),
    -- It has a concurrency slot of its job, or one is reserved for it.
    has_slot            boolean     NOT NULL GENERATED ALWAYS AS (status = 'running' OR concurrency_limit = 0) STORED,
    -- It waits for a concurrency slot.
    awaits_slot         boolean     NOT NULL GENERATED ALWAYS AS (status IN ('pending', 'retrying') AND concurrency_limit > 0) STORED,
    -- It waits for a concurrency slot, a concurrency key or both.
    awaits_turn         boolean     NOT NULL GENERATED ALWAYS AS (status IN ('pending', 'retrying') AND (concurrency_limit > 0 OR concurrency_key IS NOT NULL)) STORED,

    cancel_requested_at timestamptz,
    cancel_reason       text,
    cancelled_by        text,

    -- A parked execution runs no more, and its end waits to be stored. It holds no slot,
    -- no key and no place in a count (concurrency_limit is -1 less what it was); nobody
    -- claims or polls it. sweep_at is when its end is tried again. The outcome is JSON as
    -- text: it must keep what the database refuses as jsonb.
    parked_at           timestamptz,
    parked_reason       text,
    parked_outcome      text
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.0, autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);

-- Four of these indexes have an entry of every execution: the key, sweep, list and job. The
-- others have none of an execution that is hinted and waits for a worker alone.
-- The sweep: what passed its deadline, and what waits although its hint should have come.
CREATE INDEX active_executions_sweep ON active_executions (sweep_at);
-- GET /executions and GET /jobs/{id}/executions: the lists of a tenant and of a job, in the order of the indexes of job_executions, so
-- that a reader of both merges them. A statement that counts which executions of a job
-- have their slot passes over those that wait within the index.
CREATE INDEX active_executions_list ON active_executions (tenant_id, scheduled_at DESC, id DESC);
CREATE INDEX active_executions_job ON active_executions (job_id, scheduled_at DESC, id DESC, has_slot);
-- The pool: by tenant, priority and type, those that wait longest first.
CREATE INDEX active_executions_pool ON active_executions (tenant_id, priority, job_type, available_at) WHERE pooled;
-- Executions that wait for their turn, in the order in which it is claimed: of one job, key or
-- tenant, one type and one priority, so that what stands together is held back by the
-- same things. A job's backfills stand behind the others.
CREATE INDEX active_executions_slot_lines ON active_executions (job_id, num_nonnulls(backfill_id), job_type, priority, available_at) WHERE awaits_slot;
CREATE INDEX active_executions_key_lines ON active_executions (tenant_id, concurrency_key, awaits_slot, job_type, priority, available_at)
    WHERE awaits_turn AND concurrency_key IS NOT NULL;
CREATE INDEX active_executions_turn_lines ON active_executions (tenant_id, job_type, priority, available_at) WHERE awaits_turn;
-- Few rows stand in these: marks that workers ask for, a backfill's bound on what waits, and
-- parked executions that are tried again.
CREATE INDEX active_executions_cancelling ON active_executions (id) WHERE cancel_requested_at IS NOT NULL;
CREATE INDEX active_executions_backfill ON active_executions (backfill_id) WHERE backfill_id IS NOT NULL;
CREATE INDEX active_executions_parked ON active_executions (tenant_id, sweep_at) WHERE parked_at IS NOT NULL;

ALTER TABLE active_executions ENABLE ROW LEVEL SECURITY;
ALTER TABLE active_executions FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON active_executions TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON active_executions TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON active_executions TO scheduler_api, scheduler_engine;

-- An update removes the versions beyond those that are kept. The policy keeps the
-- newest 100, and those that an execution or a backfill needs.
CREATE POLICY surplus ON job_versions AS RESTRICTIVE FOR DELETE TO scheduler_api USING (
    version <= (SELECT j.version - 100 FROM scheduled_jobs j WHERE j.id = job_id)
    AND NOT EXISTS (SELECT 1 FROM active_executions a WHERE a.job_id = job_versions.job_id AND a.job_version = job_versions.version)
    AND NOT EXISTS (SELECT 1 FROM backfills b WHERE b.job_id = job_versions.job_id AND b.job_version = job_versions.version AND b.status = 'running')
);

-- How many executions of a tenant run: one row, so that one lock decides about all
-- limits of the tenant and a claim writes one tuple for it. Every statement that starts
-- or ends runs writes it, after it locked the executions and in the order of tenants,
-- so that no two statements wait for each other. A claim also reads here, in the row
-- that it locks, what it must know of the tenant as it is now. Updates are HOT: a page
-- has room for hundreds of versions.
CREATE TABLE running_counts (
    tenant_id       uuid PRIMARY KEY,
    running         integer     NOT NULL DEFAULT 0,
    running_by_type jsonb       NOT NULL DEFAULT '{}',   -- {"http": 3}
    crowded_at      timestamptz,                         -- when a claim last left something behind because of a limit
    suspended       boolean     NOT NULL DEFAULT false,  -- the tenant is not active: nothing of it starts
    cancelling      integer     NOT NULL DEFAULT 0       -- its orders in cancellations
) WITH (
    fillfactor = 10,
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE running_counts ENABLE ROW LEVEL SECURITY;
ALTER TABLE running_counts FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON running_counts TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON running_counts TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE (suspended, cancelling) ON running_counts TO scheduler_api;
GRANT SELECT, INSERT, UPDATE ON running_counts TO scheduler_engine;

-- Every tenant has its row from the beginning: nothing of a tenant without one starts.
-- +goose StatementBegin
CREATE FUNCTION count_new_tenant() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    INSERT INTO public.running_counts (tenant_id) VALUES (NEW.id) ON CONFLICT (tenant_id) DO NOTHING;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER count_new_tenant AFTER INSERT ON tenants FOR EACH ROW EXECUTE FUNCTION count_new_tenant();

-- Which execution has a concurrency key. The primary key is the limit: of two claims
-- one inserts.
CREATE TABLE running_keys (
    tenant_id    uuid NOT NULL,
    key          text NOT NULL,
    execution_id uuid NOT NULL UNIQUE,
    PRIMARY KEY (tenant_id, key)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE running_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE running_keys FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON running_keys FOR SELECT TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON running_keys TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT ON running_keys TO scheduler_api;
GRANT SELECT, INSERT, DELETE ON running_keys TO scheduler_engine;

-- How many executions wait, of a job and, under the nil id, of a tenant; only where
-- they are many. One process at a time counts them again and again, so a number is as
-- old as a round takes.
CREATE TABLE waiting_counts (
    tenant_id uuid   NOT NULL,
    job_id    uuid   NOT NULL,
    waiting   bigint NOT NULL,
    PRIMARY KEY (tenant_id, job_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE waiting_counts ENABLE ROW LEVEL SECURITY;
ALTER TABLE waiting_counts FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON waiting_counts FOR SELECT TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON waiting_counts TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT ON waiting_counts TO scheduler_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON waiting_counts TO scheduler_engine;

-- How many executions were made on a day (UTC), for tenants with a bound.
CREATE TABLE execution_days (
    tenant_id  uuid PRIMARY KEY,
    day        date    NOT NULL,
    executions integer NOT NULL
);
ALTER TABLE execution_days ENABLE ROW LEVEL SECURITY;
ALTER TABLE execution_days FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON execution_days TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON execution_days TO scheduler_engine USING (true) WITH CHECK (true);
CREATE POLICY purge ON execution_days AS RESTRICTIVE FOR DELETE TO scheduler_engine USING (tenant_is_deleting(tenant_id));
GRANT SELECT, INSERT, UPDATE ON execution_days TO scheduler_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON execution_days TO scheduler_engine;

-- Orders to cancel what a job has up to a generation. Nearly always empty: an order is
-- deleted once nothing under it waits and everything that runs is asked to end.
CREATE TABLE cancellations (
    tenant_id       uuid        NOT NULL,
    job_id          uuid        NOT NULL,
    generation      integer     NOT NULL, -- and all before it
    spare_backfills boolean     NOT NULL, -- executions of backfills go on
    requested_at    timestamptz NOT NULL,
    reason          text        NOT NULL,
    cancelled_by    text        NOT NULL,
    PRIMARY KEY (job_id, generation)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX cancellations_turns ON cancellations (tenant_id, requested_at);
ALTER TABLE cancellations ENABLE ROW LEVEL SECURITY;
ALTER TABLE cancellations FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON cancellations TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON cancellations TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT ON cancellations TO scheduler_api;
GRANT SELECT, INSERT, DELETE ON cancellations TO scheduler_engine;

-- Whether an execution is under an order. Volatile, and in PL/pgSQL, so that it sees
-- what was committed when it is called: after the lock, not before. A claim calls it
-- for tenants that have an order.
-- +goose StatementBegin
CREATE FUNCTION is_cancelled(job uuid, made_in integer, of_backfill boolean) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    RETURN EXISTS (SELECT 1 FROM public.cancellations o
                   WHERE o.job_id = job AND o.generation >= made_in AND NOT (o.spare_backfills AND of_backfill));
END
$$;
-- +goose StatementEnd

-- How many concurrency slots of a job are taken: by executions that run and by those
-- that had one reserved and are not being cancelled. A job has 1,000 at most, so nobody
-- counts further. One plan for every job: making one costs more than counting.
-- +goose StatementBegin
CREATE FUNCTION taken_slots(job uuid) RETURNS integer
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM public.cancellations o WHERE o.job_id = job) THEN
        RETURN (SELECT count(*) FROM (SELECT 1 FROM public.active_executions e WHERE e.job_id = job AND e.has_slot
                AND (e.status = 'running' OR NOT EXISTS (SELECT 1 FROM public.cancellations o WHERE o.job_id = e.job_id AND o.generation >= e.generation AND NOT (o.spare_backfills AND e.backfill_id IS NOT NULL))) LIMIT 1001) seen);
    END IF;
    RETURN (SELECT count(*) FROM (SELECT 1 FROM public.active_executions e WHERE e.job_id = job AND e.has_slot LIMIT 1001) seen);
END
$$;
-- +goose StatementEnd

-- The same of several jobs, with how many executions wait for a slot. Volatile, and in
-- PL/pgSQL: a statement that locks the jobs and then calls it counts under the lock, and
-- saves a round trip. Of each job it reads what has a slot and 1,001 of those
-- that wait, the most that a policy asks for. An execution that waits and is one of a
-- backfill, or is being cancelled, counts as neither: otherwise scheduled times would
-- be skipped because of it.
-- +goose StatementBegin
CREATE FUNCTION count_active(jobs uuid[]) RETURNS TABLE (job_id uuid, taken bigint, waiting bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    any_waits boolean := EXISTS (SELECT 1 FROM public.active_executions e WHERE e.job_id = ANY (jobs) AND e.awaits_slot);
BEGIN
    IF NOT EXISTS (SELECT 1 FROM public.cancellations o WHERE o.job_id = ANY (jobs)) THEN -- most of the time
        RETURN QUERY
        SELECT j.id, (SELECT count(*) FROM (SELECT 1 FROM public.active_executions e WHERE e.job_id = j.id AND e.has_slot LIMIT 1001) seen),
               CASE WHEN any_waits THEN (SELECT count(*) FROM (SELECT 1 FROM public.active_executions e
                                    WHERE e.job_id = j.id AND e.awaits_slot AND num_nonnulls(e.backfill_id) = 0 LIMIT 1001) seen) ELSE 0 END
        FROM unnest(jobs) AS j(id);
        RETURN;
    END IF;
    RETURN QUERY
    SELECT j.id,
           (SELECT count(*) FROM (SELECT 1 FROM public.active_executions e
                                  WHERE e.job_id = j.id AND e.has_slot
                                    AND (e.status = 'running' OR NOT EXISTS (SELECT 1 FROM public.cancellations o WHERE o.job_id = e.job_id AND o.generation >= e.generation AND NOT (o.spare_backfills AND e.backfill_id IS NOT NULL))) LIMIT 1001) seen),
           (SELECT count(*) FROM (SELECT 1 FROM public.active_executions e
                                  WHERE e.job_id = j.id AND e.awaits_slot AND num_nonnulls(e.backfill_id) = 0
                                    AND NOT EXISTS (SELECT 1 FROM public.cancellations o WHERE o.job_id = e.job_id AND o.generation >= e.generation AND NOT (o.spare_backfills AND e.backfill_id IS NOT NULL)) LIMIT 1001) seen)
    FROM unnest(jobs) AS j(id);
END
$$;
-- +goose StatementEnd

-- Counts with one more, or one less, of each of these types.
-- +goose StatementBegin
CREATE FUNCTION add_by_type(counts jsonb, types text[], step integer) RETURNS jsonb LANGUAGE sql IMMUTABLE
AS $$
    SELECT counts || coalesce((SELECT jsonb_object_agg(t.name, coalesce((counts->>t.name)::int, 0) + step * t.n)
                               FROM (SELECT u.name, count(*) AS n FROM unnest(types) AS u(name) GROUP BY u.name) t), '{}')
$$;
-- +goose StatementEnd

-- Counts executions that the caller holds locked as running, as far as the limits
-- of their tenants allow, and returns those that may start. The counts are locked
-- in the order of tenants, here and in end_runs, so no two statements wait for one
-- another in a circle. Volatile, so it reads a row as it is under its lock and not as
-- the caller's snapshot has it. Nearly always all executions of a tenant may start;
-- start_some_runs decides about the others.
-- +goose StatementBegin
CREATE FUNCTION start_runs(ids uuid[], tenant_ids uuid[], job_types text[], keys text[], default_max integer, at timestamptz) RETURNS SETOF uuid
    LANGUAGE plpgsql VOLATILE ROWS 64 SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    started uuid[];
    others  uuid[];
BEGIN
    WITH held AS MATERIALIZED (
        SELECT a.tenant_id, a.ids, a.runs,
               CASE WHEN a.types[1] = ALL (a.types) THEN jsonb_build_object(a.types[1], coalesce((c.running_by_type->>a.types[1])::integer, 0) + a.runs)
                    ELSE (SELECT jsonb_object_agg(k.name, coalesce((c.running_by_type->>k.name)::integer, 0) + k.runs)
                          FROM (SELECT u.name, count(*) AS runs FROM unnest(a.types) AS u(name) GROUP BY u.name) k) END AS by_type,
               NOT a.keyed AND c.cancelling = 0 AND c.running + a.runs <= coalesce(t.max_running, nullif(default_max, 0), 1000000)
               AND (coalesce(t.max_running_by_type, '{}') = '{}' OR NOT EXISTS (
                    SELECT 1 FROM unnest(a.types) AS u(name) GROUP BY u.name
                    HAVING coalesce((c.running_by_type->>u.name)::integer, 0) + count(*) > (t.max_running_by_type->>u.name)::integer)) AS all_start
        FROM (SELECT u.tenant_id, count(*)::integer AS runs, array_agg(u.id) AS ids, array_agg(u.job_type) AS types, bool_or(u.key IS NOT NULL) AS keyed
              FROM unnest(start_runs.ids, tenant_ids, job_types, keys) AS u(id, tenant_id, job_type, key) GROUP BY u.tenant_id ORDER BY u.tenant_id) a
        CROSS JOIN LATERAL (SELECT * FROM public.running_counts r WHERE r.tenant_id = a.tenant_id AND NOT r.suspended FOR UPDATE) c
        LEFT JOIN LATERAL (SELECT * FROM public.tenants r WHERE r.id = a.tenant_id OFFSET 0) t ON true
    ),
    counted AS (
        UPDATE public.running_counts c SET running = c.running + h.runs, running_by_type = c.running_by_type || h.by_type
        FROM held h WHERE c.tenant_id = h.tenant_id AND h.all_start
    )
    SELECT array_agg(e.id) FILTER (WHERE e.all_start), array_agg(e.id) FILTER (WHERE NOT e.all_start) INTO started, others
    FROM (SELECT unnest(h.ids) AS id, h.all_start FROM held h) e;
    RETURN QUERY SELECT unnest(started);
    IF others IS NOT NULL THEN
        RETURN QUERY SELECT public.start_some_runs(others, default_max, at);
    END IF;
END
$$;
-- +goose StatementEnd

-- start_runs for executions of tenants whose executions may not all start, and whose
-- counts it holds locked. Nothing that is being cancelled starts. Of the rest those
-- start that fit, most urgent and then oldest first; the others leave a mark, so that
-- a statement that ends a run looks for the next. A key is taken by inserting it: its
-- primary key decides, and nobody waits for it, because a statement that writes a key
-- holds the counts of its tenant locked.
-- +goose StatementBegin
CREATE FUNCTION start_some_runs(ids uuid[], default_max integer, at timestamptz) RETURNS SETOF uuid
    LANGUAGE plpgsql VOLATILE ROWS 64 SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT e.id, e.tenant_id, e.job_type, e.concurrency_key, e.priority, e.available_at,
               coalesce(t.max_running, nullif(default_max, 0), 1000000) - c.running AS free,
               row_number() OVER (PARTITION BY e.tenant_id, e.job_type ORDER BY e.priority DESC, e.available_at, e.id)
                 <= coalesce((t.max_running_by_type->>e.job_type)::integer, 1000000) - coalesce((c.running_by_type->>e.job_type)::integer, 0) AS fits
        FROM public.active_executions e
        CROSS JOIN LATERAL (SELECT * FROM public.running_counts r WHERE r.tenant_id = e.tenant_id OFFSET 0) c
        LEFT JOIN LATERAL (SELECT * FROM public.tenants r WHERE r.id = e.tenant_id OFFSET 0) t ON true
        WHERE e.id = ANY (start_some_runs.ids)
          AND CASE WHEN c.cancelling > 0 THEN NOT public.is_cancelled(e.job_id, e.generation, e.backfill_id IS NOT NULL) ELSE true END
    ),
    admitted AS MATERIALIZED (
        SELECT a.id, a.tenant_id, a.job_type, a.concurrency_key,
               a.fits AND count(*) FILTER (WHERE a.fits) OVER (PARTITION BY a.tenant_id ORDER BY a.priority DESC, a.available_at, a.id) <= a.free AS admitted
        FROM asked a
    ),
    taken AS (
        INSERT INTO public.running_keys (tenant_id, key, execution_id)
        SELECT a.tenant_id, a.concurrency_key, a.id FROM admitted a WHERE a.admitted AND a.concurrency_key IS NOT NULL ORDER BY a.tenant_id, a.concurrency_key
        ON CONFLICT DO NOTHING
        RETURNING execution_id
    ),
    decided AS MATERIALIZED (
        SELECT a.id, a.tenant_id, a.job_type,
               a.admitted AND (a.concurrency_key IS NULL OR a.id IN (SELECT t.execution_id FROM taken t)) AS starts
        FROM admitted a
    ),
    counted AS (
        UPDATE public.running_counts c
        SET running = c.running + n.runs, running_by_type = public.add_by_type(c.running_by_type, n.types, 1),
            crowded_at = CASE WHEN n.some_stay THEN at ELSE c.crowded_at END
        FROM (SELECT d.tenant_id, count(*) FILTER (WHERE d.starts) AS runs, bool_or(NOT d.starts) AS some_stay,
                     coalesce(array_agg(d.job_type) FILTER (WHERE d.starts), '{}') AS types
              FROM decided d GROUP BY d.tenant_id) n
        WHERE c.tenant_id = n.tenant_id AND (n.runs > 0 OR c.crowded_at IS NULL OR c.crowded_at < at - interval '10 seconds')
    )
    SELECT d.id FROM decided d WHERE d.starts;
END
$$;
-- +goose StatementEnd

-- Counts executions as no longer running, whose rows the caller holds locked, and
-- frees the keys of those that have one. Returns, of each tenant, when a claim last
-- left something behind because of its limits.
-- +goose StatementBegin
CREATE FUNCTION end_runs(tenant_ids uuid[], job_types text[], keyed_ids uuid[]) RETURNS TABLE (tenant uuid, crowded_since timestamptz)
    LANGUAGE plpgsql VOLATILE ROWS 16 SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT a.tenant_id, a.runs,
               CASE WHEN a.types[1] = ALL (a.types) THEN jsonb_build_object(a.types[1], coalesce((c.running_by_type->>a.types[1])::integer, 0) - a.runs)
                    ELSE (SELECT jsonb_object_agg(k.name, coalesce((c.running_by_type->>k.name)::integer, 0) - k.runs)
                          FROM (SELECT u.name, count(*) AS runs FROM unnest(a.types) AS u(name) GROUP BY u.name) k) END AS by_type
        FROM (SELECT u.tenant_id, count(*)::integer AS runs, array_agg(u.job_type) AS types
              FROM unnest(tenant_ids, job_types) AS u(tenant_id, job_type) GROUP BY u.tenant_id ORDER BY u.tenant_id) a
        CROSS JOIN LATERAL (SELECT * FROM public.running_counts r WHERE r.tenant_id = a.tenant_id FOR UPDATE) c
    )
    UPDATE public.running_counts c SET running = c.running - h.runs, running_by_type = c.running_by_type || h.by_type
    FROM held h WHERE c.tenant_id = h.tenant_id
    RETURNING c.tenant_id, c.crowded_at;
    IF cardinality(keyed_ids) > 0 THEN
        DELETE FROM public.running_keys k WHERE k.execution_id = ANY (keyed_ids);
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION end_runs(uuid[], text[], uuid[]);
DROP FUNCTION start_runs(uuid[], uuid[], text[], text[], integer, timestamptz);
DROP FUNCTION IF EXISTS start_some_runs(uuid[], integer, timestamptz); -- 000202 has dropped it
DROP FUNCTION add_by_type(jsonb, text[], integer);
DROP FUNCTION count_active(uuid[]);
DROP FUNCTION taken_slots(uuid);
DROP FUNCTION is_cancelled(uuid, integer, boolean);
DROP TABLE cancellations;
DROP TABLE execution_days;
DROP TABLE waiting_counts;
DROP TABLE running_keys;
DROP TRIGGER count_new_tenant ON tenants;
DROP FUNCTION count_new_tenant();
DROP TABLE running_counts;
DROP POLICY surplus ON job_versions;
DROP TABLE active_executions;
