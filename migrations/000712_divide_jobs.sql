-- Divides the table of the jobs: job_definitions has what people write, job_schedule what the
-- promoter writes. The view scheduled_jobs has both, as the table had: processes of the version before
-- read and write it as they did, and so does what writes a job now and then.

-- +goose Up
DROP TRIGGER follow_job ON scheduled_jobs;
DROP FUNCTION follow_job();
DROP POLICY filling ON scheduled_jobs;
DROP POLICY filling ON job_schedule;
REVOKE INSERT, UPDATE ON job_schedule FROM scheduler_engine;
GRANT UPDATE (status, next_execution_at, last_execution_at, execution_count, catch_up_until, audited_at, audit_difference) ON job_schedule TO scheduler_engine;
ALTER TABLE scheduled_jobs RENAME TO job_definitions;
ALTER TABLE job_definitions
    DROP COLUMN next_execution_at, DROP COLUMN last_execution_at, DROP COLUMN execution_count, DROP COLUMN catch_up_until, DROP COLUMN audited_at,
    DROP COLUMN audit_difference;

-- status and tenant_id are in both: what chooses by one of them may use an index of either.
-- The schedule comes first, because a lock of a job's rows begins with it: who promotes locks
-- no more, and who changes a job locks both.
CREATE VIEW scheduled_jobs WITH (security_invoker = true) AS
SELECT d.id, s.tenant_id, d.name, d.description, d.tags, d.created_by, d.created_at, d.updated_at, d.deleted_at, d.version, d.cron_expression,
       d.interval_ms, d.run_at, d.timezone, d.anchor_at, d.start_date, d.end_date, d.max_executions, d.jitter_seconds, d.dst_gap, d.dst_overlap,
       d.calendars, d.job_type, d.config, d.secret_names, d.retry_config, d.max_attempts, d.timeout_seconds, d.priority, d.max_concurrent,
       d.concurrency_key, d.overlap_policy, d.overlap_queue_limit, d.misfire_policy, d.misfire_limit, d.misfire_grace_seconds,
       d.disable_after_failures, s.status, d.status_reason, d.status_by, d.status_at, d.paused_until, d.resume_policy, s.next_execution_at,
       s.last_execution_at, s.execution_count, s.catch_up_until, d.generation, s.audited_at, s.audit_difference, d.execution_timeout_seconds,
       d.set_name, d.complete_within_seconds
FROM job_schedule s JOIN job_definitions d ON d.id = s.job_id AND d.tenant_id = s.tenant_id AND d.status = s.status;
ALTER VIEW scheduled_jobs ALTER COLUMN description SET DEFAULT '';
ALTER VIEW scheduled_jobs ALTER COLUMN tags SET DEFAULT '{}';
ALTER VIEW scheduled_jobs ALTER COLUMN created_at SET DEFAULT now();
ALTER VIEW scheduled_jobs ALTER COLUMN updated_at SET DEFAULT now();
ALTER VIEW scheduled_jobs ALTER COLUMN version SET DEFAULT 1;
ALTER VIEW scheduled_jobs ALTER COLUMN timezone SET DEFAULT 'UTC';
ALTER VIEW scheduled_jobs ALTER COLUMN anchor_at SET DEFAULT now();
ALTER VIEW scheduled_jobs ALTER COLUMN jitter_seconds SET DEFAULT 0;
ALTER VIEW scheduled_jobs ALTER COLUMN dst_gap SET DEFAULT 'shift';
ALTER VIEW scheduled_jobs ALTER COLUMN dst_overlap SET DEFAULT 'first';
ALTER VIEW scheduled_jobs ALTER COLUMN calendars SET DEFAULT '[]';
ALTER VIEW scheduled_jobs ALTER COLUMN secret_names SET DEFAULT '{}';
ALTER VIEW scheduled_jobs ALTER COLUMN retry_config SET DEFAULT '{}';
ALTER VIEW scheduled_jobs ALTER COLUMN priority SET DEFAULT 0;
ALTER VIEW scheduled_jobs ALTER COLUMN max_concurrent SET DEFAULT 1;
ALTER VIEW scheduled_jobs ALTER COLUMN concurrency_key SET DEFAULT '';
ALTER VIEW scheduled_jobs ALTER COLUMN overlap_policy SET DEFAULT 'skip';
ALTER VIEW scheduled_jobs ALTER COLUMN overlap_queue_limit SET DEFAULT 100;
ALTER VIEW scheduled_jobs ALTER COLUMN misfire_policy SET DEFAULT 'fire_once';
ALTER VIEW scheduled_jobs ALTER COLUMN misfire_limit SET DEFAULT 100;
ALTER VIEW scheduled_jobs ALTER COLUMN misfire_grace_seconds SET DEFAULT 60;
ALTER VIEW scheduled_jobs ALTER COLUMN status SET DEFAULT 'active';
ALTER VIEW scheduled_jobs ALTER COLUMN status_reason SET DEFAULT '';
ALTER VIEW scheduled_jobs ALTER COLUMN status_by SET DEFAULT '';
ALTER VIEW scheduled_jobs ALTER COLUMN status_at SET DEFAULT now();
ALTER VIEW scheduled_jobs ALTER COLUMN execution_count SET DEFAULT 0;
ALTER VIEW scheduled_jobs ALTER COLUMN generation SET DEFAULT 0;
ALTER VIEW scheduled_jobs ALTER COLUMN set_name SET DEFAULT '';
GRANT SELECT, INSERT, UPDATE ON scheduled_jobs TO scheduler_api;
GRANT SELECT, DELETE,
    UPDATE (next_execution_at, last_execution_at, execution_count, catch_up_until, generation, status, status_reason, status_by, status_at, updated_at,
            paused_until, resume_policy, audited_at, audit_difference)
    ON scheduled_jobs TO scheduler_engine;

