-- A write through the view scheduled_jobs could put back what others had written meanwhile, and a
-- schedule could be left without its job.

-- +goose Up
-- An update through a view does not wait for a row that somebody holds and look again, as
-- one of a table does. So the row is locked here. If it is another one by now, what the
-- statement did not set stays as it is now, and execution_count and generation, which statements
-- only raise, are raised from what they are now.
-- The job is left alone if it is deleted by now, or if it has another version, status or next
-- time and the statement sets one of them: a pass comes again, and a request that
-- sets them has locked the job before. The statement returns the job as it is now.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION write_job() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    job   public.scheduled_jobs;
    asked jsonb;
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO public.job_definitions (
            id, tenant_id, name, description, tags, created_by, created_at, updated_at, deleted_at, version, cron_expression, interval_ms, run_at,
            timezone, anchor_at, start_date, end_date, max_executions, jitter_seconds, dst_gap, dst_overlap, calendars, job_type, config, secret_names,
            retry_config, max_attempts, timeout_seconds, priority, max_concurrent, concurrency_key, overlap_policy, overlap_queue_limit,
            misfire_policy, misfire_limit, misfire_grace_seconds, disable_after_failures, status, status_reason, status_by, status_at, paused_until,
            resume_policy, generation, execution_timeout_seconds, set_name, complete_within_seconds)
        VALUES (NEW.id, NEW.tenant_id, NEW.name, NEW.description, NEW.tags, NEW.created_by, NEW.created_at, NEW.updated_at, NEW.deleted_at,
                NEW.version, NEW.cron_expression, NEW.interval_ms, NEW.run_at, NEW.timezone, NEW.anchor_at, NEW.start_date, NEW.end_date,
                NEW.max_executions, NEW.jitter_seconds, NEW.dst_gap, NEW.dst_overlap, NEW.calendars, NEW.job_type, NEW.config, NEW.secret_names,
                NEW.retry_config, NEW.max_attempts, NEW.timeout_seconds, NEW.priority, NEW.max_concurrent, NEW.concurrency_key, NEW.overlap_policy,
                NEW.overlap_queue_limit, NEW.misfire_policy, NEW.misfire_limit, NEW.misfire_grace_seconds, NEW.disable_after_failures, NEW.status,
                NEW.status_reason, NEW.status_by, NEW.status_at, NEW.paused_until, NEW.resume_policy, NEW.generation, NEW.execution_timeout_seconds,
                NEW.set_name, NEW.complete_within_seconds);
        INSERT INTO public.job_schedule (job_id, tenant_id, status, next_execution_at, last_execution_at, execution_count, catch_up_until, audited_at, audit_difference)
        VALUES (NEW.id, NEW.tenant_id, NEW.status, NEW.next_execution_at, NEW.last_execution_at, NEW.execution_count, NEW.catch_up_until, NEW.audited_at, NEW.audit_difference);
        RETURN NEW;
    END IF;
    SELECT * INTO job FROM public.scheduled_jobs j WHERE j.id = OLD.id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'DELETE' THEN
        DELETE FROM public.job_definitions d
        WHERE d.id = OLD.id AND (job.version, job.status, job.deleted_at, job.next_execution_at)
                                IS NOT DISTINCT FROM (OLD.version, OLD.status, OLD.deleted_at, OLD.next_execution_at);
        RETURN CASE WHEN FOUND THEN OLD END;
    END IF;
    IF (NEW.id, NEW.tenant_id) <> (OLD.id, OLD.tenant_id) THEN
        RAISE EXCEPTION 'a job keeps its id and its tenant' USING ERRCODE = 'check_violation';
    END IF;
    IF job IS DISTINCT FROM OLD THEN
        IF job.deleted_at IS DISTINCT FROM OLD.deleted_at
           OR ((job.version, job.status, job.next_execution_at) IS DISTINCT FROM (OLD.version, OLD.status, OLD.next_execution_at)
               AND (NEW.version, NEW.status, NEW.deleted_at, NEW.next_execution_at)
                   IS DISTINCT FROM (OLD.version, OLD.status, OLD.deleted_at, OLD.next_execution_at)) THEN
            RETURN NULL;
        END IF;
        NEW.generation := job.generation + NEW.generation - OLD.generation;
        NEW.execution_count := job.execution_count + NEW.execution_count - OLD.execution_count;
        asked := (SELECT jsonb_object_agg(n.key, n.value) FROM jsonb_each(to_jsonb(NEW)) n
                  WHERE n.key IN ('generation', 'execution_count') OR n.value IS DISTINCT FROM to_jsonb(OLD) -> n.key);
        NEW := jsonb_populate_record(job, asked);
        OLD := job;
    END IF;
    -- The definition, the deletion, the status and the set have triggers of their own: a statement
    -- that changes one of them alone does not write the others.
    IF (NEW.name, NEW.description, NEW.tags, NEW.created_by, NEW.created_at, NEW.version, NEW.cron_expression,
        NEW.interval_ms, NEW.run_at, NEW.timezone, NEW.anchor_at, NEW.start_date, NEW.end_date, NEW.max_executions, NEW.jitter_seconds, NEW.dst_gap,
        NEW.dst_overlap, NEW.calendars, NEW.job_type, NEW.config, NEW.secret_names, NEW.retry_config, NEW.max_attempts, NEW.timeout_seconds, NEW.priority, NEW.max_concurrent,
        NEW.concurrency_key, NEW.overlap_policy, NEW.overlap_queue_limit, NEW.misfire_policy, NEW.misfire_limit, NEW.misfire_grace_seconds,
        NEW.disable_after_failures, NEW.execution_timeout_seconds, NEW.complete_within_seconds)
       IS DISTINCT FROM
       (OLD.name, OLD.description, OLD.tags, OLD.created_by, OLD.created_at, OLD.version, OLD.cron_expression,
        OLD.interval_ms, OLD.run_at, OLD.timezone, OLD.anchor_at, OLD.start_date, OLD.end_date, OLD.max_executions, OLD.jitter_seconds, OLD.dst_gap,
        OLD.dst_overlap, OLD.calendars, OLD.job_type, OLD.config, OLD.secret_names, OLD.retry_config, OLD.max_attempts, OLD.timeout_seconds, OLD.priority, OLD.max_concurrent,
        OLD.concurrency_key, OLD.overlap_policy, OLD.overlap_queue_limit, OLD.misfire_policy, OLD.misfire_limit, OLD.misfire_grace_seconds,
        OLD.disable_after_failures, OLD.execution_timeout_seconds, OLD.complete_within_seconds) THEN
        UPDATE public.job_definitions d SET
            deleted_at = NEW.deleted_at, name = NEW.name, description = NEW.description, tags = NEW.tags,
            created_by = NEW.created_by, created_at = NEW.created_at,
            version = NEW.version, cron_expression = NEW.cron_expression, interval_ms = NEW.interval_ms, run_at = NEW.run_at, timezone = NEW.timezone,
            anchor_at = NEW.anchor_at, start_date = NEW.start_date, end_date = NEW.end_date, max_executions = NEW.max_executions,
            jitter_seconds = NEW.jitter_seconds, dst_gap = NEW.dst_gap, dst_overlap = NEW.dst_overlap, calendars = NEW.calendars,
            job_type = NEW.job_type, config = NEW.config, secret_names = NEW.secret_names, retry_config = NEW.retry_config,
            max_attempts = NEW.max_attempts, timeout_seconds = NEW.timeout_seconds, priority = NEW.priority, max_concurrent = NEW.max_concurrent,
            concurrency_key = NEW.concurrency_key, overlap_policy = NEW.overlap_policy, overlap_queue_limit = NEW.overlap_queue_limit,
            misfire_policy = NEW.misfire_policy, misfire_limit = NEW.misfire_limit, misfire_grace_seconds = NEW.misfire_grace_seconds,
            disable_after_failures = NEW.disable_after_failures, execution_timeout_seconds = NEW.execution_timeout_seconds,
            complete_within_seconds = NEW.complete_within_seconds, status = NEW.status, status_reason = NEW.status_reason, status_by = NEW.status_by,
            status_at = NEW.status_at, paused_until = NEW.paused_until, resume_policy = NEW.resume_policy,
            updated_at = NEW.updated_at, generation = NEW.generation
        WHERE d.id = OLD.id;
    ELSIF NEW.deleted_at IS DISTINCT FROM OLD.deleted_at THEN
        UPDATE public.job_definitions d SET
            deleted_at = NEW.deleted_at, status = NEW.status, status_reason = NEW.status_reason, status_by = NEW.status_by,
            status_at = NEW.status_at, paused_until = NEW.paused_until, resume_policy = NEW.resume_policy, updated_at = NEW.updated_at,
            generation = NEW.generation
        WHERE d.id = OLD.id;
    ELSIF (NEW.status, NEW.status_reason, NEW.status_by, NEW.status_at, NEW.paused_until, NEW.resume_policy)
       IS DISTINCT FROM (OLD.status, OLD.status_reason, OLD.status_by, OLD.status_at, OLD.paused_until, OLD.resume_policy) THEN
        UPDATE public.job_definitions d SET
            status = NEW.status, status_reason = NEW.status_reason, status_by = NEW.status_by, status_at = NEW.status_at,
            paused_until = NEW.paused_until, resume_policy = NEW.resume_policy, updated_at = NEW.updated_at,
            generation = NEW.generation
        WHERE d.id = OLD.id;
    ELSIF (NEW.updated_at, NEW.generation) IS DISTINCT FROM (OLD.updated_at, OLD.generation) THEN
        UPDATE public.job_definitions d SET updated_at = NEW.updated_at, generation = NEW.generation WHERE d.id = OLD.id;
    END IF;
    IF NEW.set_name <> OLD.set_name THEN
        UPDATE public.job_definitions d SET set_name = NEW.set_name WHERE d.id = OLD.id;
    END IF;
    IF (NEW.next_execution_at, NEW.last_execution_at, NEW.execution_count, NEW.catch_up_until, NEW.audited_at, NEW.audit_difference)
       IS DISTINCT FROM (OLD.next_execution_at, OLD.last_execution_at, OLD.execution_count, OLD.catch_up_until, OLD.audited_at, OLD.audit_difference) THEN
        UPDATE public.job_schedule s SET
            next_execution_at = NEW.next_execution_at, last_execution_at = NEW.last_execution_at, execution_count = NEW.execution_count,
            catch_up_until = NEW.catch_up_until, audited_at = NEW.audited_at, audit_difference = NEW.audit_difference
        WHERE s.job_id = OLD.id;
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd

-- A status that finds no schedule to be copied to would leave a job that nobody sees: a role that may
-- write one table and not the other is refused.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION copy_job_status() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE public.job_schedule s SET status = NEW.status WHERE s.job_id = NEW.id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the schedule of job % is missing or may not be written', NEW.id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
ALTER TABLE job_definitions ENABLE ALWAYS TRIGGER remove_job_schedule;

-- On tables that are empty a plan made once would read them whole for ever.
ALTER FUNCTION held_jobs(uuid[]) SET enable_seqscan = off;

-- +goose Down
ALTER FUNCTION held_jobs(uuid[]) RESET enable_seqscan;
ALTER TABLE job_definitions ENABLE TRIGGER remove_job_schedule;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION copy_job_status() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE public.job_schedule s SET status = NEW.status WHERE s.job_id = NEW.id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION write_job() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    changed boolean;
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO public.job_definitions (
            id, tenant_id, name, description, tags, created_by, created_at, updated_at, deleted_at, version, cron_expression, interval_ms, run_at,
            timezone, anchor_at, start_date, end_date, max_executions, jitter_seconds, dst_gap, dst_overlap, calendars, job_type, config, secret_names,
            retry_config, max_attempts, timeout_seconds, priority, max_concurrent, concurrency_key, overlap_policy, overlap_queue_limit,
            misfire_policy, misfire_limit, misfire_grace_seconds, disable_after_failures, status, status_reason, status_by, status_at, paused_until,
            resume_policy, generation, execution_timeout_seconds, set_name, complete_within_seconds)
        VALUES (NEW.id, NEW.tenant_id, NEW.name, NEW.description, NEW.tags, NEW.created_by, NEW.created_at, NEW.updated_at, NEW.deleted_at,
                NEW.version, NEW.cron_expression, NEW.interval_ms, NEW.run_at, NEW.timezone, NEW.anchor_at, NEW.start_date, NEW.end_date,
                NEW.max_executions, NEW.jitter_seconds, NEW.dst_gap, NEW.dst_overlap, NEW.calendars, NEW.job_type, NEW.config, NEW.secret_names,
                NEW.retry_config, NEW.max_attempts, NEW.timeout_seconds, NEW.priority, NEW.max_concurrent, NEW.concurrency_key, NEW.overlap_policy,
                NEW.overlap_queue_limit, NEW.misfire_policy, NEW.misfire_limit, NEW.misfire_grace_seconds, NEW.disable_after_failures, NEW.status,
                NEW.status_reason, NEW.status_by, NEW.status_at, NEW.paused_until, NEW.resume_policy, NEW.generation, NEW.execution_timeout_seconds,
                NEW.set_name, NEW.complete_within_seconds);
        INSERT INTO public.job_schedule (job_id, tenant_id, status, next_execution_at, last_execution_at, execution_count, catch_up_until, audited_at, audit_difference)
        VALUES (NEW.id, NEW.tenant_id, NEW.status, NEW.next_execution_at, NEW.last_execution_at, NEW.execution_count, NEW.catch_up_until, NEW.audited_at, NEW.audit_difference);
        RETURN NEW;
    END IF;
    SELECT (d.version, d.status, d.deleted_at, s.next_execution_at) IS DISTINCT FROM (OLD.version, OLD.status, OLD.deleted_at, OLD.next_execution_at) INTO changed
    FROM public.job_schedule s JOIN public.job_definitions d ON d.id = s.job_id WHERE s.job_id = OLD.id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'DELETE' THEN
        DELETE FROM public.job_definitions d WHERE d.id = OLD.id AND NOT changed;
        RETURN CASE WHEN FOUND THEN OLD END;
    END IF;
    IF (NEW.id, NEW.tenant_id) <> (OLD.id, OLD.tenant_id) THEN
        RAISE EXCEPTION 'a job keeps its id and its tenant' USING ERRCODE = 'check_violation';
    END IF;
    IF changed AND (NEW.version, NEW.status, NEW.deleted_at, NEW.next_execution_at)
                   IS DISTINCT FROM (OLD.version, OLD.status, OLD.deleted_at, OLD.next_execution_at) THEN
        RETURN NULL;
    END IF;
    -- The name of the set has a trigger of its own, so it is written alone.
    IF (NEW.deleted_at, NEW.name, NEW.description, NEW.tags, NEW.created_by, NEW.created_at, NEW.version, NEW.cron_expression,
        NEW.interval_ms, NEW.run_at, NEW.timezone, NEW.anchor_at, NEW.start_date, NEW.end_date, NEW.max_executions, NEW.jitter_seconds, NEW.dst_gap,
        NEW.dst_overlap, NEW.calendars, NEW.job_type, NEW.config, NEW.secret_names, NEW.retry_config, NEW.max_attempts, NEW.timeout_seconds, NEW.priority, NEW.max_concurrent,
        NEW.concurrency_key, NEW.overlap_policy, NEW.overlap_queue_limit, NEW.misfire_policy, NEW.misfire_limit, NEW.misfire_grace_seconds,
        NEW.disable_after_failures, NEW.execution_timeout_seconds, NEW.complete_within_seconds)
       IS DISTINCT FROM
       (OLD.deleted_at, OLD.name, OLD.description, OLD.tags, OLD.created_by, OLD.created_at, OLD.version, OLD.cron_expression,
        OLD.interval_ms, OLD.run_at, OLD.timezone, OLD.anchor_at, OLD.start_date, OLD.end_date, OLD.max_executions, OLD.jitter_seconds, OLD.dst_gap,
        OLD.dst_overlap, OLD.calendars, OLD.job_type, OLD.config, OLD.secret_names, OLD.retry_config, OLD.max_attempts, OLD.timeout_seconds, OLD.priority, OLD.max_concurrent,
        OLD.concurrency_key, OLD.overlap_policy, OLD.overlap_queue_limit, OLD.misfire_policy, OLD.misfire_limit, OLD.misfire_grace_seconds,
        OLD.disable_after_failures, OLD.execution_timeout_seconds, OLD.complete_within_seconds) THEN
        UPDATE public.job_definitions d SET
            deleted_at = NEW.deleted_at, name = NEW.name, description = NEW.description, tags = NEW.tags,
            created_by = NEW.created_by, created_at = NEW.created_at,
            version = NEW.version, cron_expression = NEW.cron_expression, interval_ms = NEW.interval_ms, run_at = NEW.run_at, timezone = NEW.timezone,
            anchor_at = NEW.anchor_at, start_date = NEW.start_date, end_date = NEW.end_date, max_executions = NEW.max_executions,
            jitter_seconds = NEW.jitter_seconds, dst_gap = NEW.dst_gap, dst_overlap = NEW.dst_overlap, calendars = NEW.calendars,
            job_type = NEW.job_type, config = NEW.config, secret_names = NEW.secret_names, retry_config = NEW.retry_config,
            max_attempts = NEW.max_attempts, timeout_seconds = NEW.timeout_seconds, priority = NEW.priority, max_concurrent = NEW.max_concurrent,
            concurrency_key = NEW.concurrency_key, overlap_policy = NEW.overlap_policy, overlap_queue_limit = NEW.overlap_queue_limit,
            misfire_policy = NEW.misfire_policy, misfire_limit = NEW.misfire_limit, misfire_grace_seconds = NEW.misfire_grace_seconds,
            disable_after_failures = NEW.disable_after_failures, execution_timeout_seconds = NEW.execution_timeout_seconds,
            complete_within_seconds = NEW.complete_within_seconds, status = NEW.status, status_reason = NEW.status_reason, status_by = NEW.status_by,
            status_at = NEW.status_at, paused_until = NEW.paused_until, resume_policy = NEW.resume_policy,
            updated_at = NEW.updated_at, generation = NEW.generation
        WHERE d.id = OLD.id;
    ELSIF (NEW.status, NEW.status_reason, NEW.status_by, NEW.status_at, NEW.paused_until, NEW.resume_policy, NEW.updated_at,
        NEW.generation)
       IS DISTINCT FROM (OLD.status, OLD.status_reason, OLD.status_by, OLD.status_at, OLD.paused_until, OLD.resume_policy, OLD.updated_at,
        OLD.generation) THEN
        UPDATE public.job_definitions d SET
            status = NEW.status, status_reason = NEW.status_reason, status_by = NEW.status_by, status_at = NEW.status_at,
            paused_until = NEW.paused_until, resume_policy = NEW.resume_policy, updated_at = NEW.updated_at,
            generation = NEW.generation
        WHERE d.id = OLD.id;
    END IF;
    IF NEW.set_name <> OLD.set_name THEN
        UPDATE public.job_definitions d SET set_name = NEW.set_name WHERE d.id = OLD.id;
    END IF;
    IF (NEW.next_execution_at, NEW.last_execution_at, NEW.execution_count, NEW.catch_up_until, NEW.audited_at, NEW.audit_difference)
       IS DISTINCT FROM (OLD.next_execution_at, OLD.last_execution_at, OLD.execution_count, OLD.catch_up_until, OLD.audited_at, OLD.audit_difference) THEN
        UPDATE public.job_schedule s SET
            next_execution_at = NEW.next_execution_at, last_execution_at = NEW.last_execution_at, execution_count = NEW.execution_count,
            catch_up_until = NEW.catch_up_until, audited_at = NEW.audited_at, audit_difference = NEW.audit_difference
        WHERE s.job_id = OLD.id;
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd
