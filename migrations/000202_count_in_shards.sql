-- The functions that count runs count in shards.

-- +goose Up
-- Counts with one more, or one less, of each of these types. Shards count for ever, so a
-- number may be larger than an integer.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION add_by_type(counts jsonb, types text[], step integer) RETURNS jsonb LANGUAGE sql IMMUTABLE
AS $$
    SELECT counts || coalesce((SELECT jsonb_object_agg(t.name, coalesce((counts->>t.name)::bigint, 0) + step * t.n)
                               FROM (SELECT u.name, count(*) AS n FROM unnest(types) AS u(name) GROUP BY u.name) t), '{}')
$$;
-- +goose StatementEnd

-- Counts executions that the caller holds locked as running, as far as the limits
-- of their tenants allow, and returns those that may start.
--
-- Nearly always all executions of a tenant may start within the permits of the worker's
-- shard. Then the call locks that row of the tenant, and only workers of the same shard
-- wait for it. Where the permits do not suffice, and where more than the count decides (a
-- limit by type, a concurrency key, a cancellation), it locks all shards that start runs,
-- counts exactly, and deals the permits out again.
-- Shards are locked in order, so that no two statements wait for each other in a circle.
-- So the call looks before it locks any which tenants need all shards, and looks again under
-- the locks. A tenant that needs them only then starts nothing this time, and is polled again.
-- Volatile, so each statement of it sees what was committed when the statement begins.
-- +goose StatementBegin
CREATE FUNCTION start_runs(ids uuid[], tenant_ids uuid[], job_types text[], keys text[], default_max integer, at timestamptz, worker uuid) RETURNS SETOF uuid
    LANGUAGE plpgsql VOLATILE ROWS 64 SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    own     smallint := public.shard_of(worker);
    exact   uuid[];
    started uuid[];
    others  uuid[];
BEGIN
    SELECT coalesce(array_agg(a.tenant_id), '{}') INTO exact
    FROM (SELECT u.tenant_id, count(*) AS runs, bool_or(u.key IS NOT NULL) AS keyed
          FROM unnest(start_runs.ids, tenant_ids, job_types, keys) AS u(id, tenant_id, job_type, key) GROUP BY u.tenant_id) a
    CROSS JOIN LATERAL public.permits_left(a.tenant_id, own, default_max) p
    WHERE a.keyed OR p.permits < a.runs;

    PERFORM 1
    FROM (SELECT a.tenant_id, n.shard FROM (SELECT DISTINCT u AS tenant_id FROM unnest(tenant_ids) u) a CROSS JOIN generate_series(0, 7) AS n(shard)
          WHERE n.shard = own OR a.tenant_id = ANY (exact) ORDER BY a.tenant_id, n.shard) w
    CROSS JOIN LATERAL (SELECT 1 FROM public.running_shards s WHERE s.tenant_id = w.tenant_id AND s.shard = w.shard FOR UPDATE) held;

    WITH asked AS MATERIALIZED (
        SELECT u.tenant_id, count(*)::integer AS runs, array_agg(u.id) AS ids, array_agg(u.job_type) AS types, u.tenant_id = ANY (exact) AS exact
        FROM unnest(start_runs.ids, tenant_ids, job_types, keys) AS u(id, tenant_id, job_type, key) GROUP BY u.tenant_id
    ),
    counted AS (
        UPDATE public.running_shards s SET runs = s.runs + a.runs,
            runs_by_type = CASE WHEN a.types[1] = ALL (a.types) THEN s.runs_by_type || jsonb_build_object(a.types[1], coalesce((s.runs_by_type->>a.types[1])::bigint, 0) + a.runs)
                                ELSE public.add_by_type(s.runs_by_type, a.types, 1) END
        FROM asked a CROSS JOIN LATERAL public.permits_left(a.tenant_id, own, default_max) p
        WHERE s.tenant_id = a.tenant_id AND s.shard = own AND NOT a.exact AND NOT p.suspended AND p.permits >= a.runs
        RETURNING a.ids
    )
    SELECT (SELECT array_agg(i.id) FROM counted c CROSS JOIN unnest(c.ids) AS i(id)),
           (SELECT array_agg(i.id) FROM asked a CROSS JOIN unnest(a.ids) AS i(id) WHERE a.exact) INTO started, others;
    RETURN QUERY SELECT unnest(started);
    IF others IS NOT NULL THEN
        RETURN QUERY SELECT public.start_some_runs(others, default_max, at, own);
    END IF;
