-- The primary key of the history begins with the tenant, so that it serves the list of a
-- tenant too: one index in place of two.
--
-- An installation that has jobs or executions keeps both: processes of the version before
-- insert ON CONFLICT (id, scheduled_at), which needs the old key, and to build the new one
-- takes long. `migrate index-history` changes it there, once they are replaced.

-- +goose Up
-- It named the old key: ON CONFLICT (id, scheduled_at).
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cancel_waiting(ids uuid[], why text, by_whom text, at timestamptz) RETURNS bigint
    LANGUAGE sql SET search_path = pg_catalog, public, pg_temp
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
        ON CONFLICT DO NOTHING
    )
    SELECT count(*) FROM moved
$$;
-- +goose StatementEnd

-- By the size of the files: the owner of the tables sees none of their rows.
-- +goose StatementBegin
DO $$
BEGIN
    IF pg_relation_size('public.scheduled_jobs') = 0
       AND (SELECT sum(pg_relation_size(t.relid)) FROM pg_partition_tree('public.job_executions') t) = 0 THEN
        ALTER TABLE public.job_executions DROP CONSTRAINT job_executions_pkey;
        DROP INDEX public.job_executions_list;
        ALTER TABLE public.job_executions ADD CONSTRAINT job_executions_pkey PRIMARY KEY (tenant_id, scheduled_at, id);
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
-- The function stays: it works with either key.
-- +goose StatementBegin
DO $$
BEGIN
    IF to_regclass('public.job_executions_list') IS NULL THEN
        ALTER TABLE public.job_executions DROP CONSTRAINT job_executions_pkey;
        ALTER TABLE public.job_executions ADD CONSTRAINT job_executions_pkey PRIMARY KEY (id, scheduled_at);
        CREATE INDEX job_executions_list ON public.job_executions (tenant_id, scheduled_at DESC, id DESC);
    END IF;
END
$$;
-- +goose StatementEnd
