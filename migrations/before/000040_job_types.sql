-- Job types are data: counts by type without a column for each, and functions that
-- name no type. Lock: ACCESS EXCLUSIVE on running_counts and scheduled_jobs for the
-- moment of adding a column with a constant default and of dropping a constraint.
-- Duration: instant.
--
-- Processes of the version before go on counting by type in the old columns, which
-- this version neither reads nor writes. While versions are mixed each version counts
-- by type what its own processes start, so a tenant may run up to twice its limit of a
-- type; the limit of all types together stays exact. Reconciling counts by type within a
-- minute after the first process of this version starts, and again after the last of
-- the version before ended. The version after this one may drop the old columns,
-- is_of_types, next_of_job and next_of_key.

-- +goose Up
-- The types that a tenant runs: {"http": 3}. A type that is not named runs nowhere.
ALTER TABLE running_counts ADD COLUMN running_by_type jsonb NOT NULL DEFAULT '{}';

-- The contract and the registry of executors say which types there are.
ALTER TABLE scheduled_jobs DROP CONSTRAINT scheduled_jobs_job_type_check;

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
-- whoever ends a run looks for the next. A key is taken by inserting it: its primary
-- key decides, and nobody waits for it, because whoever writes a key holds the counts
-- of its tenant locked.
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

-- Whether a live worker runs a type. One that names no types is of an old version
-- and runs every type that it knows.
-- +goose StatementBegin
CREATE FUNCTION is_served(kind text, at timestamptz) RETURNS boolean LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (SELECT 1 FROM workers v WHERE NOT v.dead AND v.expires_at > at AND (v.job_types = '{}' OR kind = ANY (v.job_types)))
$$;
-- +goose StatementEnd

-- Which executions of a job get its concurrency slots next: backfills last, most
-- urgent first, then those that wait longest. left_types are types that the caller
-- leaves to others. A statement that frees slots says how many (freed), and as many
-- are named; a caller that frees none says 0, and the slots that are taken are
-- counted. It reads the fronts of a job's backlog by type and priority (64 at most),
-- and of each as many as there are slots and 32 that may be passed over, because
-- their key is taken or somebody asked for their end. The settings keep the plan
-- where the table was empty when its statistics were taken.
-- +goose StatementBegin
CREATE FUNCTION next_for_slot(job uuid, left_types text[], at timestamptz, freed integer, most integer)
    RETURNS TABLE (id uuid, tenant_id uuid, priority smallint)
    LANGUAGE plpgsql STABLE ROWS 4 SET search_path = pg_catalog, public, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
    taken integer := CASE WHEN freed > 0 THEN 0 ELSE public.taken_slots(job) END;
    -- An execution has the limit that its job had when it was made: the oldest one
    -- has the job's earlier limit and the newest one the limit of now.
    room  integer := least(most, CASE WHEN freed > 0 THEN freed ELSE greatest(
        (SELECT j.max_concurrent FROM public.scheduled_jobs j WHERE j.id = job),
        (SELECT e.concurrency_limit FROM public.active_executions e WHERE e.job_id = job AND e.awaits_slot
         ORDER BY num_nonnulls(e.backfill_id), e.job_type, e.priority, e.available_at LIMIT 1)) - taken END);