END
$$;
-- +goose StatementEnd

-- How many more runs of a tenant a shard may start without a look at the others. None
-- where more than the count decides, and where the limit is another one by now. No limit is
-- a limit that nobody reaches. In SQL and without settings, so that it becomes part of the
-- statement that calls it: a call for each tenant of a claim cost 50 us.
-- +goose StatementBegin
CREATE FUNCTION permits_left(tenant uuid, own smallint, default_max integer) RETURNS TABLE (permits bigint, suspended boolean)
    LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN c.cancelling > 0 OR coalesce(t.max_running_by_type, '{}') <> '{}' THEN 0
                WHEN s.permits_of = coalesce(t.max_running, nullif(default_max, 0), 1000000000) THEN s.permits - s.runs - e.runs
                ELSE 0 END, c.suspended
    FROM public.running_counts c
    CROSS JOIN LATERAL (SELECT r.permits, r.permits_of, r.runs FROM public.running_shards r WHERE r.tenant_id = c.tenant_id AND r.shard = own OFFSET 0) s
    CROSS JOIN LATERAL (SELECT r.runs FROM public.running_shards r WHERE r.tenant_id = c.tenant_id AND r.shard = own + 8 OFFSET 0) e
    LEFT JOIN LATERAL (SELECT r.max_running, r.max_running_by_type FROM public.tenants r WHERE r.id = c.tenant_id OFFSET 0) t ON true
    WHERE c.tenant_id = tenant
$$;
-- +goose StatementEnd

-- start_runs for executions of tenants of which it holds all shards that start runs.
-- Nothing that is being cancelled starts. Of the rest those start that fit, most urgent
-- and then oldest first; the others leave a mark, so that a statement that ends a run
-- looks for the next. A key is taken by inserting it: its primary key decides, and nobody
-- waits for it, because a statement that writes a key holds these shards.
-- +goose StatementBegin
CREATE FUNCTION start_some_runs(ids uuid[], default_max integer, at timestamptz, own smallint) RETURNS SETOF uuid
    LANGUAGE plpgsql VOLATILE ROWS 64 SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    started uuid[];
    backlogged uuid[];
    tenants uuid[];
