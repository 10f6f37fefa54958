-- Lines of executions that wait for a concurrency slot of their job or for a
-- concurrency key, in the order in which they are claimed, so that who is next
-- costs a few index reads however many wait. Lock: ACCESS EXCLUSIVE on
-- active_executions. Duration: the table is rewritten and its indexes are made
-- again, some 8 s for a million rows that are pending or running.
--
-- The new columns are computed by PostgreSQL, so processes of the version before
-- keep them right. They never change for a row that needs neither slot nor key, until
-- it is parked: it stands in none of these indexes and its claim stays a HOT update.

-- +goose Up
ALTER TABLE active_executions
    -- It has a concurrency slot of its job, or one is reserved for it.
    ADD COLUMN has_slot boolean NOT NULL GENERATED ALWAYS AS (status = 'running' OR concurrency_limit = 0) STORED,
    -- It waits for a concurrency slot.
    ADD COLUMN awaits_slot boolean NOT NULL GENERATED ALWAYS AS (status IN ('pending', 'retrying') AND concurrency_limit > 0) STORED,
    -- It waits for a concurrency slot, a concurrency key or both.
    ADD COLUMN awaits_turn boolean NOT NULL GENERATED ALWAYS AS (status IN ('pending', 'retrying') AND (concurrency_limit > 0 OR concurrency_key IS NOT NULL)) STORED;

-- A line holds what only the same things can hold back: it is of one job or key,
-- one type and one priority, by the moment since which its executions wait. A
-- job's backfills have lines of their own, behind the others; a key has lines
-- apart for executions that need a slot of their job too.
DROP INDEX active_executions_gated;
CREATE INDEX active_executions_slot_lines ON active_executions (job_id, num_nonnulls(backfill_id), job_type, priority, available_at) WHERE awaits_slot;
DROP INDEX active_executions_key;
CREATE INDEX active_executions_key_lines ON active_executions (tenant_id, concurrency_key, awaits_slot, job_type, priority, available_at)
    WHERE awaits_turn AND concurrency_key IS NOT NULL;
-- The same executions by tenant, for a tenant that is at its limit.
CREATE INDEX active_executions_turn_lines ON active_executions (tenant_id, job_type, priority, available_at) WHERE awaits_turn;

-- Who counts what of a job has its slot passes over those that wait for one within
-- the index, without reading their rows.
DROP INDEX active_executions_job;
CREATE INDEX active_executions_job ON active_executions (job_id, scheduled_at DESC, id DESC, has_slot);

-- How many concurrency slots of a job are taken: by what runs and by what had one
-- reserved, unless it is being cancelled (see 000028). A job has 1,000 at most, so
-- nobody counts further.
-- +goose StatementBegin
CREATE FUNCTION taken_slots(job uuid) RETURNS integer
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off
AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM public.cancellations o WHERE o.job_id = job) THEN
        RETURN (SELECT count(*) FROM (SELECT 1 FROM public.active_executions e WHERE e.job_id = job AND e.has_slot
                AND (e.status = 'running' OR NOT EXISTS (SELECT 1 FROM public.cancellations o WHERE o.job_id = e.job_id AND o.generation >= e.generation AND NOT (o.spare_backfills AND e.backfill_id IS NOT NULL))) LIMIT 1001) seen);
    END IF;
    RETURN (SELECT count(*) FROM (SELECT 1 FROM public.active_executions e WHERE e.job_id = job AND e.has_slot LIMIT 1001) seen);
END
$$;
-- +goose StatementEnd