BEGIN
    IF room <= 0 THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE walk AS (
        (SELECT num_nonnulls(e.backfill_id) AS late, e.job_type AS kind, e.priority AS level FROM public.active_executions e
         WHERE e.job_id = job AND e.awaits_slot ORDER BY num_nonnulls(e.backfill_id), e.job_type, e.priority LIMIT 1)
        UNION ALL
        SELECT n.late, n.kind, n.level FROM walk w CROSS JOIN LATERAL (
            SELECT num_nonnulls(e.backfill_id) AS late, e.job_type AS kind, e.priority AS level FROM public.active_executions e
            WHERE e.job_id = job AND e.awaits_slot AND (num_nonnulls(e.backfill_id), e.job_type, e.priority) > (w.late, w.kind, w.level)
            ORDER BY num_nonnulls(e.backfill_id), e.job_type, e.priority LIMIT 1
        ) n
    ),
    lines AS MATERIALIZED (SELECT w.late, w.kind, w.level FROM walk w LIMIT 64),
    waiting AS (
        SELECT f.*, row_number() OVER (ORDER BY l.late, f.priority DESC, f.available_at, f.id) AS place
        FROM lines l CROSS JOIN LATERAL (
            SELECT c.* FROM (
                SELECT e.id, e.job_id, e.tenant_id, e.priority, e.available_at, e.concurrency_limit, e.concurrency_key, e.cancel_requested_at,
                       e.generation, e.backfill_id
                FROM public.active_executions e
                WHERE e.job_id = job AND e.awaits_slot AND num_nonnulls(e.backfill_id) = l.late AND e.job_type = l.kind AND e.priority = l.level
                  AND e.available_at <= at
                ORDER BY e.available_at LIMIT room + 32
            ) c
            WHERE c.cancel_requested_at IS NULL AND c.concurrency_limit > taken
              AND NOT EXISTS (SELECT 1 FROM public.cancellations o WHERE o.job_id = c.job_id AND o.generation >= c.generation AND NOT (o.spare_backfills AND c.backfill_id IS NOT NULL))
              AND NOT EXISTS (SELECT 1 FROM public.running_keys k WHERE k.tenant_id = c.tenant_id AND k.key = c.concurrency_key)
            ORDER BY c.available_at, c.id LIMIT room
        ) f
        WHERE l.kind <> ALL (left_types)
    )
    SELECT w.id, w.tenant_id, w.priority FROM waiting w WHERE w.place + taken <= w.concurrency_limit ORDER BY w.place LIMIT room;
END
$$;
-- +goose StatementEnd

-- Which execution gets a concurrency key next: none while the key is taken, and
-- none whose job has no slot for it; served_only: none whose type no live worker
-- runs. It reads as next_for_slot does.
-- +goose StatementBegin
CREATE FUNCTION next_for_key(tenant uuid, wanted text, left_types text[], served_only boolean, at timestamptz)
    RETURNS TABLE (id uuid, priority smallint)
    LANGUAGE plpgsql STABLE ROWS 1 SET search_path = pg_catalog, public, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM public.running_keys k WHERE k.tenant_id = tenant AND k.key = wanted) THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE walk AS (
        (SELECT e.awaits_slot AS needs_slot, e.job_type AS kind, e.priority AS level FROM public.active_executions e
         WHERE e.tenant_id = tenant AND e.concurrency_key = wanted AND e.awaits_turn ORDER BY e.awaits_slot, e.job_type, e.priority LIMIT 1)
        UNION ALL
        SELECT n.needs_slot, n.kind, n.level FROM walk w CROSS JOIN LATERAL (
            SELECT e.awaits_slot AS needs_slot, e.job_type AS kind, e.priority AS level FROM public.active_executions e
            WHERE e.tenant_id = tenant AND e.concurrency_key = wanted AND e.awaits_turn
              AND (e.awaits_slot, e.job_type, e.priority) > (w.needs_slot, w.kind, w.level)
            ORDER BY e.awaits_slot, e.job_type, e.priority LIMIT 1
        ) n
    ),
    lines AS MATERIALIZED (SELECT w.needs_slot, w.kind, w.level FROM walk w LIMIT 64),
    front AS MATERIALIZED (
        SELECT c.* FROM lines l CROSS JOIN LATERAL (
            SELECT e.id, e.job_id, e.priority, e.available_at, e.concurrency_limit, e.cancel_requested_at, e.generation, e.backfill_id FROM public.active_executions e
            WHERE e.tenant_id = tenant AND e.concurrency_key = wanted AND e.awaits_turn
              AND e.awaits_slot = l.needs_slot AND e.job_type = l.kind AND e.priority = l.level AND e.available_at <= at
            ORDER BY e.available_at LIMIT 32
        ) c
        WHERE l.kind <> ALL (left_types) AND (NOT served_only OR public.is_served(l.kind, at))
    ),
    slots AS MATERIALIZED (
        SELECT j.job_id, public.taken_slots(j.job_id) AS taken FROM (SELECT DISTINCT f.job_id FROM front f WHERE f.concurrency_limit > 0) j
    )
    SELECT f.id, f.priority FROM front f
    WHERE f.cancel_requested_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM public.cancellations o WHERE o.job_id = f.job_id AND o.generation >= f.generation AND NOT (o.spare_backfills AND f.backfill_id IS NOT NULL))
      AND (f.concurrency_limit = 0 OR f.concurrency_limit > (SELECT p.taken FROM slots p WHERE p.job_id = f.job_id))
    ORDER BY f.priority DESC, f.available_at, f.id LIMIT 1;