BEGIN
    WITH of_tenant AS MATERIALIZED (
        SELECT c.tenant_id, c.cancelling, c.running, c.running_by_type, t.max_running, t.max_running_by_type
        FROM public.running_totals c LEFT JOIN LATERAL (SELECT * FROM public.tenants r WHERE r.id = c.tenant_id OFFSET 0) t ON true
        WHERE NOT c.suspended
          AND c.tenant_id = ANY (ARRAY(SELECT DISTINCT e.tenant_id FROM public.active_executions e WHERE e.id = ANY (start_some_runs.ids)))
    ),
    asked AS MATERIALIZED (
        SELECT e.id, e.tenant_id, e.job_type, e.concurrency_key, e.priority, e.available_at,
               coalesce(t.max_running, nullif(default_max, 0), 1000000000) - t.running AS free,
               row_number() OVER (PARTITION BY e.tenant_id, e.job_type ORDER BY e.priority DESC, e.available_at, e.id)
                 <= coalesce((t.max_running_by_type->>e.job_type)::integer, 1000000) - coalesce((t.running_by_type->>e.job_type)::bigint, 0) AS fits
        FROM public.active_executions e CROSS JOIN LATERAL (SELECT * FROM of_tenant o WHERE o.tenant_id = e.tenant_id) t
        WHERE e.id = ANY (start_some_runs.ids)
          AND CASE WHEN t.cancelling > 0 THEN NOT public.is_cancelled(e.job_id, e.generation, e.backfill_id IS NOT NULL) ELSE true END
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
        UPDATE public.running_shards s SET runs = s.runs + n.runs, runs_by_type = public.add_by_type(s.runs_by_type, n.types, 1)
        FROM (SELECT d.tenant_id, count(*) AS runs, array_agg(d.job_type) AS types FROM decided d WHERE d.starts GROUP BY d.tenant_id) n
        WHERE s.tenant_id = n.tenant_id AND s.shard = own
    )
    SELECT array_agg(d.id) FILTER (WHERE d.starts), array_agg(DISTINCT d.tenant_id) FILTER (WHERE NOT d.starts), array_agg(DISTINCT d.tenant_id)
    INTO started, backlogged, tenants FROM decided d;
    IF backlogged IS NOT NULL THEN
        UPDATE public.running_shards s SET backlogged_at = at
        WHERE s.tenant_id = ANY (backlogged) AND s.shard = 0 AND (s.backlogged_at IS NULL OR s.backlogged_at < at - interval '10 seconds');
    END IF;
    PERFORM public.deal_permits(tenants, default_max, own);
    RETURN QUERY SELECT unnest(started);
END
$$;
-- +goose StatementEnd

-- Deals the permits of tenants out anew, of which the caller holds all shards that start
-- runs, where this shard has used up its own or they are of another limit: each shard gets
-- what runs by it and an equal part of what is free. Where more run than the limit allows
-- nobody gets any, until an exact count finds room again.
-- +goose StatementBegin
CREATE FUNCTION deal_permits(tenants uuid[], default_max integer, own smallint) RETURNS void
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, public, pg_temp
AS $$
    UPDATE public.running_shards s SET permits = n.permits, permits_of = n.most
    FROM (
        SELECT w.tenant_id, w.most, p.shard,
               CASE WHEN sum(p.running) OVER of_tenant > w.most THEN -1000000000000
                    ELSE p.running + div(w.most - sum(p.running) OVER of_tenant, 8) END::bigint AS permits,
               bool_or(p.shard = own AND p.running >= p.permits OR p.permits_of IS DISTINCT FROM w.most) OVER of_tenant AS needed
        FROM (SELECT u.id AS tenant_id, coalesce(t.max_running, nullif(default_max, 0), 1000000000) AS most
              FROM unnest(tenants) AS u(id) LEFT JOIN public.tenants t ON t.id = u.id) w
        CROSS JOIN LATERAL (
            SELECT b.shard, b.runs + e.runs AS running, b.permits, b.permits_of
            FROM public.running_shards b JOIN public.running_shards e ON e.tenant_id = b.tenant_id AND e.shard = b.shard + 8
            WHERE b.tenant_id = w.tenant_id AND b.shard < 8
        ) p
        WINDOW of_tenant AS (PARTITION BY w.tenant_id)
    ) n
    WHERE n.needed AND s.tenant_id = n.tenant_id AND s.shard = n.shard AND (s.permits, s.permits_of) IS DISTINCT FROM (n.permits, n.most)
$$;
-- +goose StatementEnd