-- As before it sees what was committed when it is called (see 000016), and of each
-- job it reads what has a slot and 1,001 of those that wait, the most that a
-- policy asks for. What waits of a backfill, or to be cancelled, counts as neither.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION count_active(jobs uuid[]) RETURNS TABLE (job_id uuid, taken bigint, waiting bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, public, pg_temp SET enable_seqscan = off
AS $$
DECLARE
    any_waits boolean := EXISTS (SELECT 1 FROM public.active_executions e WHERE e.job_id = ANY (jobs) AND e.awaits_slot);
BEGIN
    IF NOT EXISTS (SELECT 1 FROM public.cancellations o WHERE o.job_id = ANY (jobs)) THEN -- most of the time
        RETURN QUERY
        SELECT j.id, (SELECT count(*) FROM (SELECT 1 FROM public.active_executions e WHERE e.job_id = j.id AND e.has_slot LIMIT 1001) seen),
               CASE WHEN any_waits THEN (SELECT count(*) FROM (SELECT 1 FROM public.active_executions e
                                    WHERE e.job_id = j.id AND e.awaits_slot AND num_nonnulls(e.backfill_id) = 0 LIMIT 1001) seen) ELSE 0 END
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

-- Which executions of a job get its concurrency slots next: backfills last, most
-- urgent first, then those that wait longest. A statement that frees slots says how
-- many (freed), and as many are named; who frees none says 0, and the slots that
-- are taken are counted. It reads a job's lines (64 at most), and of each as many
-- as there are slots and 32 that may be passed over, because their key is held or
-- somebody wants their end. Who stands behind so many is found by way of another
-- line, or once they are gone. The settings keep the plan where the table was empty
-- when its statistics were taken.
-- +goose StatementBegin
CREATE FUNCTION next_of_job(job uuid, types text[], at timestamptz, freed integer, most integer)
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

-- Which execution gets a concurrency key next: none while the key is held, and
-- none whose job has no slot for it. It reads as next_of_job does.
-- +goose StatementBegin
CREATE FUNCTION next_of_key(tenant uuid, lock text, types text[], at timestamptz)
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

-- What a change of an execution records is what it was before.
DROP TRIGGER record_end ON active_executions;
DROP TRIGGER record_change ON active_executions;
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT ON active_executions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('execution', 'id', 'tenant_id',
    'id,tenant_id,created_at,sweep_at,dispatch_seq,available_at,attempts,attempt,lost_count,progress,triggered_by,timeout_ms,max_attempts,concurrency_limit,generation,has_slot,awaits_slot,awaits_turn');
CREATE CONSTRAINT TRIGGER record_end AFTER DELETE OR UPDATE OF cancel_requested_at ON active_executions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (audited() AND strpos(current_setting('app.call', true), '"executions":true') > 0)
    EXECUTE FUNCTION record_change('execution', 'id', 'tenant_id',
    'id,tenant_id,created_at,sweep_at,dispatch_seq,available_at,attempts,attempt,lost_count,progress,triggered_by,timeout_ms,max_attempts,concurrency_limit,generation,has_slot,awaits_slot,awaits_turn');

-- +goose Down
DROP TRIGGER record_end ON active_executions;
DROP TRIGGER record_change ON active_executions;
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT ON active_executions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('execution', 'id', 'tenant_id',
    'id,tenant_id,created_at,sweep_at,dispatch_seq,available_at,attempts,attempt,lost_count,progress,triggered_by,timeout_ms,max_attempts,concurrency_limit,generation');
CREATE CONSTRAINT TRIGGER record_end AFTER DELETE OR UPDATE OF cancel_requested_at ON active_executions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (audited() AND strpos(current_setting('app.call', true), '"executions":true') > 0)
    EXECUTE FUNCTION record_change('execution', 'id', 'tenant_id',
    'id,tenant_id,created_at,sweep_at,dispatch_seq,available_at,attempts,attempt,lost_count,progress,triggered_by,timeout_ms,max_attempts,concurrency_limit,generation');
DROP FUNCTION next_of_key(uuid, text, text[], timestamptz);
DROP FUNCTION next_of_job(uuid, text[], timestamptz, integer, integer);
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION count_active(jobs uuid[]) RETURNS TABLE (job_id uuid, taken bigint, waiting bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, public, pg_temp
AS $$
BEGIN
    RETURN QUERY
    SELECT e.job_id, count(*) FILTER (WHERE e.status = 'running' OR e.concurrency_limit = 0),
           count(*) FILTER (WHERE e.status <> 'running' AND e.concurrency_limit > 0 AND e.backfill_id IS NULL)
    FROM public.active_executions e WHERE e.job_id = ANY (jobs)
      AND (e.status = 'running' OR NOT EXISTS (SELECT 1 FROM public.cancellations o WHERE o.job_id = e.job_id AND o.generation >= e.generation AND NOT (o.spare_backfills AND e.backfill_id IS NOT NULL)))
    GROUP BY e.job_id;
END
$$;
-- +goose StatementEnd
DROP FUNCTION taken_slots(uuid);
ALTER TABLE active_executions DROP COLUMN awaits_turn, DROP COLUMN awaits_slot, DROP COLUMN has_slot;
CREATE INDEX active_executions_job ON active_executions (job_id, scheduled_at DESC, id DESC);
CREATE INDEX active_executions_key ON active_executions (tenant_id, concurrency_key) WHERE concurrency_key IS NOT NULL;
CREATE INDEX active_executions_gated ON active_executions (job_id) WHERE concurrency_limit > 0;
