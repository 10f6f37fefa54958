-- name: ListPooledExecutions :one
-- Cross-tenant: the worker. Executions in the pool that may start, in the order in
-- which they should. In a transaction that then claims them, they stay locked, and other
-- polls skip them. As a statement of its own it keeps no lock: each position is moved by up
-- to spread instead, so that workers that poll at one time ask for different rows.
-- It steps through the pool by tenant, priority and type: one step into
-- active_executions_pool finds the next of these lines, so a long backlog costs no more
-- than a short one. Each poll takes the next batch of lines, without the tenant in
-- which it ends, and returns where the one after it begins. It passes over tenants
-- whose limits are met, and types that the worker leaves to others.
-- Fair between tenants: they take turns. The tenants with the fewest executions
-- running at this worker come first (busy_tenants, busy_runs).
-- Fair within a tenant: lanes share 6:3:1 as they do in Redis, and within a lane
-- each step of priority counts as ten seconds of waiting.
-- A line gives what a few lines can use: 8 where many are short, all that is
-- wanted where one is long, and no line gives more than the limits of its tenant leave
-- room for: a tenant at its limit has room for one or two at a time, and the rows would be
-- locked, offered and given back for each.
-- While executions of a tenant are being cancelled, its lines may hold nothing
-- else for long. A poll reads the first thousand of such a line and the first
-- thousand made since, and returns those that are not being cancelled.
-- The time is that of the statement: the transaction may have waited for its turn.
-- Each look into a line is in the order of the pool. Otherwise a plan that was made while the table
-- was empty took the index of all executions by tenant, and was kept for the next burst.
-- Longer than 60 lines: where it goes on, who is passed over and what is fair follow
-- from the same lines, and a round trip for each step would be one for each poll.
WITH RECURSIVE clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, statement_timestamp()) AS at, @batch_size::int AS wanted),
walk AS (
    (SELECT e.tenant_id, e.priority, e.job_type FROM active_executions e WHERE e.pooled AND e.tenant_id > @after_tenant::uuid
     ORDER BY e.tenant_id, e.priority, e.job_type LIMIT 1)
    UNION ALL
    SELECT n.tenant_id, n.priority, n.job_type FROM walk w CROSS JOIN LATERAL (
        SELECT e.tenant_id, e.priority, e.job_type FROM active_executions e
        WHERE e.pooled AND (e.tenant_id, e.priority, e.job_type) > (w.tenant_id, w.priority, w.job_type)
        ORDER BY e.tenant_id, e.priority, e.job_type LIMIT 1
    ) n
),
step AS MATERIALIZED (SELECT w.tenant_id, w.priority, w.job_type, row_number() OVER () AS nth FROM walk w LIMIT @lines::int),
-- The last tenant all of whose lines are seen, when there may be more.
ending AS MATERIALIZED (
    SELECT s.tenant_id FROM step s
    WHERE s.tenant_id < (SELECT l.tenant_id FROM step l WHERE l.nth = @lines::int)
    ORDER BY s.tenant_id DESC LIMIT 1
),
cancelling AS MATERIALIZED (
    SELECT o.tenant_id, min(o.requested_at) - interval '5 seconds' AS since FROM cancellations o GROUP BY o.tenant_id
),
lines AS MATERIALIZED (
    SELECT t.tenant_id, t.priority, t.job_type, p.seen, r.room, (SELECT c.since FROM cancelling c WHERE c.tenant_id = t.tenant_id) AS since
    FROM step t CROSS JOIN LATERAL (
        SELECT count(*) AS seen FROM (
            SELECT 1 FROM active_executions e
            WHERE e.pooled AND e.tenant_id = t.tenant_id AND e.priority = t.priority AND e.job_type = t.job_type
              AND e.available_at <= (SELECT at FROM clock)
            ORDER BY e.available_at LIMIT 8
        ) few
    ) p CROSS JOIN LATERAL (
        -- Counted only where there is a limit.
        SELECT coalesce((
            SELECT CASE WHEN c.suspended THEN 0 ELSE least(
                CASE WHEN coalesce(f.max_running, nullif(@max_running::int, 0)) IS NOT NULL
                     THEN coalesce(f.max_running, nullif(@max_running::int, 0)) - c.running END,
                CASE WHEN f.max_running_by_type->>t.job_type IS NOT NULL
                     THEN (f.max_running_by_type->>t.job_type)::int - coalesce((c.running_by_type->>t.job_type)::int, 0) END) END
            FROM running_totals c LEFT JOIN tenants f ON f.id = c.tenant_id
            WHERE c.tenant_id = t.tenant_id), 1000000) AS room
        OFFSET 0 -- or it would be counted twice, here and for the condition
    ) r
    WHERE p.seen > 0 AND t.job_type <> ALL (@left_types::text[]) AND r.room > 0
),
depth AS MATERIALIZED (SELECT greatest(8, (SELECT c.wanted + @spread::int FROM clock c) / greatest(count(*), 1)) AS most FROM lines l WHERE l.seen = 8),
found AS (
    SELECT l.tenant_id, w.id, w.available_at - l.priority * interval '10 seconds' AS since,
           CASE WHEN l.priority >= 7 THEN 6 WHEN l.priority >= 3 THEN 3 ELSE 1 END AS weight
    FROM lines l CROSS JOIN LATERAL (
        SELECT e.id, e.available_at FROM active_executions e
        WHERE e.pooled AND e.tenant_id = l.tenant_id AND e.priority = l.priority AND e.job_type = l.job_type
          AND e.available_at <= (SELECT at FROM clock) AND e.cancel_requested_at IS NULL
        ORDER BY e.available_at
        LIMIT (SELECT least(d.most, l.room + @spread::int) FROM depth d)
        FOR UPDATE SKIP LOCKED
    ) w
    WHERE l.since IS NULL
    UNION ALL
    SELECT l.tenant_id, w.id, w.available_at - l.priority * interval '10 seconds' AS since,
           CASE WHEN l.priority >= 7 THEN 6 WHEN l.priority >= 3 THEN 3 ELSE 1 END AS weight
    FROM lines l CROSS JOIN LATERAL (
        SELECT e.id, e.available_at FROM (
            (SELECT n.* FROM active_executions n
             WHERE n.pooled AND n.tenant_id = l.tenant_id AND n.priority = l.priority AND n.job_type = l.job_type
               AND n.available_at <= (SELECT at FROM clock) AND n.available_at < l.since
             ORDER BY n.available_at LIMIT 1000)
            UNION ALL
            (SELECT n.* FROM active_executions n
             WHERE n.pooled AND n.tenant_id = l.tenant_id AND n.priority = l.priority AND n.job_type = l.job_type
               AND n.available_at <= (SELECT at FROM clock) AND n.available_at >= l.since
             ORDER BY n.available_at LIMIT 1000)
        ) e
        WHERE e.cancel_requested_at IS NULL
          AND NOT EXISTS (SELECT 1 FROM cancellations o WHERE o.job_id = e.job_id AND o.generation >= e.generation AND NOT (o.spare_backfills AND e.backfill_id IS NOT NULL))
        LIMIT (SELECT d.most FROM depth d)
    ) w
    WHERE l.since IS NOT NULL
),
-- Not by id among those of the same age: the rows come in this order as they are, and
-- comparing ids was a quarter of a poll.
aged AS (
    SELECT f.tenant_id, f.id, f.weight, row_number() OVER (PARTITION BY f.tenant_id, f.weight ORDER BY f.since) + random() * @spread::int AS nth
    FROM found f
),
shared AS (
    SELECT a.tenant_id, a.id, row_number() OVER (PARTITION BY a.tenant_id, a.weight ORDER BY a.nth)::float8 / a.weight AS share FROM aged a
),
turns AS (
    SELECT s.tenant_id, s.id, row_number() OVER (PARTITION BY s.tenant_id ORDER BY s.share, s.id) + coalesce(b.runs, 0) AS turn
    FROM shared s
    LEFT JOIN (SELECT unnest(@busy_tenants::uuid[]) AS tenant_id, unnest(@busy_runs::int[]) AS runs) b ON b.tenant_id = s.tenant_id
),
chosen AS MATERIALIZED (
    SELECT t.tenant_id, t.id, row_number() OVER (ORDER BY t.turn, random()) AS nth FROM turns t ORDER BY 3 LIMIT (SELECT wanted FROM clock)
)
SELECT ARRAY(SELECT c.id FROM chosen c ORDER BY c.nth)::uuid[] AS ids,
       ARRAY(SELECT c.tenant_id FROM chosen c ORDER BY c.nth)::uuid[] AS tenant_ids,
       coalesce((SELECT n.tenant_id FROM ending n), '00000000-0000-0000-0000-000000000000')::uuid AS next_after;