-- Counts executions as no longer running, whose rows the caller holds locked, with the
-- workers that ran them, and frees the keys of those that have one. Returns, of each
-- tenant, when a claim last left something behind because of its limits. Where a claim
-- leaves something behind at the moment at which this makes room, neither sees the other:
-- a poll finds it.
-- +goose StatementBegin
CREATE FUNCTION end_runs(tenant_ids uuid[], job_types text[], workers uuid[], keyed_ids uuid[]) RETURNS TABLE (tenant uuid, backlogged_since timestamptz)
    LANGUAGE plpgsql VOLATILE ROWS 16 SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT a.tenant_id, a.shard, a.types
        FROM (SELECT u.tenant_id, (8 + public.shard_of(u.worker))::smallint AS shard, array_agg(u.job_type) AS types
              FROM unnest(tenant_ids, job_types, workers) AS u(tenant_id, job_type, worker) GROUP BY 1, 2 ORDER BY 1, 2) a
        CROSS JOIN LATERAL (SELECT 1 FROM public.running_shards s WHERE s.tenant_id = a.tenant_id AND s.shard = a.shard FOR UPDATE) c
    ),
    ended AS (
        UPDATE public.running_shards s SET runs = s.runs - cardinality(h.types),
            runs_by_type = CASE WHEN h.types[1] = ALL (h.types) THEN s.runs_by_type || jsonb_build_object(h.types[1], coalesce((s.runs_by_type->>h.types[1])::bigint, 0) - cardinality(h.types))
                                ELSE public.add_by_type(s.runs_by_type, h.types, -1) END
        FROM held h WHERE s.tenant_id = h.tenant_id AND s.shard = h.shard
    )
    SELECT z.tenant_id, z.backlogged_at FROM public.running_shards z WHERE z.tenant_id = ANY (ARRAY(SELECT h.tenant_id FROM held h)) AND z.shard = 0;
    IF cardinality(keyed_ids) > 0 THEN
        DELETE FROM public.running_keys k WHERE k.execution_id = ANY (keyed_ids);
    END IF;
END
$$;
-- +goose StatementEnd

-- Processes of the version before call these. They name no worker, so shards 0 and 8 count
-- for all of them.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION start_runs(ids uuid[], tenant_ids uuid[], job_types text[], keys text[], default_max integer, at timestamptz) RETURNS SETOF uuid
    LANGUAGE sql VOLATILE ROWS 64 SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT public.start_runs(ids, tenant_ids, job_types, keys, default_max, at, NULL)
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION end_runs(tenant_ids uuid[], job_types text[], keyed_ids uuid[]) RETURNS TABLE (tenant uuid, crowded_since timestamptz)
    LANGUAGE sql VOLATILE ROWS 16 SET search_path = pg_catalog, public, pg_temp
AS $$
    SELECT * FROM public.end_runs(tenant_ids, job_types, array_fill(NULL::uuid, ARRAY[coalesce(cardinality(tenant_ids), 0)]), keyed_ids)
$$;
-- +goose StatementEnd
DROP FUNCTION start_some_runs(uuid[], integer, timestamptz);

-- The shards take over what was counted. Calls that are inside the old functions write the old
-- rows once more: 000204 takes that over.
WITH taken AS MATERIALIZED (
    SELECT c.tenant_id, c.running, c.running_by_type, c.crowded_at FROM running_counts c WHERE c.running <> 0 OR c.running_by_type <> '{}' FOR UPDATE
),
zero AS (
    UPDATE running_counts c SET running = 0, running_by_type = '{}' FROM taken t WHERE c.tenant_id = t.tenant_id
)
UPDATE running_shards s SET runs = t.running, runs_by_type = t.running_by_type, backlogged_at = t.crowded_at
FROM taken t WHERE s.tenant_id = t.tenant_id AND s.shard = 0;

-- Down does not bring the functions before these back: the baseline's goes on from here and drops everything.
-- +goose Down
DROP FUNCTION end_runs(uuid[], text[], uuid[], uuid[]);
DROP FUNCTION start_runs(uuid[], uuid[], text[], text[], integer, timestamptz, uuid);
DROP FUNCTION start_some_runs(uuid[], integer, timestamptz, smallint);
DROP FUNCTION deal_permits(uuid[], integer, smallint);
DROP FUNCTION permits_left(uuid, smallint, integer);