END
$$;
-- +goose StatementEnd

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

-- For processes of the version before, which name the types that they run. Claims
-- of theirs leave unknown types to workers of this version.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION is_of_types(job_type text, types text[]) RETURNS boolean LANGUAGE sql IMMUTABLE
AS $$ SELECT job_type = ANY (types) $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION next_of_job(job uuid, types text[], at timestamptz, freed integer, most integer)
    RETURNS TABLE (id uuid, tenant_id uuid, priority smallint)
    LANGUAGE sql STABLE ROWS 4 SET search_path = pg_catalog, public, pg_temp
AS $$ SELECT * FROM public.next_for_slot(job, '{}', at, freed, most) $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION next_of_key(tenant uuid, lock text, types text[], at timestamptz) RETURNS TABLE (id uuid, priority smallint)
    LANGUAGE sql STABLE ROWS 1 SET search_path = pg_catalog, public, pg_temp
AS $$ SELECT * FROM public.next_for_key(tenant, lock, '{}', true, at) $$;
-- +goose StatementEnd

-- +goose Down
-- Reconciling corrects the old columns within a minute.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION is_of_types(job_type text, types text[]) RETURNS boolean LANGUAGE sql IMMUTABLE
AS $$ SELECT job_type = ANY (types) OR job_type <> ALL ('{http,function,command}'::text[]) $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION next_of_job(job uuid, types text[], at timestamptz, freed integer, most integer)
    RETURNS TABLE (id uuid, tenant_id uuid, priority smallint)
    LANGUAGE plpgsql STABLE ROWS 4 SET search_path = pg_catalog, public, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
    taken integer := CASE WHEN freed > 0 THEN 0 ELSE public.taken_slots(job) END;
    -- An execution has the limit that its job had when it was made: the oldest one
    -- has the job's earlier limit and the newest one the limit of now.
    room  integer := least(most, CASE WHEN freed > 0 THEN freed ELSE greatest(
        (SELECT j.max_concurrent FROM public.scheduled_jobs j WHERE j.id = job),
        (SELECT e.concurrency_limit FROM public.active_executions e WHERE e.job_id = job AND e.awaits_slot
         ORDER BY num_nonnulls(e.backfill_id), e.job_type, e.priority, e.available_at LIMIT 1)) - taken END);
