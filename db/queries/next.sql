-- name: ListNextExecutions :many
-- Cross-tenant: the worker and the sweeper, once runs ended. The next in line: of tenants
-- whose limits left something behind, executions that fit now, and the first in line
-- of each key that became free. Locks nothing, the claim decides. It names no
-- execution that waits for a concurrency slot or key that is taken, and none whose type no
-- live worker runs.
-- It steps through a tenant's backlog by type and priority: in the pool (index
-- active_executions_pool), and among the executions that wait for a slot or key
-- (active_executions_turn_lines). A caller that polls the pool says so by naming the types that it
-- leaves to others. In the pool it wants those types alone, unless others of the tenant have a slot or key free:
-- then it wants both in one order, or one kind would take all the room.
-- Each step of priority counts as ten seconds of waiting, as in a poll. Of each type and priority it reads as many as may
-- be named, and of the latter window_size more: one that could start and stands behind so
-- many that cannot is found by ListUnblockedExecutions.
-- Of those that fit it names all, also those whose claims earlier ends have set going. Under load it names many
-- for nothing. But claims fail, where another one has the counts of the tenant locked, and no end would name those
-- executions again. (As many as there are ends and one more: four workers drained a backlog with keys, of a tenant at its
-- limit, at 105 a second, and at 190 to 250 with all.)
-- Longer than 60 lines: it reads two backlogs and the keys, and a round trip for each
-- would delay the next execution.
WITH RECURSIVE clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
room AS MATERIALIZED (
    SELECT c.tenant_id, coalesce(t.max_running, nullif(@max_running::int, 0), 1000000) - c.running AS free, t.max_running_by_type, c.running_by_type
    FROM running_totals c LEFT JOIN tenants t ON t.id = c.tenant_id
    WHERE c.tenant_id = ANY (@tenant_ids::uuid[]) AND NOT c.suspended
),
limited AS (
    SELECT m.tenant_id, f.job_type, f.priority FROM room m CROSS JOIN LATERAL (
        SELECT e.job_type, e.priority FROM active_executions e WHERE e.awaits_turn AND e.tenant_id = m.tenant_id ORDER BY e.job_type, e.priority LIMIT 1
    ) f WHERE m.free > 0
    UNION ALL
    SELECT w.tenant_id, f.job_type, f.priority FROM limited w CROSS JOIN LATERAL (
        SELECT e.job_type, e.priority FROM active_executions e
        WHERE e.awaits_turn AND e.tenant_id = w.tenant_id AND (e.job_type, e.priority) > (w.job_type, w.priority) ORDER BY e.job_type, e.priority LIMIT 1
    ) f
),
-- Executions that may have to wait for a slot or key too.
front AS MATERIALIZED (
    SELECT o.*, l.tenant_id, l.job_type, l.priority, l.free, f.free_type
    FROM (SELECT w.tenant_id, w.job_type, w.priority, least(m.free, @most::int) AS free, m.max_running_by_type, m.running_by_type
          FROM limited w JOIN room m ON m.tenant_id = w.tenant_id) l
    CROSS JOIN LATERAL (SELECT coalesce((l.max_running_by_type->>l.job_type)::int - coalesce((l.running_by_type->>l.job_type)::int, 0), 1000000) AS free_type) f
    CROSS JOIN LATERAL (
        SELECT e.id, e.job_id, e.available_at, e.concurrency_limit, e.concurrency_key, e.cancel_requested_at, e.generation, e.backfill_id FROM active_executions e
        WHERE e.awaits_turn AND e.tenant_id = l.tenant_id AND e.job_type = l.job_type AND e.priority = l.priority
          AND e.available_at <= (SELECT at FROM clock)
        ORDER BY e.available_at LIMIT least(l.free, f.free_type) + @window_size::int
    ) o
    WHERE f.free_type > 0 AND is_served(l.job_type, (SELECT at FROM clock))
),
slots AS MATERIALIZED (
    SELECT j.job_id, taken_slots(j.job_id) AS taken FROM (SELECT DISTINCT f.job_id FROM front f WHERE f.concurrency_limit > 0) j
),
ready AS MATERIALIZED (
    SELECT o.id, o.tenant_id, o.job_type, o.priority, o.available_at, o.free, o.free_type
    FROM front o
    WHERE o.cancel_requested_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM cancellations c WHERE c.job_id = o.job_id AND c.generation >= o.generation AND NOT (c.spare_backfills AND o.backfill_id IS NOT NULL))
      AND NOT EXISTS (SELECT 1 FROM running_keys k WHERE k.tenant_id = o.tenant_id AND k.key = o.concurrency_key)
      AND (o.concurrency_limit = 0 OR o.concurrency_limit > (SELECT s.taken FROM slots s WHERE s.job_id = o.job_id))
),
pooled AS MATERIALIZED (
    SELECT m.tenant_id, m.free, m.max_running_by_type, m.running_by_type,
           CASE WHEN @left_types::text[] IS NULL OR EXISTS (SELECT 1 FROM ready r WHERE r.tenant_id = m.tenant_id) THEN NULL ELSE @left_types::text[] END AS types
    FROM room m WHERE m.free > 0
),
pool AS (
    SELECT m.tenant_id, f.priority, f.job_type FROM pooled m CROSS JOIN LATERAL (
        SELECT e.priority, e.job_type FROM active_executions e WHERE e.pooled AND e.tenant_id = m.tenant_id ORDER BY e.priority, e.job_type LIMIT 1
    ) f WHERE cardinality(m.types) IS DISTINCT FROM 0
    UNION ALL
    SELECT w.tenant_id, f.priority, f.job_type FROM pool w CROSS JOIN LATERAL (
        SELECT e.priority, e.job_type FROM active_executions e
        WHERE e.pooled AND e.tenant_id = w.tenant_id AND (e.priority, e.job_type) > (w.priority, w.job_type) ORDER BY e.priority, e.job_type LIMIT 1
    ) f
),
startable AS MATERIALIZED (
    SELECT w.id, l.tenant_id, l.job_type, l.priority, w.available_at, l.free, f.free_type
    FROM (SELECT p.tenant_id, p.job_type, p.priority, least(m.free, @most::int) AS free, m.max_running_by_type, m.running_by_type
          FROM pool p JOIN pooled m ON m.tenant_id = p.tenant_id WHERE m.types IS NULL OR p.job_type = ANY (m.types)) l
    CROSS JOIN LATERAL (SELECT coalesce((l.max_running_by_type->>l.job_type)::int - coalesce((l.running_by_type->>l.job_type)::int, 0), 1000000) AS free_type) f
    CROSS JOIN LATERAL (
        SELECT e.id, e.job_id, e.available_at, e.generation, e.backfill_id FROM active_executions e
        WHERE e.pooled AND e.tenant_id = l.tenant_id AND e.priority = l.priority AND e.job_type = l.job_type
          AND e.available_at <= (SELECT at FROM clock) AND e.cancel_requested_at IS NULL
        ORDER BY e.available_at LIMIT least(l.free, f.free_type)
    ) w
    WHERE f.free_type > 0 AND is_served(l.job_type, (SELECT at FROM clock))
      AND NOT EXISTS (SELECT 1 FROM cancellations o WHERE o.job_id = w.job_id AND o.generation >= w.generation AND NOT (o.spare_backfills AND w.backfill_id IS NOT NULL))
    UNION ALL
    SELECT r.id, r.tenant_id, r.job_type, r.priority, r.available_at, r.free, r.free_type FROM ready r
),
fitting AS (
    SELECT o.id, o.tenant_id, o.job_type, o.priority, o.available_at, o.free, o.free_type,
           row_number() OVER (PARTITION BY o.tenant_id, o.job_type ORDER BY o.available_at - o.priority * interval '10 seconds', o.id) AS nth_of_type
    FROM startable o
),
ranked AS (
    SELECT f.id, f.job_type, f.priority, f.free,
           row_number() OVER (PARTITION BY f.tenant_id ORDER BY f.available_at - f.priority * interval '10 seconds', f.id) AS nth
    FROM fitting f WHERE f.nth_of_type <= f.free_type
)
SELECT r.id, r.priority::smallint AS priority, r.job_type FROM ranked r WHERE r.nth <= r.free
UNION
SELECT (n.id)::uuid AS id, (n.priority)::smallint AS priority, (SELECT e.job_type FROM active_executions e WHERE e.id = n.id)::text AS job_type
FROM (SELECT f.tenant_id, f.key
      FROM (SELECT unnest(@key_tenant_ids::uuid[]) AS tenant_id, unnest(@keys::text[]) AS key) f
      CROSS JOIN LATERAL (
          SELECT 1 FROM active_executions e WHERE e.awaits_turn AND e.tenant_id = f.tenant_id AND e.concurrency_key = f.key
          ORDER BY e.awaits_slot, e.job_type, e.priority, e.available_at LIMIT 1
      ) one OFFSET 0) freed -- most keys have nobody waiting, and next_for_key takes 0.1 ms
CROSS JOIN clock CROSS JOIN LATERAL next_for_key(freed.tenant_id, freed.key, '{}', true, clock.at) n
WHERE NOT EXISTS (SELECT 1 FROM running_counts c WHERE c.tenant_id = freed.tenant_id AND c.suspended);

-- name: ListNextInLine :many
-- The next in line when a concurrency slot of a job was freed other than by an outcome;
-- a hint only, the claim decides.
SELECT (n.id)::uuid AS id, (n.priority)::smallint AS priority
FROM (SELECT @tenant_id::uuid AS tenant_id, @job_id::uuid AS job_id) of_one
CROSS JOIN LATERAL next_for_slot(of_one.job_id, '{}', now(), 0, @page_size::int) n
WHERE n.tenant_id = of_one.tenant_id;
