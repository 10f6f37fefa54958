-- An attempt may await a callback: its target took the call and reports the end later.
-- No worker runs it meanwhile.

-- +goose Up
-- While awaited_until is set the row keeps its status (running), its attempt, its lease
-- token, its concurrency slot and its concurrency key, and counts against no limit of its
-- tenant. sweep_at is infinite, so neither the sweeper nor a worker's comparison finds it.
-- awaited_until is the earliest moment at which the wait may have to end: a heartbeat only
-- writes last_heartbeat_at, which no index holds, and the pass that finds the row moves it.
ALTER TABLE active_executions ADD COLUMN awaited_until timestamptz, ADD COLUMN heartbeat_ms integer, ADD COLUMN last_heartbeat_at timestamptz;

-- Counts executions that awaited a callback as running again, whose rows the caller holds
-- locked, so that the statement that ends them finds the counts as it leaves them. No limit is asked: both are one
-- transaction. It writes the shards that end_runs writes, in the same order.
-- +goose StatementBegin
CREATE FUNCTION resume_runs(tenant_ids uuid[], job_types text[], workers uuid[]) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    resumed bigint;
BEGIN
    WITH held AS MATERIALIZED (
        SELECT a.tenant_id, a.shard, a.types
        FROM (SELECT u.tenant_id, (8 + public.shard_of(u.worker))::smallint AS shard, array_agg(u.job_type) AS types
              FROM unnest(tenant_ids, job_types, workers) AS u(tenant_id, job_type, worker) GROUP BY 1, 2 ORDER BY 1, 2) a
        CROSS JOIN LATERAL (SELECT 1 FROM public.running_shards s WHERE s.tenant_id = a.tenant_id AND s.shard = a.shard FOR UPDATE) c
    ),
    counted AS (
        UPDATE public.running_shards s SET runs = s.runs + cardinality(h.types), runs_by_type = public.add_by_type(s.runs_by_type, h.types, 1)
        FROM held h WHERE s.tenant_id = h.tenant_id AND s.shard = h.shard
        RETURNING cardinality(h.types) AS runs
    )
    SELECT coalesce(sum(c.runs), 0) INTO resumed FROM counted c;
    RETURN resumed;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION resume_runs(uuid[], text[], uuid[]);
ALTER TABLE active_executions DROP COLUMN last_heartbeat_at, DROP COLUMN heartbeat_ms, DROP COLUMN awaited_until;
