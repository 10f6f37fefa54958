-- The processes: workers, leases for what one process does at a time, and the functions
-- that ask who is next for a worker. Neither workers nor gauges hold a tenant's data.

-- +goose Up
-- One row for each incarnation of a worker.
CREATE TABLE workers (
    id           uuid PRIMARY KEY,
    host         text        NOT NULL,
    pid          integer     NOT NULL,
    slots        integer     NOT NULL,
    running      integer     NOT NULL DEFAULT 0,
    job_types    text[]      NOT NULL DEFAULT '{}', -- that it runs
    started_at   timestamptz NOT NULL DEFAULT now(),
    heartbeat_at timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz NOT NULL,
    drained      boolean     NOT NULL DEFAULT false,
    dead         boolean     NOT NULL DEFAULT false
) WITH (fillfactor = 50);
GRANT SELECT ON workers TO scheduler_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON workers TO scheduler_engine;

-- One row for each lease that was ever taken, and never deleted: its fencing number
-- grows with each acquisition, so a late owner has a lower one. The API takes one lease
-- only, by which GET /health tries whether leases work.
CREATE TABLE scheduler_locks (
    name        text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 100),
    owner       uuid        NOT NULL, -- random, of this acquisition
    holder      text        NOT NULL CHECK (length(holder) <= 200), -- host and process id, for the operator
    fence       bigint      NOT NULL DEFAULT 1 CHECK (fence >= 1),
    acquired_at timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL
) WITH (fillfactor = 50);
ALTER TABLE scheduler_locks ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler_locks FORCE ROW LEVEL SECURITY;
CREATE POLICY health ON scheduler_locks TO scheduler_api USING (name = 'health') WITH CHECK (name = 'health');
CREATE POLICY engine ON scheduler_locks TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE ON scheduler_locks TO scheduler_api, scheduler_engine;

-- Numbers about the whole service, which a process that acts for one tenant may not
-- count itself.
CREATE TABLE service_gauges (
    name     text PRIMARY KEY,
    value    bigint      NOT NULL,
    taken_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
GRANT SELECT ON service_gauges TO scheduler_api;
GRANT SELECT, INSERT, UPDATE ON service_gauges TO scheduler_engine;

-- Whether a live worker runs a type. One that names no types is of an old version
-- and runs every type that it knows.
-- +goose StatementBegin
CREATE FUNCTION is_served(kind text, at timestamptz) RETURNS boolean LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (SELECT 1 FROM workers v WHERE NOT v.dead AND v.expires_at > at AND (v.job_types = '{}' OR kind = ANY (v.job_types)))
$$;
-- +goose StatementEnd

-- Which executions of a job get its concurrency slots next: backfills last, most
-- urgent first, then those that wait longest. left_types are types that the caller
-- leaves to others. A statement that frees slots says how many (freed), and as many
-- are named; a caller that frees none says 0, and the slots that are taken are
-- counted. It reads the fronts of a job's backlog by type and priority (64 at most),
-- and of each as many as there are slots and 32 that may be passed over, because
-- their key is taken or somebody asked for their end. The settings keep the plan
-- where the table was empty when its statistics were taken.
-- +goose StatementBegin
CREATE FUNCTION next_for_slot(job uuid, left_types text[], at timestamptz, freed integer, most integer)
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
        SELECT f.*, row_number() OVER (ORDER BY l.late, f.priority DESC, f.available_at, f.id) AS place
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
        WHERE l.kind <> ALL (left_types)
    )
    SELECT w.id, w.tenant_id, w.priority FROM waiting w WHERE w.place + taken <= w.concurrency_limit ORDER BY w.place LIMIT room;
END
$$;
-- +goose StatementEnd

-- Which execution gets a concurrency key next: none while the key is taken, and
-- none whose job has no slot for it; served_only: none whose type no live worker
-- runs. It reads as next_for_slot does.
-- +goose StatementBegin
CREATE FUNCTION next_for_key(tenant uuid, wanted text, left_types text[], served_only boolean, at timestamptz)
    RETURNS TABLE (id uuid, priority smallint)
    LANGUAGE plpgsql STABLE ROWS 1 SET search_path = pg_catalog, public, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM public.running_keys k WHERE k.tenant_id = tenant AND k.key = wanted) THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE walk AS (
        (SELECT e.awaits_slot AS needs_slot, e.job_type AS kind, e.priority AS level FROM public.active_executions e
         WHERE e.tenant_id = tenant AND e.concurrency_key = wanted AND e.awaits_turn ORDER BY e.awaits_slot, e.job_type, e.priority LIMIT 1)
        UNION ALL
        SELECT n.needs_slot, n.kind, n.level FROM walk w CROSS JOIN LATERAL (
            SELECT e.awaits_slot AS needs_slot, e.job_type AS kind, e.priority AS level FROM public.active_executions e
            WHERE e.tenant_id = tenant AND e.concurrency_key = wanted AND e.awaits_turn
              AND (e.awaits_slot, e.job_type, e.priority) > (w.needs_slot, w.kind, w.level)
            ORDER BY e.awaits_slot, e.job_type, e.priority LIMIT 1
        ) n
    ),
    lines AS MATERIALIZED (SELECT w.needs_slot, w.kind, w.level FROM walk w LIMIT 64),
    front AS MATERIALIZED (
        SELECT c.* FROM lines l CROSS JOIN LATERAL (
            SELECT e.id, e.job_id, e.priority, e.available_at, e.concurrency_limit, e.cancel_requested_at, e.generation, e.backfill_id FROM public.active_executions e
            WHERE e.tenant_id = tenant AND e.concurrency_key = wanted AND e.awaits_turn
              AND e.awaits_slot = l.needs_slot AND e.job_type = l.kind AND e.priority = l.level AND e.available_at <= at
            ORDER BY e.available_at LIMIT 32
        ) c
        WHERE l.kind <> ALL (left_types) AND (NOT served_only OR public.is_served(l.kind, at))
    ),
    slots AS MATERIALIZED (
        SELECT j.job_id, public.taken_slots(j.job_id) AS taken FROM (SELECT DISTINCT f.job_id FROM front f WHERE f.concurrency_limit > 0) j
    )
    SELECT f.id, f.priority FROM front f
    WHERE f.cancel_requested_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM public.cancellations o WHERE o.job_id = f.job_id AND o.generation >= f.generation AND NOT (o.spare_backfills AND f.backfill_id IS NOT NULL))
      AND (f.concurrency_limit = 0 OR f.concurrency_limit > (SELECT p.taken FROM slots p WHERE p.job_id = f.job_id))
    ORDER BY f.priority DESC, f.available_at, f.id LIMIT 1;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION next_for_key(uuid, text, text[], boolean, timestamptz);
DROP FUNCTION next_for_slot(uuid, text[], timestamptz, integer, integer);
DROP FUNCTION is_served(text, timestamptz);
DROP TABLE service_gauges;
DROP TABLE scheduler_locks;
DROP TABLE workers;