-- name: ListUnblockedExecutions :one
-- Cross-tenant: the worker. Executions that wait for a concurrency slot while one
-- is free, and the first execution that waits for each free key: those that nobody
-- hinted, or that were hinted to a worker which leaves their type to others. Each poll
-- takes the next jobs, by active_executions_slot_lines, and the next keys, by
-- active_executions_key_lines; it returns where the one after it begins. next_for_slot
-- and next_for_key find who is next, at a cost that no backlog raises. Keys are asked for
-- executions that need no slot alone: the others are found by their jobs. The steps name the whole
-- order of their index. By its first column alone a plan that was made while the table was empty
-- took the index of all executions by job, and was kept for the next burst. The execution behind the first
-- of a key is looked up without a bound above the key, and compared: with one, such a plan took
-- active_executions_turn_lines and read all that waits of the tenant for each key.
-- Longer than 60 lines: slots and keys share one batch, and a round trip for each would be one more
-- for each poll.
WITH RECURSIVE clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
walk AS (
    (SELECT e.job_id FROM active_executions e WHERE e.awaits_slot AND e.job_id > @after_job::uuid
     ORDER BY e.job_id, num_nonnulls(e.backfill_id), e.job_type, e.priority, e.available_at LIMIT 1)
    UNION ALL
    SELECT (SELECT e.job_id FROM active_executions e WHERE e.awaits_slot AND e.job_id > w.job_id
            ORDER BY e.job_id, num_nonnulls(e.backfill_id), e.job_type, e.priority, e.available_at LIMIT 1)
    FROM walk w WHERE w.job_id IS NOT NULL
),
jobs AS MATERIALIZED (SELECT w.job_id FROM walk w LIMIT @step::int),
keyed AS (
    (SELECT e.tenant_id, e.concurrency_key, e.awaits_slot, e.job_type, e.priority, e.available_at, e.id, e.job_id, e.generation, e.backfill_id, e.cancel_requested_at
     FROM active_executions e
     WHERE e.awaits_turn AND e.concurrency_key IS NOT NULL AND (e.tenant_id, e.concurrency_key) > (@after_tenant::uuid, @after_key::text)
     ORDER BY e.tenant_id, e.concurrency_key, e.awaits_slot, e.job_type, e.priority, e.available_at LIMIT 1)
    UNION ALL
    SELECT n.* FROM keyed w CROSS JOIN LATERAL (
        SELECT e.tenant_id, e.concurrency_key, e.awaits_slot, e.job_type, e.priority, e.available_at, e.id, e.job_id, e.generation, e.backfill_id, e.cancel_requested_at
        FROM active_executions e
        WHERE e.awaits_turn AND e.concurrency_key IS NOT NULL AND (e.tenant_id, e.concurrency_key) > (w.tenant_id, w.concurrency_key)
        ORDER BY e.tenant_id, e.concurrency_key, e.awaits_slot, e.job_type, e.priority, e.available_at LIMIT 1
    ) n
),
-- Each key with the first execution in the order of the index.
keys AS MATERIALIZED (SELECT w.* FROM keyed w LIMIT @step::int),
-- Tenants that may run nothing more now. Where one of them waits for thousands of keys, to ask for
-- each of them took 35 ms a poll.
full_tenants AS MATERIALIZED (
    SELECT t.tenant_id FROM (SELECT DISTINCT k.tenant_id FROM keys k) t CROSS JOIN LATERAL (
        SELECT c.suspended OR c.running >= coalesce(f.max_running, nullif(@max_running::int, 0), 1000000) AS is_full
        FROM running_totals c LEFT JOIN tenants f ON f.id = c.tenant_id WHERE c.tenant_id = t.tenant_id
    ) r WHERE r.is_full
),
-- The keys that nobody has, of tenants that have room. One is plain where all that waits for it has one type and priority and needs no slot, and where
-- the first execution was due before the second and is not being cancelled. Then the first one is next. For the
-- other keys next_for_key is asked, which takes 40 µs.
free_keys AS MATERIALIZED (
    SELECT k.tenant_id, k.concurrency_key, k.id, k.job_type, k.available_at,
           NOT k.awaits_slot AND k.cancel_requested_at IS NULL
           AND NOT EXISTS (SELECT 1 FROM cancellations o WHERE o.job_id = k.job_id AND o.generation >= k.generation AND NOT (o.spare_backfills AND k.backfill_id IS NOT NULL))
           AND coalesce((
               SELECT (e.tenant_id, e.concurrency_key) <> (k.tenant_id, k.concurrency_key)
                      OR e.available_at > k.available_at
                      AND (SELECT (d.tenant_id, d.concurrency_key) = (k.tenant_id, k.concurrency_key) FROM active_executions d
                           WHERE d.awaits_turn AND d.concurrency_key IS NOT NULL
                             AND (d.tenant_id, d.concurrency_key, d.awaits_slot, d.job_type, d.priority) > (k.tenant_id, k.concurrency_key, k.awaits_slot, k.job_type, k.priority)
                           ORDER BY d.tenant_id, d.concurrency_key, d.awaits_slot, d.job_type, d.priority, d.available_at LIMIT 1) IS NOT TRUE
               FROM active_executions e
               WHERE e.awaits_turn AND e.concurrency_key IS NOT NULL AND e.id <> k.id
                 AND (e.tenant_id, e.concurrency_key, e.awaits_slot, e.job_type, e.priority, e.available_at)
                  >= (k.tenant_id, k.concurrency_key, k.awaits_slot, k.job_type, k.priority, k.available_at)
               ORDER BY e.tenant_id, e.concurrency_key, e.awaits_slot, e.job_type, e.priority, e.available_at LIMIT 1), true) AS plain
    FROM keys k
    WHERE k.tenant_id <> ALL (ARRAY(SELECT f.tenant_id FROM full_tenants f))
      AND NOT EXISTS (SELECT 1 FROM running_keys r WHERE r.tenant_id = k.tenant_id AND r.key = k.concurrency_key)
),
found AS (
    SELECT (n.id)::uuid AS id, (n.tenant_id)::uuid AS tenant_id
    FROM jobs j CROSS JOIN clock CROSS JOIN LATERAL next_for_slot(j.job_id, @left_types::text[], clock.at, 0, @batch_size::int) n
    WHERE j.job_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM running_counts c WHERE c.tenant_id = n.tenant_id AND c.suspended)
    UNION
    SELECT y.id, y.tenant_id FROM free_keys y CROSS JOIN clock
    WHERE y.plain AND y.available_at <= clock.at AND y.job_type <> ALL (@left_types::text[])
    UNION
    SELECT (n.id)::uuid AS id, y.tenant_id
    FROM (SELECT k.tenant_id, k.concurrency_key FROM free_keys k WHERE NOT k.plain OFFSET 0) y
    CROSS JOIN clock CROSS JOIN LATERAL next_for_key(y.tenant_id, y.concurrency_key, @left_types::text[], false, clock.at) n
),
-- The last key of this batch, when there may be more.
last_key AS MATERIALIZED (
    SELECT n.tenant_id, n.concurrency_key
    FROM (SELECT y.tenant_id, y.concurrency_key, row_number() OVER (ORDER BY y.tenant_id, y.concurrency_key) AS nth FROM keys y) n
    WHERE n.nth = @step::int
),
picked AS MATERIALIZED (SELECT f.id, f.tenant_id, row_number() OVER (ORDER BY random()) AS nth FROM found f ORDER BY 3 LIMIT @batch_size::int)
SELECT ARRAY(SELECT p.id FROM picked p ORDER BY p.nth)::uuid[] AS ids,
       ARRAY(SELECT p.tenant_id FROM picked p ORDER BY p.nth)::uuid[] AS tenant_ids,
       coalesce((SELECT l.job_id FROM (SELECT j.job_id, row_number() OVER (ORDER BY j.job_id) AS n FROM jobs j) l WHERE l.n = @step::int),
                '00000000-0000-0000-0000-000000000000')::uuid AS next_after,
       coalesce((SELECT l.tenant_id FROM last_key l), '00000000-0000-0000-0000-000000000000')::uuid AS next_tenant,
       coalesce((SELECT l.concurrency_key FROM last_key l), '')::text AS next_key;

