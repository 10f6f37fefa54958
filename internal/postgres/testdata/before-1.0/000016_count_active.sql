-- What a promoter must count is counted on the way of its claim. Lock: none.
-- Duration: milliseconds.

-- +goose Up
-- The runs of jobs that are not over: places taken or reserved, and runs that
-- wait. Volatile, and in PL/pgSQL, so that it sees what was committed when it is
-- called and not when its statement began: whoever locks the jobs and then calls
-- it in one statement counts under the lock, and saves the round trip between.
-- What waits of a backfill counts as neither: it would have due instants skipped.
-- +goose StatementBegin
CREATE FUNCTION count_active(jobs uuid[]) RETURNS TABLE (job_id uuid, taken bigint, waiting bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT e.job_id, count(*) FILTER (WHERE e.status = 'running' OR e.concurrency_limit = 0),
           count(*) FILTER (WHERE e.status <> 'running' AND e.concurrency_limit > 0 AND e.backfill_id IS NULL)
    FROM public.active_executions e WHERE e.job_id = ANY (jobs) GROUP BY e.job_id;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION count_active(uuid[]);
