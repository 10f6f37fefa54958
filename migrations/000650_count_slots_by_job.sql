-- A trigger counts the concurrency slots of its job and reads the executions of that job alone.

-- +goose Up
-- The function before this one asked first whether any execution of these jobs waits. In a
-- session of a tenant, the row-level security of the table adds a condition on the tenant.
-- PostgreSQL planned the question while the table was empty, and chose the index by tenant. It
-- kept this plan, and in the next burst each question read the other executions of the tenant.
-- With ten tenants of 1,400 waiting executions each, a trigger read 126 pages. Without the
-- question it reads 22.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION count_active(jobs uuid[]) RETURNS TABLE (job_id uuid, taken bigint, waiting bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM public.cancellations o WHERE o.job_id = ANY (jobs)) THEN -- most of the time
        RETURN QUERY
        SELECT j.id, (SELECT count(*) FROM (SELECT 1 FROM public.active_executions e WHERE e.job_id = j.id AND e.has_slot LIMIT 1001) seen),
               (SELECT count(*) FROM (SELECT 1 FROM public.active_executions e
                                      WHERE e.job_id = j.id AND e.awaits_slot AND num_nonnulls(e.backfill_id) = 0 LIMIT 1001) seen)
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

-- Down leaves the function: the release before is content with the same counts.
-- +goose Down
SELECT 1;
