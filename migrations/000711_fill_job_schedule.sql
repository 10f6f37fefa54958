-- The schedules of the jobs that are there, in pieces: who changes a job waits for no more than a
-- piece. A job that was changed meanwhile has its row already, and a newer one. If it ends half-way,
-- it may be repeated.

-- +goose NO TRANSACTION
-- +goose Up
-- +goose StatementBegin
DO $$
DECLARE
    after uuid := '00000000-0000-0000-0000-000000000000';
    ids   uuid[];
BEGIN
    LOOP
        ids := ARRAY(SELECT j.id FROM public.scheduled_jobs j WHERE j.id > after ORDER BY j.id LIMIT 1000);
        EXIT WHEN cardinality(ids) = 0;
        after := ids[cardinality(ids)];
        INSERT INTO public.job_schedule (job_id, tenant_id, status, next_execution_at, last_execution_at, execution_count, catch_up_until, audited_at, audit_difference)
        SELECT j.id, j.tenant_id, j.status, j.next_execution_at, j.last_execution_at, j.execution_count, j.catch_up_until, j.audited_at, j.audit_difference
        FROM public.scheduled_jobs j WHERE j.id = ANY (ids) ORDER BY j.id FOR KEY SHARE
        ON CONFLICT DO NOTHING;
        COMMIT;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose Down
SELECT 1;
