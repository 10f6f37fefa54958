-- An exact count reads the executions that are claimed, and no others of their tenant.

-- +goose Up
-- Counts executions as running as far as the limits of their tenants allow, and returns those
-- that may start. start_runs calls it for tenants that it counts exactly: it has locked their
-- shards before, so no other call changes their counts meanwhile.
-- Nothing that is being cancelled starts. Of the rest those start that fit, most urgent first,
-- then oldest. Where some do not fit, their tenant is marked: a statement that ends one of its
-- runs then looks for the next. A key is taken by inserting it, and its primary key decides.
-- Nobody waits for it, because a statement that writes a key has these shards locked.
-- The executions are read by their ids before they are joined to their tenants. The function
-- before this one left the order to PostgreSQL. Where a session had planned it while the table
-- was empty, each claim of 256 executions walked the index of all executions of their tenant. With
-- 100,000 of them that took 140 ms, and lasted until the table was analysed.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION start_some_runs(ids uuid[], default_max integer, at timestamptz, own smallint) RETURNS SETOF uuid
    LANGUAGE plpgsql VOLATILE ROWS 64 SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    started uuid[];
    backlogged uuid[];
    tenants uuid[];
BEGIN
    WITH claimed AS MATERIALIZED (
        SELECT e.id, e.tenant_id, e.job_id, e.job_type, e.concurrency_key, e.priority, e.available_at, e.generation, e.backfill_id
        FROM public.active_executions e WHERE e.id = ANY (start_some_runs.ids)
    ),
    of_tenant AS MATERIALIZED (
        SELECT c.tenant_id, c.cancelling, c.running, c.running_by_type, t.max_running, t.max_running_by_type
        FROM public.running_totals c LEFT JOIN LATERAL (SELECT * FROM public.tenants r WHERE r.id = c.tenant_id OFFSET 0) t ON true
        WHERE NOT c.suspended
          AND c.tenant_id = ANY (ARRAY(SELECT DISTINCT e.tenant_id FROM claimed e))
    ),
    asked AS MATERIALIZED (
        SELECT e.id, e.tenant_id, e.job_type, e.concurrency_key, e.priority, e.available_at,
               coalesce(t.max_running, nullif(default_max, 0), 1000000000) - t.running AS free,
               row_number() OVER (PARTITION BY e.tenant_id, e.job_type ORDER BY e.priority DESC, e.available_at, e.id)
                 <= coalesce((t.max_running_by_type->>e.job_type)::integer, 1000000) - coalesce((t.running_by_type->>e.job_type)::bigint, 0) AS fits
        FROM claimed e CROSS JOIN LATERAL (SELECT * FROM of_tenant o WHERE o.tenant_id = e.tenant_id) t
        WHERE CASE WHEN t.cancelling > 0 THEN NOT public.is_cancelled(e.job_id, e.generation, e.backfill_id IS NOT NULL) ELSE true END
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

-- Down leaves the function: the release before is content with the same counts.
-- +goose Down
SELECT 1;