BEGIN
    IF room <= 0 THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE walk AS (
        (SELECT num_nonnulls(e.backfill_id) AS late, e.job_type AS kind, e.priority AS level FROM public.active_executions e
         WHERE e.job_id = job AND e.awaits_slot ORDER BY num_nonnulls(e.backfill_id), e.job_type, e.priority LIMIT 1)
        UNION ALL
        SELECT n.late, n.kind, n.level FROM walk w CROSS JOIN LATERAL (
            SELECT num_nonnulls(e.backfill_id) AS late, e.job_type AS kind, e.priority AS level FROM public.active_executions e
            WHERE e.job_id = job AND e.awaits_slot AND (num_nonnulls(e.backfill_id), e.job_type, e.priority) > (w.late, w.kind, w.level)
            ORDER BY num_nonnulls(e.backfill_id), e.job_type, e.priority LIMIT 1
        ) n
    ),
    lines AS MATERIALIZED (SELECT w.late, w.kind, w.level FROM walk w LIMIT 64),
    waiting AS (
        SELECT f.*, row_number() OVER (ORDER BY l.late, f.priority DESC, f.available_at, f.id) AS turn
        FROM lines l CROSS JOIN LATERAL (
            SELECT c.* FROM (
                SELECT e.id, e.job_id, e.tenant_id, e.priority, e.available_at, e.concurrency_limit, e.concurrency_key, e.cancel_requested_at,
                       e.generation, e.backfill_id
                FROM public.active_executions e
                WHERE e.job_id = job AND e.awaits_slot AND num_nonnulls(e.backfill_id) = l.late AND e.job_type = l.kind AND e.priority = l.level
                  AND e.available_at <= at
                ORDER BY e.available_at LIMIT room + 32
            ) c
            WHERE c.cancel_requested_at IS NULL AND c.concurrency_limit > taken
              AND NOT EXISTS (SELECT 1 FROM public.cancellations o WHERE o.job_id = c.job_id AND o.generation >= c.generation AND NOT (o.spare_backfills AND c.backfill_id IS NOT NULL))
              AND NOT EXISTS (SELECT 1 FROM public.running_keys k WHERE k.tenant_id = c.tenant_id AND k.key = c.concurrency_key)
            ORDER BY c.available_at, c.id LIMIT room
        ) f
        WHERE public.is_of_types(l.kind, types)
    )
    SELECT w.id, w.tenant_id, w.priority FROM waiting w WHERE w.turn + taken <= w.concurrency_limit ORDER BY w.turn LIMIT room;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION next_of_key(tenant uuid, lock text, types text[], at timestamptz)
    RETURNS TABLE (id uuid, priority smallint)
    LANGUAGE plpgsql STABLE ROWS 1 SET search_path = pg_catalog, public, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM public.running_keys k WHERE k.tenant_id = tenant AND k.key = lock) THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE walk AS (
        (SELECT e.awaits_slot AS gated, e.job_type AS kind, e.priority AS level FROM public.active_executions e
         WHERE e.tenant_id = tenant AND e.concurrency_key = lock AND e.awaits_turn ORDER BY e.awaits_slot, e.job_type, e.priority LIMIT 1)
        UNION ALL
        SELECT n.gated, n.kind, n.level FROM walk w CROSS JOIN LATERAL (
            SELECT e.awaits_slot AS gated, e.job_type AS kind, e.priority AS level FROM public.active_executions e
            WHERE e.tenant_id = tenant AND e.concurrency_key = lock AND e.awaits_turn
              AND (e.awaits_slot, e.job_type, e.priority) > (w.gated, w.kind, w.level)
            ORDER BY e.awaits_slot, e.job_type, e.priority LIMIT 1
        ) n
    ),
    lines AS MATERIALIZED (SELECT w.gated, w.kind, w.level FROM walk w LIMIT 64),
    front AS MATERIALIZED (
        SELECT c.* FROM lines l CROSS JOIN LATERAL (
            SELECT e.id, e.job_id, e.priority, e.available_at, e.concurrency_limit, e.cancel_requested_at, e.generation, e.backfill_id FROM public.active_executions e
            WHERE e.tenant_id = tenant AND e.concurrency_key = lock AND e.awaits_turn
              AND e.awaits_slot = l.gated AND e.job_type = l.kind AND e.priority = l.level AND e.available_at <= at
            ORDER BY e.available_at LIMIT 32
        ) c
        WHERE public.is_of_types(l.kind, types)
    ),
    places AS MATERIALIZED (
        SELECT j.job_id, public.taken_slots(j.job_id) AS taken FROM (SELECT DISTINCT f.job_id FROM front f WHERE f.concurrency_limit > 0) j
    )
    SELECT f.id, f.priority FROM front f
    WHERE f.cancel_requested_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM public.cancellations o WHERE o.job_id = f.job_id AND o.generation >= f.generation AND NOT (o.spare_backfills AND f.backfill_id IS NOT NULL))
      AND (f.concurrency_limit = 0 OR f.concurrency_limit > (SELECT p.taken FROM places p WHERE p.job_id = f.job_id))
    ORDER BY f.priority DESC, f.available_at, f.id LIMIT 1;
END
$$;
-- +goose StatementEnd
DROP FUNCTION cancel_waiting(uuid[], text, text, timestamptz);
DROP FUNCTION next_for_key(uuid, text, text[], boolean, timestamptz);
DROP FUNCTION next_for_slot(uuid, text[], timestamptz, integer, integer);
DROP FUNCTION is_served(text, timestamptz);
DROP FUNCTION end_runs(uuid[], text[], uuid[]);
DROP FUNCTION start_some_runs(uuid[], integer, timestamptz);
DROP FUNCTION start_runs(uuid[], uuid[], text[], text[], integer, timestamptz);
DROP FUNCTION add_by_type(jsonb, text[], integer);
ALTER TABLE scheduled_jobs ADD CONSTRAINT scheduled_jobs_job_type_check CHECK (job_type IN ('http', 'function', 'command'));
ALTER TABLE running_counts DROP COLUMN running_by_type;