-- +goose StatementBegin
CREATE FUNCTION copy_job_status() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE public.job_schedule s SET status = NEW.status WHERE s.job_id = NEW.id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION copy_job_status() FROM PUBLIC;
CREATE TRIGGER copy_job_status AFTER UPDATE OF status ON job_definitions
    FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION copy_job_status();
ALTER TABLE job_definitions ENABLE ALWAYS TRIGGER copy_job_status;

-- +goose StatementBegin
CREATE FUNCTION remove_job_schedule() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM public.job_schedule s WHERE s.job_id = OLD.id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION remove_job_schedule() FROM PUBLIC;
CREATE TRIGGER remove_job_schedule AFTER DELETE ON job_definitions FOR EACH ROW EXECUTE FUNCTION remove_job_schedule();

-- An update through a view does not wait for a row that somebody holds and look again, as
-- one of a table does. So the row is locked here, and left alone if the job is another by now:
-- a pass comes again, and a request has locked the job before.
-- +goose StatementBegin
CREATE FUNCTION write_job() RETURNS trigger
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
REVOKE ALL ON FUNCTION write_job() FROM PUBLIC;
CREATE TRIGGER write_job INSTEAD OF INSERT OR UPDATE OR DELETE ON scheduled_jobs FOR EACH ROW EXECUTE FUNCTION write_job();

-- The jobs as they are when it is called, by a statement that has locked their schedules: a
-- function that is volatile sees what was committed by then, and the statement itself what was
-- committed when it began.
-- +goose StatementBegin
CREATE FUNCTION held_jobs(ids uuid[]) RETURNS SETOF scheduled_jobs
    LANGUAGE plpgsql VOLATILE ROWS 100 SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN QUERY SELECT * FROM public.scheduled_jobs j WHERE j.id = ANY (ids);
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION held_jobs(uuid[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION held_jobs(uuid[]) TO scheduler_api, scheduler_engine;

-- +goose Down
DROP FUNCTION held_jobs(uuid[]);
DROP VIEW scheduled_jobs;
DROP FUNCTION write_job();
DROP TRIGGER remove_job_schedule ON job_definitions;
DROP FUNCTION remove_job_schedule();
DROP TRIGGER copy_job_status ON job_definitions;
DROP FUNCTION copy_job_status();
ALTER TABLE job_definitions
    ADD COLUMN next_execution_at timestamptz, ADD COLUMN last_execution_at timestamptz, ADD COLUMN execution_count bigint NOT NULL DEFAULT 0,
    ADD COLUMN catch_up_until timestamptz, ADD COLUMN audited_at timestamptz, ADD COLUMN audit_difference bigint;
GRANT UPDATE (next_execution_at, last_execution_at, execution_count, catch_up_until, audited_at, audit_difference) ON job_definitions TO scheduler_engine;
CREATE POLICY filling ON job_definitions TO CURRENT_USER USING (true) WITH CHECK (true);
CREATE POLICY filling ON job_schedule TO CURRENT_USER USING (true) WITH CHECK (true);
UPDATE job_definitions d
SET next_execution_at = s.next_execution_at, last_execution_at = s.last_execution_at, execution_count = s.execution_count,
    catch_up_until = s.catch_up_until, audited_at = s.audited_at, audit_difference = s.audit_difference
FROM job_schedule s WHERE s.job_id = d.id;
CREATE INDEX scheduled_jobs_due ON job_definitions (next_execution_at) WHERE status = 'active';
CREATE INDEX scheduled_jobs_turns ON job_definitions (tenant_id, next_execution_at) WHERE status = 'active';
ALTER TABLE job_definitions RENAME TO scheduled_jobs;
GRANT INSERT, UPDATE ON job_schedule TO scheduler_engine;
-- +goose StatementBegin
CREATE FUNCTION follow_job() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
-- +goose StatementEnd
CREATE TRIGGER follow_job AFTER INSERT ON scheduled_jobs FOR EACH ROW EXECUTE FUNCTION follow_job();