-- name: PoolExecutions :execrows
-- Cross-tenant: the promoter for hints that could not be sent, and the worker for
-- hinted executions that it has no slot for. Skips locked rows: they are being claimed.
WITH waiting AS MATERIALIZED (
    SELECT e.id FROM active_executions e
    WHERE e.id = ANY (@ids::uuid[]) AND e.status IN ('pending', 'retrying') AND NOT e.pooled AND e.concurrency_limit = 0 AND e.concurrency_key IS NULL
    FOR UPDATE OF e SKIP LOCKED
)
UPDATE active_executions e SET pooled = true, sweep_at = 'infinity'
WHERE e.id = ANY (ARRAY(SELECT w.id FROM waiting w));

-- name: PoolLateExecutions :execrows
-- Cross-tenant: the sweeper, and the worker while no hints come. Pools executions that
-- wait although their hint should have come within ahead_ms. One that waits for a
-- slot or key is found without; it is only put out of the way. With ids, of these
-- alone.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
late AS MATERIALIZED (
    SELECT e.id FROM active_executions e, clock
    WHERE e.sweep_at <= clock.at + interval '1 millisecond' * @ahead_ms::int
      AND e.status IN ('pending', 'retrying') AND (sqlc.narg(ids)::uuid[] IS NULL OR e.id = ANY (sqlc.narg(ids)::uuid[]))
    ORDER BY e.sweep_at
    LIMIT @batch_size
    FOR UPDATE OF e SKIP LOCKED
)
UPDATE active_executions e SET pooled = (e.concurrency_limit = 0 AND e.concurrency_key IS NULL), sweep_at = 'infinity'
WHERE e.id = ANY (ARRAY(SELECT l.id FROM late l));

-- name: ListLateExecutions :many
-- Cross-tenant: the sweeper, where the database refuses one of those that
-- PoolLateExecutions finds.
SELECT e.id, e.tenant_id, e.job_id FROM active_executions e
CROSS JOIN (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at) clock
WHERE e.sweep_at <= clock.at + interval '1 millisecond' * @ahead_ms::int AND e.status IN ('pending', 'retrying')
ORDER BY random() LIMIT @batch_size;

-- name: HasUnhintedExecutions :one
-- Cross-tenant: the worker, while its polls find nothing. Whether any execution is in
-- the pool or waits for a slot or key, may it start now or not. One step into an index each.
SELECT (EXISTS (SELECT 1 FROM active_executions WHERE pooled) OR EXISTS (SELECT 1 FROM active_executions WHERE awaits_turn))::boolean AS waits;
