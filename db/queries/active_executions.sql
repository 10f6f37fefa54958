-- name: InsertDueExecutions :exec
-- Cross-tenant: the promoter. Inserting a run twice is a no-op, in this table
-- by its key and in the history by the look-up, which touches one partition.
INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, priority,
                               max_attempts, timeout_ms, concurrency_limit, concurrency_key, generation, pooled, available_at, sweep_at, created_at)
SELECT u.id, u.tenant_id, u.job_id, u.job_version, u.scheduled_at, 'scheduled', u.job_type, u.priority,
       u.max_attempts, u.timeout_ms, u.concurrency_limit, nullif(u.concurrency_key, ''), u.generation, u.pooled, greatest(u.available_at, n.at),
       -- What is in the pool has no hint that could be lost.
       CASE WHEN u.pooled THEN 'infinity' ELSE greatest(u.available_at, n.at) + interval '5 seconds' END, n.at
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@job_ids::uuid[]) AS job_id,
             unnest(@job_versions::int[]) AS job_version, unnest(@scheduled_at::timestamptz[]) AS scheduled_at,
             unnest(@job_types::text[]) AS job_type, unnest(@priorities::smallint[]) AS priority,
             unnest(@max_attempts::int[]) AS max_attempts, unnest(@timeouts_ms::int[]) AS timeout_ms,
             unnest(@concurrency_limits::smallint[]) AS concurrency_limit, unnest(@concurrency_keys::text[]) AS concurrency_key,
             unnest(@generations::int[]) AS generation, unnest(@pooled::boolean[]) AS pooled, unnest(@available_at::timestamptz[]) AS available_at) u,
     (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at) n
WHERE NOT EXISTS (SELECT 1 FROM job_executions h WHERE h.id = u.id AND h.scheduled_at = u.scheduled_at)
ON CONFLICT (id) DO NOTHING;

-- name: InsertRequestedExecution :exec
-- It is in the pool and gets a hint too, if there is room: whoever is the
-- first claims it. So the API need not know what the queue is like.
INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, triggered_by, job_type, priority,
                               parameters, max_attempts, timeout_ms, concurrency_limit, concurrency_key, generation, pooled, available_at, sweep_at, created_at)
VALUES (@id, @tenant_id, @job_id, @job_version, @scheduled_at, @trigger_type, @triggered_by, @job_type, @priority,
        sqlc.narg(parameters), @max_attempts, @timeout_ms, @concurrency_limit, sqlc.narg(concurrency_key), @generation, @pooled, @now,
        CASE WHEN @pooled THEN 'infinity' ELSE @sweep_at::timestamptz END, @now);

-- name: ClaimExecutions :many
-- Cross-tenant: the worker. Takes what is pending and available and of a type
-- that it runs, while this worker's lease stands. The attempt is counted here, so that a run that kills
-- its worker is bounded. A claim whose commit was ambiguous is repeated with
-- the same token and finds its own rows. Locked rows are another's: skipped.
-- Rows of this table are found by an array of ids and by no join, here and
-- below. It is empty most of the time, and once vacuum has seen it so, the
-- planner takes it for a single row whatever it holds, and joins it by comparing
-- all with all (measured: 320 ms for a claim of 128 and 970 for a completion
-- of 256). What needs values for each row looks them up one by one (LATERAL).
-- The tenants' limits are counted in running_counts, whose rows are locked after
-- the executions and in order, as every statement does that starts or ends a
-- run: a row's latest version is read with its lock, so the counts are those of
-- now and not of the snapshot. What does not fit stays, most urgent and oldest
-- first, and leaves a mark, so that whatever ends looks for the next in line.
-- The same row says whether the tenant is suspended and whether something of it
-- is being cancelled; only then is each execution asked whether it is.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
locked AS MATERIALIZED (
    SELECT e.id, e.tenant_id, e.job_id, e.job_type, e.concurrency_key, e.status, e.priority, e.available_at, e.generation, e.backfill_id FROM active_executions e, clock
    WHERE e.id = ANY (@ids::uuid[])
      AND ((e.status IN ('pending', 'retrying') AND e.available_at <= clock.at)
           OR (e.status = 'running' AND e.lease_token = @lease_token AND e.worker_id = @worker_id))
      AND (e.concurrency_limit = 0 AND e.concurrency_key IS NULL OR e.status = 'running')
      AND is_of_types(e.job_type, @job_types::text[]) AND e.cancel_requested_at IS NULL
      AND EXISTS (SELECT 1 FROM workers w WHERE w.id = @worker_id AND NOT w.dead AND w.expires_at > clock.at)
    FOR UPDATE OF e SKIP LOCKED
),
held AS MATERIALIZED (
    SELECT c.tenant_id, c.cancelling,
           coalesce(t.max_running, nullif(@max_running::int, 0), 1000000) - c.running AS free,
           coalesce((t.max_running_by_type->>'http')::int, 1000000) - c.running_http AS free_http,
           coalesce((t.max_running_by_type->>'function')::int, 1000000) - c.running_function AS free_function,
           coalesce((t.max_running_by_type->>'command')::int, 1000000) - c.running_command AS free_command
    FROM running_counts c LEFT JOIN tenants t ON t.id = c.tenant_id
    WHERE c.tenant_id = ANY (ARRAY(SELECT DISTINCT l.tenant_id FROM locked l WHERE l.status <> 'running')) AND NOT c.suspended
    ORDER BY c.tenant_id
    FOR UPDATE OF c
),
fitting AS (
    SELECT l.id, l.tenant_id, l.job_type, l.concurrency_key, l.priority, l.available_at, h.free,
           row_number() OVER (PARTITION BY l.tenant_id, l.job_type ORDER BY l.priority DESC, l.available_at, l.id)
             <= CASE l.job_type WHEN 'http' THEN h.free_http WHEN 'function' THEN h.free_function WHEN 'command' THEN h.free_command ELSE h.free END AS fits
    FROM locked l JOIN held h ON h.tenant_id = l.tenant_id
    WHERE l.status <> 'running' AND CASE WHEN h.cancelling > 0 THEN NOT is_cancelled(l.job_id, l.generation, l.backfill_id IS NOT NULL) ELSE true END
),
placed AS MATERIALIZED (
    SELECT f.id, f.tenant_id, f.job_type, f.concurrency_key,
           (f.fits AND count(*) FILTER (WHERE f.fits) OVER (PARTITION BY f.tenant_id ORDER BY f.priority DESC, f.available_at, f.id) <= f.free) AS admitted
    FROM fitting f
),
counted AS (
    UPDATE running_counts c SET
        running = c.running + n.total, running_http = c.running_http + n.http,
        running_function = c.running_function + n.function, running_command = c.running_command + n.command,
        crowded_at = CASE WHEN n.refused THEN clock.at ELSE c.crowded_at END
    FROM (SELECT p.tenant_id, count(*) FILTER (WHERE p.admitted) AS total,
                 count(*) FILTER (WHERE p.admitted AND p.job_type = 'http') AS http,
                 count(*) FILTER (WHERE p.admitted AND p.job_type = 'function') AS function,
                 count(*) FILTER (WHERE p.admitted AND p.job_type = 'command') AS command,
                 bool_or(NOT p.admitted) AS refused
          FROM placed p GROUP BY p.tenant_id) n, clock
    WHERE c.tenant_id = n.tenant_id
      AND (n.total > 0 OR c.crowded_at IS NULL OR c.crowded_at < clock.at - interval '10 seconds')
)
UPDATE active_executions e SET
    status = 'running', pooled = false, attempt = e.attempt + (e.status <> 'running')::int, worker_id = @worker_id, lease_token = @lease_token,
    started_at = coalesce(e.started_at, clock.at), attempt_started_at = clock.at,
    deadline_at = clock.at + make_interval(secs => e.timeout_ms / 1000.0 + 5),
    sweep_at = least(e.sweep_at, clock.at + interval '5 seconds')
FROM clock
WHERE e.id = ANY (ARRAY(SELECT p.id FROM placed p WHERE p.admitted UNION ALL SELECT l.id FROM locked l WHERE l.status = 'running'))
RETURNING e.id, e.tenant_id, e.job_id, e.job_version, e.scheduled_at, e.trigger_type, e.job_type, e.priority, e.parameters,
          e.attempt, e.max_attempts, e.lease_token, e.timeout_ms, clock.at::timestamptz AS claimed_at,
          CASE WHEN e.attempt = 1 AND e.trigger_type = 'scheduled' THEN e.scheduled_at ELSE e.available_at END::timestamptz AS due_at;

-- name: ListLeftExecutions :many
-- Cross-tenant: the worker. Of what a claim left: what waits for a place of its
-- job (gated) or has a concurrency key, and so is claimed in another way; and
-- what nobody looks for yet (unpooled): it is of a type that this worker does not
-- run, or a limit of its tenant is met.
SELECT e.id, e.job_id, (e.concurrency_limit > 0)::boolean AS gated, (NOT e.awaits_turn)::boolean AS unpooled
FROM active_executions e
WHERE e.id = ANY (@ids::uuid[]) AND e.status IN ('pending', 'retrying')
  AND CASE WHEN e.awaits_turn THEN is_of_types(e.job_type, @job_types::text[]) ELSE NOT e.pooled END
  AND e.available_at <= coalesce(sqlc.narg(now)::timestamptz, now()) AND e.cancel_requested_at IS NULL
ORDER BY e.job_id, e.id;

-- name: ClaimGatedExecutions :many
-- Cross-tenant: the worker, in one transaction with and after LockJobs: in one
-- statement the count would be of the snapshot from before the lock and admit
-- too many. A place is taken by what runs and by what had one reserved; a
-- backfill's run takes one that no other run wants. Skips what is locked:
-- another's. A key is taken by inserting it: its primary key decides, whatever
-- the snapshot says, and nobody waits for it, because whoever writes a key holds
-- the count of its tenant locked. The tenants' limits are those of ClaimExecutions.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
wanted AS (
    SELECT e.id, e.job_id, e.priority, e.available_at, e.backfill_id, e.concurrency_limit,
           CASE WHEN e.concurrency_key IS NULL THEN 1
                ELSE row_number() OVER (PARTITION BY e.tenant_id, e.concurrency_key ORDER BY e.priority DESC, e.available_at, e.id) END AS key_place
    FROM active_executions e, clock
    WHERE e.id = ANY (@ids::uuid[]) AND e.status IN ('pending', 'retrying') AND e.available_at <= clock.at
      AND (e.concurrency_limit > 0 OR e.concurrency_key IS NOT NULL) AND is_of_types(e.job_type, @job_types::text[]) AND e.cancel_requested_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM running_keys k WHERE k.tenant_id = e.tenant_id AND k.key = e.concurrency_key)
      AND NOT EXISTS (SELECT 1 FROM cancellations o WHERE o.job_id = e.job_id AND o.generation >= e.generation AND NOT (o.spare_backfills AND e.backfill_id IS NOT NULL))
      AND EXISTS (SELECT 1 FROM workers w WHERE w.id = @worker_id AND NOT w.dead AND w.expires_at > clock.at)
),
places AS MATERIALIZED (
    SELECT j.job_id, taken_slots(j.job_id) AS taken FROM (SELECT DISTINCT w.job_id FROM wanted w WHERE w.concurrency_limit > 0) j
),
ranked AS (
    SELECT e.id, e.concurrency_limit,
           row_number() OVER (PARTITION BY e.job_id, e.concurrency_limit > 0 ORDER BY e.backfill_id IS NOT NULL, e.priority DESC, e.available_at, e.id) AS place,
           CASE WHEN e.concurrency_limit > 0 THEN e.concurrency_limit - (SELECT p.taken FROM places p WHERE p.job_id = e.job_id) END AS free
    FROM wanted e WHERE e.key_place = 1
),
locked AS MATERIALIZED (
    SELECT e.id, e.tenant_id, e.job_id, e.job_type, e.concurrency_key, e.status, e.priority, e.available_at, e.generation, e.backfill_id FROM active_executions e
    WHERE e.id = ANY (ARRAY(SELECT r.id FROM ranked r WHERE r.concurrency_limit = 0 OR r.place <= r.free))
      AND e.status IN ('pending', 'retrying') AND e.cancel_requested_at IS NULL
    FOR UPDATE OF e SKIP LOCKED
),
held AS MATERIALIZED (
    SELECT c.tenant_id, c.cancelling,
           coalesce(t.max_running, nullif(@max_running::int, 0), 1000000) - c.running AS free,
           coalesce((t.max_running_by_type->>'http')::int, 1000000) - c.running_http AS free_http,
           coalesce((t.max_running_by_type->>'function')::int, 1000000) - c.running_function AS free_function,
           coalesce((t.max_running_by_type->>'command')::int, 1000000) - c.running_command AS free_command
    FROM running_counts c LEFT JOIN tenants t ON t.id = c.tenant_id
    WHERE c.tenant_id = ANY (ARRAY(SELECT DISTINCT l.tenant_id FROM locked l WHERE l.status <> 'running')) AND NOT c.suspended
    ORDER BY c.tenant_id
    FOR UPDATE OF c
),
fitting AS (
    SELECT l.id, l.tenant_id, l.job_type, l.concurrency_key, l.priority, l.available_at, h.free,
           row_number() OVER (PARTITION BY l.tenant_id, l.job_type ORDER BY l.priority DESC, l.available_at, l.id)
             <= CASE l.job_type WHEN 'http' THEN h.free_http WHEN 'function' THEN h.free_function WHEN 'command' THEN h.free_command ELSE h.free END AS fits
    FROM locked l JOIN held h ON h.tenant_id = l.tenant_id
    WHERE l.status <> 'running' AND CASE WHEN h.cancelling > 0 THEN NOT is_cancelled(l.job_id, l.generation, l.backfill_id IS NOT NULL) ELSE true END
),
placed AS MATERIALIZED (
    SELECT f.id, f.tenant_id, f.job_type, f.concurrency_key,
           (f.fits AND count(*) FILTER (WHERE f.fits) OVER (PARTITION BY f.tenant_id ORDER BY f.priority DESC, f.available_at, f.id) <= f.free) AS admitted
    FROM fitting f
),
taken AS (
    INSERT INTO running_keys (tenant_id, key, execution_id)
    SELECT p.tenant_id, p.concurrency_key, p.id FROM placed p
    WHERE p.admitted AND p.concurrency_key IS NOT NULL ORDER BY p.tenant_id, p.concurrency_key
    ON CONFLICT DO NOTHING
    RETURNING execution_id
),
started AS MATERIALIZED (
    SELECT p.id, p.tenant_id, p.job_type,
           (p.admitted AND (p.concurrency_key IS NULL OR p.id IN (SELECT t.execution_id FROM taken t))) AS admitted
    FROM placed p
),
counted AS (
    UPDATE running_counts c SET
        running = c.running + n.total, running_http = c.running_http + n.http,
        running_function = c.running_function + n.function, running_command = c.running_command + n.command,
        crowded_at = CASE WHEN n.refused THEN clock.at ELSE c.crowded_at END
    FROM (SELECT p.tenant_id, count(*) FILTER (WHERE p.admitted) AS total,
                 count(*) FILTER (WHERE p.admitted AND p.job_type = 'http') AS http,
                 count(*) FILTER (WHERE p.admitted AND p.job_type = 'function') AS function,
                 count(*) FILTER (WHERE p.admitted AND p.job_type = 'command') AS command,
                 bool_or(NOT p.admitted) AS refused
          FROM started p GROUP BY p.tenant_id) n, clock
    WHERE c.tenant_id = n.tenant_id
      AND (n.total > 0 OR c.crowded_at IS NULL OR c.crowded_at < clock.at - interval '10 seconds')
)
UPDATE active_executions e SET
    status = 'running', pooled = false, attempt = e.attempt + 1, worker_id = @worker_id, lease_token = @lease_token,
    started_at = coalesce(e.started_at, clock.at), attempt_started_at = clock.at,
    deadline_at = clock.at + make_interval(secs => e.timeout_ms / 1000.0 + 5),
    sweep_at = least(e.sweep_at, clock.at + interval '5 seconds')
FROM clock
WHERE e.id = ANY (ARRAY(SELECT a.id FROM started a WHERE a.admitted))
RETURNING e.id, e.tenant_id, e.job_id, e.job_version, e.scheduled_at, e.trigger_type, e.job_type, e.priority, e.parameters,
          e.attempt, e.max_attempts, e.lease_token, e.timeout_ms, clock.at::timestamptz AS claimed_at,
          CASE WHEN e.attempt = 1 AND e.trigger_type = 'scheduled' THEN e.scheduled_at ELSE e.available_at END::timestamptz AS due_at;

-- name: ListPooledExecutions :one
-- Cross-tenant: the worker. What waits in the pool and may start, in the order
-- in which it should. It locks nothing, the claim decides; each place in a line
-- is moved by up to spread, so that workers that ask at one time ask for
-- different rows.
-- A line is what a tenant has of one priority and type. One step into
-- active_executions_pool finds the next, so that a long line costs no more than
-- a short one. Each look takes the next stretch of lines, without the tenant in
-- which it ends, and says where the one after it begins. Lines of tenants whose
-- limits are met, and of types that the worker does not run, are passed over.
-- Fair between tenants: each has its turns beside the others, and first those
-- of which the fewest run at this worker (busy_tenants, busy_runs).
-- Fair within a tenant: lanes share 6:3:1 as they do in Redis, and within a lane
-- each step of priority counts as ten seconds of waiting.
-- A line gives what a few lines can use: 8 where many are short, all that is
-- wanted where one is long.
-- While executions of a tenant are being cancelled, its lines may hold nothing
-- else for long. A poll reads the first thousand of such a line and the first
-- thousand made since, and returns those that are not being cancelled.
WITH RECURSIVE clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at, @batch_size::int AS wanted),
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
stretch AS MATERIALIZED (SELECT w.tenant_id, w.priority, w.job_type, row_number() OVER () AS place FROM walk w LIMIT @stretch::int),
-- The last tenant all of whose lines are seen, when there may be more.
ending AS MATERIALIZED (
    SELECT s.tenant_id FROM stretch s
    WHERE s.tenant_id < (SELECT l.tenant_id FROM stretch l WHERE l.place = @stretch::int)
    ORDER BY s.tenant_id DESC LIMIT 1
),
cancelling AS MATERIALIZED (
    SELECT o.tenant_id, min(o.requested_at) - interval '5 seconds' AS since FROM cancellations o GROUP BY o.tenant_id
),
lines AS MATERIALIZED (
    SELECT t.tenant_id, t.priority, t.job_type, p.seen, (SELECT c.since FROM cancelling c WHERE c.tenant_id = t.tenant_id) AS since
    FROM stretch t CROSS JOIN LATERAL (
        SELECT count(*) AS seen FROM (
            SELECT 1 FROM active_executions e
            WHERE e.pooled AND e.tenant_id = t.tenant_id AND e.priority = t.priority AND e.job_type = t.job_type
              AND e.available_at <= (SELECT at FROM clock)
            LIMIT 8
        ) few
    ) p
    WHERE p.seen > 0 AND is_of_types(t.job_type, @job_types::text[])
      AND NOT EXISTS (
          SELECT 1 FROM running_counts c LEFT JOIN tenants f ON f.id = c.tenant_id
          WHERE c.tenant_id = t.tenant_id
            AND (c.suspended OR c.running >= coalesce(f.max_running, nullif(@max_running::int, 0), 1000000)
                 OR CASE t.job_type WHEN 'http' THEN c.running_http WHEN 'function' THEN c.running_function ELSE c.running_command END
                    >= (f.max_running_by_type->>t.job_type)::int)
      )
),
depth AS MATERIALIZED (SELECT greatest(8, (SELECT 2 * c.wanted FROM clock c) / greatest(count(*), 1)) AS most FROM lines l WHERE l.seen = 8),
found AS (
    SELECT l.tenant_id, w.id, w.available_at - l.priority * interval '10 seconds' AS since,
           CASE WHEN l.priority >= 7 THEN 6 WHEN l.priority >= 3 THEN 3 ELSE 1 END AS weight
    FROM lines l CROSS JOIN LATERAL (
        SELECT e.id, e.available_at FROM active_executions e
        WHERE e.pooled AND e.tenant_id = l.tenant_id AND e.priority = l.priority AND e.job_type = l.job_type
          AND e.available_at <= (SELECT at FROM clock) AND e.cancel_requested_at IS NULL
        ORDER BY e.available_at
        LIMIT (SELECT d.most FROM depth d)
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
aged AS (
    SELECT f.tenant_id, f.id, f.weight, row_number() OVER (PARTITION BY f.tenant_id, f.weight ORDER BY f.since, f.id) + random() * @spread::int AS place
    FROM found f
),
shared AS (
    SELECT a.tenant_id, a.id, row_number() OVER (PARTITION BY a.tenant_id, a.weight ORDER BY a.place)::float8 / a.weight AS share FROM aged a
),
turns AS (
    SELECT s.tenant_id, s.id, row_number() OVER (PARTITION BY s.tenant_id ORDER BY s.share, s.id) + coalesce(b.runs, 0) AS turn
    FROM shared s
    LEFT JOIN (SELECT unnest(@busy_tenants::uuid[]) AS tenant_id, unnest(@busy_runs::int[]) AS runs) b ON b.tenant_id = s.tenant_id
),
chosen AS MATERIALIZED (
    SELECT t.tenant_id, t.id, row_number() OVER (ORDER BY t.turn, random()) AS place FROM turns t ORDER BY 3 LIMIT (SELECT wanted FROM clock)
)
SELECT ARRAY(SELECT c.id FROM chosen c ORDER BY c.place)::uuid[] AS ids,
       ARRAY(SELECT c.tenant_id FROM chosen c ORDER BY c.place)::uuid[] AS tenant_ids,
       coalesce((SELECT n.tenant_id FROM ending n), '00000000-0000-0000-0000-000000000000')::uuid AS next_after;

-- name: ListPlacedExecutions :one
-- Cross-tenant: the worker. Executions that wait for a concurrency slot while one
-- is free, and the first execution that waits for each free key: those whose turn
-- nobody announced, or announced to a worker that does not run their type. Each look takes the next stretch of jobs, by
-- active_executions_slot_lines, and of keys, by active_executions_key_lines; it
-- says where the one after it begins. next_of_job and next_of_key say who is next,
-- at a cost that no backlog raises. The lines of keys are asked for those alone
-- that need no place: the others are found by their jobs.
WITH RECURSIVE clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
walk AS (
    (SELECT e.job_id FROM active_executions e WHERE e.awaits_slot AND e.job_id > @after_job::uuid ORDER BY e.job_id LIMIT 1)
    UNION ALL
    SELECT (SELECT e.job_id FROM active_executions e WHERE e.awaits_slot AND e.job_id > w.job_id ORDER BY e.job_id LIMIT 1)
    FROM walk w WHERE w.job_id IS NOT NULL
),
jobs AS MATERIALIZED (SELECT w.job_id FROM walk w LIMIT @stretch::int),
keyed AS (
    (SELECT e.tenant_id, e.concurrency_key FROM active_executions e
     WHERE e.awaits_turn AND e.concurrency_key IS NOT NULL AND (e.tenant_id, e.concurrency_key) > (@after_tenant::uuid, @after_key::text)
     ORDER BY e.tenant_id, e.concurrency_key LIMIT 1)
    UNION ALL
    SELECT n.tenant_id, n.concurrency_key FROM keyed w CROSS JOIN LATERAL (
        SELECT e.tenant_id, e.concurrency_key FROM active_executions e
        WHERE e.awaits_turn AND e.concurrency_key IS NOT NULL AND (e.tenant_id, e.concurrency_key) > (w.tenant_id, w.concurrency_key)
        ORDER BY e.tenant_id, e.concurrency_key LIMIT 1
    ) n
),
keys AS MATERIALIZED (SELECT w.tenant_id, w.concurrency_key FROM keyed w LIMIT @stretch::int),
found AS (
    SELECT (n.id)::uuid AS id, (n.tenant_id)::uuid AS tenant_id
    FROM jobs j CROSS JOIN clock CROSS JOIN LATERAL next_of_job(j.job_id, @job_types::text[], clock.at, 0, @batch_size::int) n
    WHERE j.job_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM running_counts c WHERE c.tenant_id = n.tenant_id AND c.suspended)
    UNION
    SELECT (n.id)::uuid AS id, y.tenant_id
    FROM keys y CROSS JOIN clock CROSS JOIN LATERAL next_of_key(y.tenant_id, y.concurrency_key, @job_types::text[], clock.at) n
    WHERE NOT EXISTS (SELECT 1 FROM running_counts c WHERE c.tenant_id = y.tenant_id AND c.suspended)
),
-- The last key of this stretch, when there may be more.
last_key AS MATERIALIZED (
    SELECT n.tenant_id, n.concurrency_key
    FROM (SELECT y.tenant_id, y.concurrency_key, row_number() OVER (ORDER BY y.tenant_id, y.concurrency_key) AS place FROM keys y) n
    WHERE n.place = @stretch::int
),
placed AS MATERIALIZED (SELECT f.id, f.tenant_id, row_number() OVER (ORDER BY random()) AS place FROM found f ORDER BY 3 LIMIT @batch_size::int)
SELECT ARRAY(SELECT p.id FROM placed p ORDER BY p.place)::uuid[] AS ids,
       ARRAY(SELECT p.tenant_id FROM placed p ORDER BY p.place)::uuid[] AS tenant_ids,
       coalesce((SELECT l.job_id FROM (SELECT j.job_id, row_number() OVER (ORDER BY j.job_id) AS n FROM jobs j) l WHERE l.n = @stretch::int),
                '00000000-0000-0000-0000-000000000000')::uuid AS next_after,
       coalesce((SELECT l.tenant_id FROM last_key l), '00000000-0000-0000-0000-000000000000')::uuid AS next_tenant,
       coalesce((SELECT l.concurrency_key FROM last_key l), '')::text AS next_key;

-- name: CountActiveOfJob :one
-- The places of one job, whose row the caller holds locked since an earlier
-- statement. See count_active.
SELECT coalesce(sum(c.taken), 0)::bigint AS taken, coalesce(sum(c.waiting), 0)::bigint AS waiting FROM count_active(ARRAY[@job_id::uuid]) c;

-- name: CompleteExecutions :many
-- Cross-tenant: the worker. Fenced on (attempt, lease token): a row that is no
-- longer this attempt's is not touched and not returned. Ends what is over by
-- moving it to the history, sends the rest back with its backoff; a requested
-- end wins over any outcome, and the error that it left is none. retry_ms < 0 means "over". Locked in id order,
-- never skipped: an outcome must land. The parts run on one snapshot and each
-- row is touched by one of them. What the tenants run is counted last, so that
-- the counts are locked for as short as can be.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
done AS (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@attempts::int[]) AS attempt, unnest(@lease_tokens::uuid[]) AS lease_token,
           unnest(@succeeded::boolean[]) AS succeeded, unnest(@retry_ms::bigint[]) AS retry_ms,
           unnest(@durations_ms::bigint[]) AS duration_ms, unnest(@results::text[]) AS result,
           unnest(@error_types::text[]) AS error_type, unnest(@error_messages::text[]) AS error_message, unnest(@error_stacks::text[]) AS error_stack,
           unnest(@memory_mb::real[]) AS memory_mb, unnest(@cpu_ms::bigint[]) AS cpu_ms
),
locked AS MATERIALIZED (
    SELECT e.id, e.scheduled_at, e.tenant_id, e.job_id, e.job_version, e.trigger_type, e.triggered_by, e.job_type, e.priority, e.parameters,
           e.attempt, e.max_attempts, e.attempts, e.worker_id, e.lease_token, e.started_at, e.attempt_started_at, e.created_at, e.progress, e.backfill_id,
           e.concurrency_limit, e.concurrency_key, coalesce(e.cancel_reason, o.reason) AS cancel_reason, coalesce(e.cancelled_by, o.cancelled_by) AS cancelled_by, d.succeeded, d.retry_ms, d.duration_ms, d.result, d.error_type, d.error_message, d.error_stack, d.memory_mb, d.cpu_ms,
           CASE WHEN e.cancel_requested_at IS NOT NULL OR o.reason IS NOT NULL THEN 'cancelled'
                WHEN d.succeeded THEN 'completed'
                WHEN d.retry_ms < 0 OR e.attempt >= e.max_attempts THEN 'failed'
                ELSE 'retrying' END AS verdict
    FROM (SELECT * FROM done ORDER BY id) d CROSS JOIN LATERAL (
        SELECT * FROM active_executions r
        WHERE r.id = d.id AND r.status = 'running' AND r.attempt = d.attempt AND r.lease_token = d.lease_token
        FOR UPDATE
    ) e
    LEFT JOIN LATERAL (
        SELECT c.reason, c.cancelled_by FROM cancellations c
        WHERE (SELECT EXISTS (SELECT 1 FROM cancellations)) AND e.cancel_requested_at IS NULL
          AND c.job_id = e.job_id AND c.generation >= e.generation AND NOT (c.spare_backfills AND e.backfill_id IS NOT NULL)
        ORDER BY c.generation LIMIT 1
    ) o ON true
),
moved AS (
    DELETE FROM active_executions e WHERE e.id = ANY (ARRAY(SELECT l.id FROM locked l WHERE l.verdict <> 'retrying'))
),
recorded AS (
    INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
                                status, reason, attempt, max_attempts, progress, attempts, worker_id, lease_token, backfill_id, started_at, completed_at,
                                duration_ms, result, error_type, error_message, error_stack, memory_peak_mb, cpu_time_ms, cancelled_by, created_at)
    SELECT l.id, l.scheduled_at, l.tenant_id, l.job_id, l.job_version, l.trigger_type, l.triggered_by, l.job_type, l.priority, l.parameters,
           l.verdict, CASE WHEN l.verdict = 'cancelled' THEN coalesce(l.cancel_reason, 'cancelled while running') ELSE '' END,
           l.attempt, l.max_attempts, CASE WHEN l.verdict = 'completed' THEN 100 ELSE l.progress END,
           l.attempts, l.worker_id, l.lease_token, l.backfill_id, l.started_at, clock.at,
           l.duration_ms, nullif(l.result, '')::jsonb, CASE WHEN l.verdict = 'failed' THEN nullif(l.error_type, '') END,
           CASE WHEN l.verdict = 'failed' THEN nullif(l.error_message, '') END, CASE WHEN l.verdict = 'failed' THEN nullif(l.error_stack, '') END,
           nullif(l.memory_mb, 0), nullif(l.cpu_ms, 0), CASE WHEN l.verdict = 'cancelled' THEN coalesce(l.cancelled_by, '') ELSE '' END, l.created_at
    FROM locked l, clock WHERE l.verdict <> 'retrying'
    ON CONFLICT (id, scheduled_at) DO NOTHING
    RETURNING id
),
again AS (
    UPDATE active_executions e SET
        status = 'retrying', worker_id = NULL, lease_token = NULL, deadline_at = NULL, pooled = (e.concurrency_limit = 0 AND e.concurrency_key IS NULL),
        available_at = clock.at + make_interval(secs => l.retry_ms / 1000.0), sweep_at = 'infinity',
        attempts = e.attempts || jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
            'number', l.attempt, 'startedAt', l.attempt_started_at, 'endedAt', clock.at, 'workerId', l.worker_id,
            'error', jsonb_build_object('type', l.error_type, 'message', l.error_message, 'stack', nullif(l.error_stack, '')))))
    FROM locked l, clock
    WHERE e.id = ANY (ARRAY(SELECT a.id FROM locked a WHERE a.verdict = 'retrying')) AND e.id = l.id
    RETURNING e.id
),
over AS (
    SELECT l.tenant_id, count(*) AS total, count(*) FILTER (WHERE l.job_type = 'http') AS http,
           count(*) FILTER (WHERE l.job_type = 'function') AS function, count(*) FILTER (WHERE l.job_type = 'command') AS command
    FROM locked l GROUP BY l.tenant_id
),
held AS MATERIALIZED (
    SELECT c.tenant_id FROM running_counts c
    WHERE c.tenant_id = ANY (ARRAY(SELECT o.tenant_id FROM over o WHERE (SELECT count(*) FROM recorded) + (SELECT count(*) FROM again) >= 0))
    ORDER BY c.tenant_id
    FOR UPDATE
),
counted AS (
    UPDATE running_counts c SET
        running = c.running - o.total, running_http = c.running_http - o.http,
        running_function = c.running_function - o.function, running_command = c.running_command - o.command
    FROM over o
    WHERE c.tenant_id = o.tenant_id AND c.tenant_id = ANY (ARRAY(SELECT h.tenant_id FROM held h))
    RETURNING c.tenant_id, c.crowded_at
),
unkeyed AS (
    DELETE FROM running_keys k
    WHERE k.execution_id = ANY (ARRAY(SELECT l.id FROM locked l WHERE l.concurrency_key IS NOT NULL AND (SELECT count(*) FROM held) >= 0))
)
SELECT l.id, l.verdict::text AS verdict, l.job_type, l.tenant_id, l.concurrency_key,
       -- Somebody was left behind lately because of the tenant's limits.
       coalesce((SELECT n.crowded_at > clock.at - interval '2 minutes' FROM counted n WHERE n.tenant_id = l.tenant_id), false)::boolean AS crowded,
       -- Whose turn it is now: as many of a job as get the places that its ends
       -- free, with the first of these.
       (CASE WHEN l.nth_of_job = 1 AND EXISTS (SELECT 1 FROM active_executions w WHERE w.job_id = l.job_id AND w.awaits_slot)
             THEN ARRAY(SELECT n.id FROM next_of_job(l.job_id, ARRAY[l.job_type], clock.at, l.places, 64) n)
             ELSE '{}' END)::uuid[] AS next_ids
FROM (SELECT o.id, o.verdict, o.job_type, o.tenant_id, o.job_id, o.concurrency_key,
             row_number() OVER (PARTITION BY o.job_id ORDER BY o.id) AS nth_of_job,
             (count(*) FILTER (WHERE o.verdict <> 'retrying' OR o.concurrency_limit > 0) OVER (PARTITION BY o.job_id))::int AS places
      FROM locked o) l, clock;

-- name: ListNextExecutions :many
-- Cross-tenant: the worker and the sweeper, once runs ended. Whose turn it is: of
-- tenants whose limits left somebody behind, those that fit now, and of each key
-- that became free the first in line. Locks nothing, the claim decides. An
-- execution that waits for a place or a key is named only if one is free; of a type
-- that no worker that lives runs, none.
-- It walks the lines of a tenant, one for each type and priority, 60 at most: in
-- the pool, where everything stands that a limit of its tenant left behind, and in
-- active_executions_turn_lines. Of each it reads as many as may be named, and in
-- the latter window_size: who could start and stands behind so many that cannot is
-- found by ListPlacedExecutions.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
room AS MATERIALIZED (
    SELECT c.tenant_id,
           coalesce(t.max_running, nullif(@max_running::int, 0), 1000000) - c.running AS free,
           coalesce((t.max_running_by_type->>'http')::int, 1000000) - c.running_http AS free_http,
           coalesce((t.max_running_by_type->>'function')::int, 1000000) - c.running_function AS free_function,
           coalesce((t.max_running_by_type->>'command')::int, 1000000) - c.running_command AS free_command
    FROM running_counts c LEFT JOIN tenants t ON t.id = c.tenant_id
    WHERE c.tenant_id = ANY (@tenant_ids::uuid[]) AND NOT c.suspended
),
served AS MATERIALIZED (
    SELECT kind.job_type FROM (SELECT unnest('{http,function,command}'::text[]) AS job_type) kind
    WHERE EXISTS (SELECT 1 FROM workers v, clock
                  WHERE NOT v.dead AND v.expires_at > clock.at AND (v.job_types = '{}' OR kind.job_type = ANY (v.job_types)))
),
lines AS MATERIALIZED (
    SELECT m.tenant_id, s.job_type, level.priority, least(m.free, @most::int) AS free, f.free_type, least(m.free, f.free_type, @most::int) AS most
    FROM room m CROSS JOIN served s CROSS JOIN generate_series(0, 9) AS level(priority)
    CROSS JOIN LATERAL (SELECT CASE s.job_type WHEN 'http' THEN m.free_http WHEN 'function' THEN m.free_function ELSE m.free_command END AS free_type) f
    WHERE m.free > 0 AND f.free_type > 0
),
-- What may have to wait for a place or a key too.
front AS MATERIALIZED (
    SELECT o.*, l.tenant_id, l.job_type, l.priority, l.free, l.free_type
    FROM lines l CROSS JOIN LATERAL (
        SELECT e.id, e.job_id, e.available_at, e.concurrency_limit, e.concurrency_key, e.cancel_requested_at, e.generation, e.backfill_id FROM active_executions e
        WHERE e.awaits_turn AND e.tenant_id = l.tenant_id AND e.job_type = l.job_type AND e.priority = l.priority
          AND e.available_at <= (SELECT at FROM clock)
        ORDER BY e.available_at LIMIT @window_size::int
    ) o
),
places AS MATERIALIZED (
    SELECT j.job_id, taken_slots(j.job_id) AS taken FROM (SELECT DISTINCT f.job_id FROM front f WHERE f.concurrency_limit > 0) j
),
startable AS MATERIALIZED (
    SELECT w.id, l.tenant_id, l.job_type, l.priority, w.available_at, l.free, l.free_type
    FROM lines l CROSS JOIN LATERAL (
        SELECT e.id, e.job_id, e.available_at, e.generation, e.backfill_id FROM active_executions e
        WHERE e.pooled AND e.tenant_id = l.tenant_id AND e.priority = l.priority AND e.job_type = l.job_type
          AND e.available_at <= (SELECT at FROM clock) AND e.cancel_requested_at IS NULL
        ORDER BY e.available_at LIMIT l.most
    ) w
    WHERE NOT EXISTS (SELECT 1 FROM cancellations o WHERE o.job_id = w.job_id AND o.generation >= w.generation AND NOT (o.spare_backfills AND w.backfill_id IS NOT NULL))
    UNION ALL
    SELECT o.id, o.tenant_id, o.job_type, o.priority, o.available_at, o.free, o.free_type
    FROM front o
    WHERE o.cancel_requested_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM cancellations c WHERE c.job_id = o.job_id AND c.generation >= o.generation AND NOT (c.spare_backfills AND o.backfill_id IS NOT NULL))
      AND NOT EXISTS (SELECT 1 FROM running_keys k WHERE k.tenant_id = o.tenant_id AND k.key = o.concurrency_key)
      AND (o.concurrency_limit = 0 OR o.concurrency_limit > (SELECT p.taken FROM places p WHERE p.job_id = o.job_id))
),
fitting AS (
    SELECT o.id, o.tenant_id, o.priority, o.available_at, o.free, o.free_type,
           row_number() OVER (PARTITION BY o.tenant_id, o.job_type ORDER BY o.priority DESC, o.available_at, o.id) AS type_place
    FROM startable o
),
placed AS (
    SELECT f.id, f.priority, f.free,
           row_number() OVER (PARTITION BY f.tenant_id ORDER BY f.priority DESC, f.available_at, f.id) AS place
    FROM fitting f WHERE f.type_place <= f.free_type
)
SELECT p.id, p.priority::smallint AS priority FROM placed p WHERE p.place <= p.free
UNION
SELECT (n.id)::uuid AS id, (n.priority)::smallint AS priority
FROM (SELECT unnest(@key_tenant_ids::uuid[]) AS tenant_id, unnest(@keys::text[]) AS key) freed
CROSS JOIN clock CROSS JOIN LATERAL next_of_key(freed.tenant_id, freed.key, ARRAY(SELECT s.job_type FROM served s), clock.at) n
WHERE NOT EXISTS (SELECT 1 FROM running_counts c WHERE c.tenant_id = freed.tenant_id AND c.suspended);

-- name: ListDriftedTenants :many
-- Cross-tenant: the auditor. Tenants whose counts are not those of their rows,
-- or that have no counts. Every statement changes both at once, so one snapshot
-- shows them equal, and what differs did so for good.
SELECT coalesce(c.tenant_id, e.tenant_id)::uuid AS tenant_id
FROM running_counts c
FULL JOIN (SELECT a.tenant_id, count(*) AS running, count(*) FILTER (WHERE a.job_type = 'http') AS http,
                  count(*) FILTER (WHERE a.job_type = 'function') AS function, count(*) FILTER (WHERE a.job_type = 'command') AS command
           FROM active_executions a WHERE a.status = 'running' GROUP BY a.tenant_id) e ON e.tenant_id = c.tenant_id
WHERE (coalesce(c.running, -1), c.running_http, c.running_function, c.running_command)
      IS DISTINCT FROM (coalesce(e.running, 0), coalesce(e.http, 0), coalesce(e.function, 0), coalesce(e.command, 0))
UNION
SELECT k.tenant_id FROM running_keys k
WHERE NOT EXISTS (SELECT 1 FROM active_executions a WHERE a.id = k.execution_id AND a.status = 'running')
UNION
SELECT t.id FROM tenants t WHERE NOT EXISTS (SELECT 1 FROM running_counts c WHERE c.tenant_id = t.id)
ORDER BY 1;

-- name: EnsureRunningCount :exec
-- Cross-tenant: the auditor, for a tenant that has no counts.
INSERT INTO running_counts (tenant_id) VALUES (@tenant) ON CONFLICT (tenant_id) DO NOTHING;

-- name: LockRunningCount :one
-- Cross-tenant: the auditor. Nothing of the tenant starts or ends until it
-- recounted, in the statement after this one, which sees what was committed
-- before.
SELECT tenant_id FROM running_counts WHERE tenant_id = @tenant FOR UPDATE;

-- name: RecountRunning :exec
-- Cross-tenant: the auditor, for a tenant whose counts it holds locked.
WITH freed AS (
    DELETE FROM running_keys k
    WHERE k.tenant_id = @tenant AND NOT EXISTS (SELECT 1 FROM active_executions a WHERE a.id = k.execution_id AND a.status = 'running')
)
UPDATE running_counts c SET running = e.running, running_http = e.http, running_function = e.function, running_command = e.command
FROM (SELECT count(*) AS running, count(*) FILTER (WHERE a.job_type = 'http') AS http,
             count(*) FILTER (WHERE a.job_type = 'function') AS function, count(*) FILTER (WHERE a.job_type = 'command') AS command
      FROM active_executions a WHERE a.tenant_id = @tenant AND a.status = 'running') e
WHERE c.tenant_id = @tenant;

-- name: ReleaseExecutions :many
-- Cross-tenant: the worker gives back what it will not run: a drain, or rows
-- that the database says it runs and it does not. Fenced as a completion is.
-- The attempt stays counted and one more is allowed instead. It is in the pool at
-- once, as what the sweeper hands on. What is to be
-- cancelled does not wait again, nobody would claim it: it runs nowhere, and the
-- sweeper ends it.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
given AS (SELECT unnest(@ids::uuid[]) AS id, unnest(@lease_tokens::uuid[]) AS lease_token),
locked AS MATERIALIZED (
    SELECT e.id, e.tenant_id, e.job_type, e.concurrency_key, e.cancel_requested_at FROM (SELECT * FROM given ORDER BY id) g CROSS JOIN LATERAL (
        SELECT r.id, r.tenant_id, r.job_type, r.concurrency_key, r.cancel_requested_at FROM active_executions r
        WHERE r.id = g.id AND r.status = 'running' AND r.lease_token = g.lease_token
        FOR UPDATE
    ) e
),
over AS (
    SELECT l.tenant_id, count(*) AS total, count(*) FILTER (WHERE l.job_type = 'http') AS http,
           count(*) FILTER (WHERE l.job_type = 'function') AS function, count(*) FILTER (WHERE l.job_type = 'command') AS command
    FROM locked l WHERE l.cancel_requested_at IS NULL GROUP BY l.tenant_id
),
held AS MATERIALIZED (
    SELECT c.tenant_id FROM running_counts c
    WHERE c.tenant_id = ANY (ARRAY(SELECT o.tenant_id FROM over o))
    ORDER BY c.tenant_id
    FOR UPDATE
),
counted AS (
    UPDATE running_counts c SET
        running = c.running - o.total, running_http = c.running_http - o.http,
        running_function = c.running_function - o.function, running_command = c.running_command - o.command
    FROM over o
    WHERE c.tenant_id = o.tenant_id AND c.tenant_id = ANY (ARRAY(SELECT h.tenant_id FROM held h))
    RETURNING c.tenant_id, c.crowded_at
),
unkeyed AS (
    DELETE FROM running_keys k
    WHERE k.execution_id = ANY (ARRAY(SELECT l.id FROM locked l WHERE l.concurrency_key IS NOT NULL AND (SELECT count(*) FROM held) >= 0 AND l.cancel_requested_at IS NULL))
)
UPDATE active_executions e SET
    status = CASE WHEN e.cancel_requested_at IS NULL THEN 'pending' ELSE 'running' END, worker_id = NULL, lease_token = NULL, deadline_at = NULL,
    max_attempts = e.max_attempts + 1, available_at = clock.at,
    pooled = (e.cancel_requested_at IS NULL AND e.concurrency_limit = 0 AND e.concurrency_key IS NULL),
    sweep_at = CASE WHEN e.cancel_requested_at IS NULL THEN 'infinity' ELSE clock.at + interval '5 seconds' END
FROM clock WHERE e.id = ANY (ARRAY(SELECT l.id FROM locked l))
RETURNING e.id, e.priority;

-- name: ListHeldExecutions :many
-- Cross-tenant: the worker, now and then. What the database says this worker
-- runs. Walks active_executions_sweep and so reads what all workers run: the
-- claim sets sweep_at to 5 s or less ahead. An index by worker would cost each
-- claim its HOT update.
SELECT id, lease_token, attempt, (cancel_requested_at IS NOT NULL)::boolean AS cancelling
FROM active_executions
WHERE sweep_at <= coalesce(sqlc.narg(now)::timestamptz, now()) + interval '5 seconds'
  AND status = 'running' AND worker_id = @worker_id;

-- name: ReclaimExecutions :many
-- Cross-tenant: the sweeper. What runs on a dead worker, or past its deadline,
-- is handed on, or ended when it must not be tried again. A lost worker is not
-- the job's fault: it costs no retry, but a run may lose only max_lost of
-- them, so that one that kills its worker is bounded. Skips what is locked: a
-- completion that is under way, or another sweeper. What is handed on is in the
-- pool at once: the fault that took its worker may take its hint too. With ids,
-- only these are looked at: the caller divides what the database refuses.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
lost AS MATERIALIZED (
    SELECT e.id, e.scheduled_at, e.tenant_id, e.job_id, e.job_version, e.trigger_type, e.triggered_by, e.job_type, e.priority, e.parameters,
           e.attempt, e.max_attempts, e.attempts, e.worker_id, e.lease_token, e.started_at, e.attempt_started_at, e.created_at, e.progress, e.backfill_id, e.concurrency_key,
           coalesce(e.cancel_reason, o.reason) AS cancel_reason, coalesce(e.cancelled_by, o.cancelled_by) AS cancelled_by, (w.id IS NULL OR w.dead) AS worker_lost,
           CASE WHEN e.cancel_requested_at IS NOT NULL OR o.reason IS NOT NULL THEN 'cancelled'
                WHEN w.id IS NULL OR w.dead THEN CASE WHEN e.lost_count + 1 < @max_lost::int THEN 'pending' ELSE 'failed' END
                WHEN e.attempt >= e.max_attempts THEN 'failed'
                ELSE 'pending' END AS verdict
    FROM active_executions e LEFT JOIN workers w ON w.id = e.worker_id
    LEFT JOIN LATERAL (
        SELECT c.reason, c.cancelled_by FROM cancellations c
        WHERE e.cancel_requested_at IS NULL
          AND c.job_id = e.job_id AND c.generation >= e.generation AND NOT (c.spare_backfills AND e.backfill_id IS NOT NULL)
        ORDER BY c.generation LIMIT 1
    ) o ON true, clock
    WHERE e.sweep_at <= clock.at + interval '5 seconds' AND e.status = 'running'
      AND (w.id IS NULL OR w.dead OR e.deadline_at < clock.at)
      AND (sqlc.narg(ids)::uuid[] IS NULL OR e.id = ANY (sqlc.narg(ids)::uuid[]))
    ORDER BY e.id
    LIMIT @batch_size
    FOR UPDATE OF e SKIP LOCKED
),
moved AS (
    DELETE FROM active_executions e WHERE e.id = ANY (ARRAY(SELECT l.id FROM lost l WHERE l.verdict <> 'pending'))
),
recorded AS (
    INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
                                status, reason, attempt, max_attempts, progress, attempts, worker_id, lease_token, backfill_id, started_at, completed_at,
                                duration_ms, error_type, error_message, cancelled_by, created_at)
    SELECT l.id, l.scheduled_at, l.tenant_id, l.job_id, l.job_version, l.trigger_type, l.triggered_by, l.job_type, l.priority, l.parameters,
           l.verdict, CASE WHEN l.verdict = 'cancelled' THEN coalesce(l.cancel_reason, 'cancelled while running') ELSE '' END,
           l.attempt, l.max_attempts, l.progress, l.attempts, l.worker_id, l.lease_token, l.backfill_id, l.started_at, clock.at,
           (extract(epoch FROM clock.at - l.attempt_started_at) * 1000)::bigint,
           CASE WHEN l.verdict = 'cancelled' THEN NULL WHEN l.worker_lost THEN 'SYSTEM_ERROR' ELSE 'TIMEOUT' END,
           CASE WHEN l.verdict = 'cancelled' THEN NULL WHEN l.worker_lost THEN 'the worker was lost during the run, too often to try again'
                ELSE 'the run passed its deadline and its worker did not end it' END,
           CASE WHEN l.verdict = 'cancelled' THEN coalesce(l.cancelled_by, '') ELSE '' END, l.created_at
    FROM lost l, clock WHERE l.verdict <> 'pending'
    ON CONFLICT (id, scheduled_at) DO NOTHING
),
again AS (
    UPDATE active_executions e SET
        status = 'pending', worker_id = NULL, lease_token = NULL, deadline_at = NULL,
        max_attempts = e.max_attempts + l.worker_lost::int, lost_count = e.lost_count + l.worker_lost::int,
        available_at = clock.at, pooled = (e.concurrency_limit = 0 AND e.concurrency_key IS NULL), sweep_at = 'infinity',
        attempts = e.attempts || jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
            'number', l.attempt, 'startedAt', l.attempt_started_at, 'endedAt', clock.at, 'workerId', l.worker_id,
            'error', jsonb_build_object('type', CASE WHEN l.worker_lost THEN 'SYSTEM_ERROR' ELSE 'TIMEOUT' END,
                                        'message', CASE WHEN l.worker_lost THEN 'the worker was lost during the run'
                                                        ELSE 'the run passed its deadline and its worker did not end it' END))))
    FROM lost l, clock
    WHERE e.id = ANY (ARRAY(SELECT a.id FROM lost a WHERE a.verdict = 'pending')) AND e.id = l.id
),
over AS (
    SELECT l.tenant_id, count(*) AS total, count(*) FILTER (WHERE l.job_type = 'http') AS http,
           count(*) FILTER (WHERE l.job_type = 'function') AS function, count(*) FILTER (WHERE l.job_type = 'command') AS command
    FROM lost l GROUP BY l.tenant_id
),
held AS MATERIALIZED (
    SELECT c.tenant_id FROM running_counts c
    WHERE c.tenant_id = ANY (ARRAY(SELECT o.tenant_id FROM over o))
    ORDER BY c.tenant_id
    FOR UPDATE
),
counted AS (
    UPDATE running_counts c SET
        running = c.running - o.total, running_http = c.running_http - o.http,
        running_function = c.running_function - o.function, running_command = c.running_command - o.command
    FROM over o
    WHERE c.tenant_id = o.tenant_id AND c.tenant_id = ANY (ARRAY(SELECT h.tenant_id FROM held h))
    RETURNING c.tenant_id, c.crowded_at
),
unkeyed AS (
    DELETE FROM running_keys k
    WHERE k.execution_id = ANY (ARRAY(SELECT l.id FROM lost l WHERE l.concurrency_key IS NOT NULL AND (SELECT count(*) FROM held) >= 0))
)
SELECT l.id, l.tenant_id, l.concurrency_key, l.priority, l.job_type, l.verdict::text AS verdict, l.worker_lost::boolean AS worker_lost FROM lost l;

-- name: ListLostExecutions :many
-- Cross-tenant: the sweeper, where the database refuses one of those that
-- ReclaimExecutions finds: any of them, so that none is always behind others.
SELECT e.id, e.tenant_id, e.job_id FROM active_executions e LEFT JOIN workers w ON w.id = e.worker_id
CROSS JOIN (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at) clock
WHERE e.sweep_at <= clock.at + interval '5 seconds' AND e.status = 'running'
  AND (w.id IS NULL OR w.dead OR e.deadline_at < clock.at)
ORDER BY random() LIMIT @batch_size;

-- name: PoolLateExecutions :execrows
-- Cross-tenant: the sweeper. What waits although its hint should have come
-- within ahead_ms goes to the pool, where workers look for themselves. What
-- waits for a place is found without; it is only put out of the way. With ids, of
-- these alone.
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

-- name: PoolExecutions :execrows
-- Cross-tenant: the promoter for hints that could not be sent, and the worker
-- for those that it has no slot for. Skips what is locked: it is being claimed.
WITH waiting AS MATERIALIZED (
    SELECT e.id FROM active_executions e
    WHERE e.id = ANY (@ids::uuid[]) AND e.status IN ('pending', 'retrying') AND NOT e.pooled AND e.concurrency_limit = 0 AND e.concurrency_key IS NULL
    FOR UPDATE OF e SKIP LOCKED
)
UPDATE active_executions e SET pooled = true, sweep_at = 'infinity'
WHERE e.id = ANY (ARRAY(SELECT w.id FROM waiting w));

-- name: LockExecutionsOfJobs :exec
-- Cross-tenant: the promoter, for jobs whose rows it holds, before it cancels what
-- is active of several of them: job by job it would lock out of order, and wait in
-- a circle with a completion, which locks in id order what is of many jobs.
SELECT id FROM active_executions WHERE job_id = ANY (@job_ids::uuid[]) ORDER BY id FOR UPDATE;

-- name: CountExecutionsOfJob :one
-- How many of a job are not over, of at most so many that are counted.
SELECT count(*) FROM (SELECT 1 FROM active_executions WHERE tenant_id = @tenant_id AND job_id = @job_id LIMIT @most) few;

-- name: CancelWaitingByJob :execrows
-- Ends the waiting executions of one job, or with spare_backfills those that no
-- backfill made. For a job with few active executions; see OrderCancellation.
-- Everything of the job that is not over is locked first, in id order, and only
-- then asked whether it waits: an attempt whose failure is just being written
-- waits after that, and one that is just being claimed runs. What runs stays
-- locked, so that a RequestCancelByJob in the same transaction finds it.
WITH locked AS MATERIALIZED (
    SELECT e.* FROM active_executions e
    WHERE e.tenant_id = @tenant_id AND e.job_id = @job_id
    ORDER BY e.id FOR UPDATE
),
waiting AS MATERIALIZED (
    SELECT l.* FROM locked l WHERE l.status IN ('pending', 'retrying')
      AND (l.backfill_id IS NULL OR NOT @spare_backfills::boolean)
),
moved AS (DELETE FROM active_executions e WHERE e.id = ANY (ARRAY(SELECT w.id FROM waiting w)))
INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
                            status, reason, cancelled_by, attempt, max_attempts, progress, attempts, backfill_id, started_at, completed_at, created_at)
SELECT w.id, w.scheduled_at, w.tenant_id, w.job_id, w.job_version, w.trigger_type, w.triggered_by, w.job_type, w.priority, w.parameters,
       'cancelled', @reason::text, @cancelled_by::text, w.attempt, w.max_attempts, w.progress, w.attempts, w.backfill_id, w.started_at, @now::timestamptz, w.created_at
FROM waiting w
ON CONFLICT (id, scheduled_at) DO NOTHING;

-- name: RequestCancelByJob :execrows
-- Asks for the end of what runs of one job: the heartbeat of its worker, the
-- completion and the sweeper all look at the mark under the row's lock. An
-- execution whose outcome is parked is not tried again either.
UPDATE active_executions SET cancel_requested_at = @now::timestamptz, cancel_reason = @reason::text, cancelled_by = @cancelled_by::text
WHERE tenant_id = @tenant_id AND job_id = @job_id AND status IN ('running', 'parked') AND cancel_requested_at IS NULL;

-- name: CountActiveExecutions :many
-- Cross-tenant: the service's gauges. Reads all that is pending or running (0.4 s
-- of a core for a million), so one promoter at a time asks it, and then nobody for
-- a hundred times as long as it took.
SELECT priority, count(*) FILTER (WHERE status = 'running') AS running, count(*) FILTER (WHERE status IN ('pending', 'retrying')) AS waiting
FROM active_executions GROUP BY priority;

-- name: LockExecution :one
-- One run that is not over, locked: a claim or an outcome that is just being
-- written comes before, or after. No row where it is over.
SELECT status, job_id, scheduled_at FROM active_executions WHERE tenant_id = @tenant_id AND id = @id FOR UPDATE;

-- name: CancelWaitingExecution :execrows
-- Ends one run that waits, for a row that the caller holds locked.
WITH waiting AS MATERIALIZED (
    SELECT e.* FROM active_executions e
    WHERE e.tenant_id = @tenant_id AND e.id = @id AND e.status IN ('pending', 'retrying')
),
moved AS (DELETE FROM active_executions e WHERE e.id = ANY (ARRAY(SELECT w.id FROM waiting w)))
INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
                            status, reason, cancelled_by, attempt, max_attempts, progress, attempts, backfill_id, started_at, completed_at, created_at)
SELECT w.id, w.scheduled_at, w.tenant_id, w.job_id, w.job_version, w.trigger_type, w.triggered_by, w.job_type, w.priority, w.parameters,
       'cancelled', @reason::text, @cancelled_by::text, w.attempt, w.max_attempts, w.progress, w.attempts, w.backfill_id, w.started_at, @now::timestamptz, w.created_at
FROM waiting w
ON CONFLICT (id, scheduled_at) DO NOTHING;

-- name: RequestCancelExecution :exec
-- Asks for the end of one run, as RequestCancelByJob does. A second request
-- keeps the instant of the first, its reason and who made it.
UPDATE active_executions SET cancel_requested_at = @now::timestamptz, cancel_reason = @reason::text, cancelled_by = @cancelled_by::text
WHERE tenant_id = @tenant_id AND id = @id AND status = 'running' AND cancel_requested_at IS NULL;

-- name: ListNextInLine :many
-- Whose turn it is when a place of a job was freed other than by an outcome; a
-- hint only, the claim counts.
SELECT (n.id)::uuid AS id, (n.priority)::smallint AS priority
FROM (SELECT @tenant_id::uuid AS tenant_id, @job_id::uuid AS job_id) of_one
CROSS JOIN LATERAL next_of_job(of_one.job_id, '{http,function,command}', now(), 0, @page_size::int) n
WHERE n.tenant_id = of_one.tenant_id;

-- name: ListCancelledRuns :many
-- Cross-tenant: the worker, between two heartbeats. Which of its runs somebody
-- wants to end; walks active_executions_cancelling, which is empty most of the
-- time.
SELECT id, lease_token FROM active_executions
WHERE cancel_requested_at IS NOT NULL AND status = 'running' AND worker_id = @worker_id;

-- name: ListObstacles :many
-- What could keep executions of a page from running, as it is now. Counts the
-- places of each job once. A worker that does not say what it runs is of an older
-- version and taken to run everything. What is parked is tried again at
-- available_at.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
waiting AS MATERIALIZED (
    SELECT e.* FROM active_executions e
    WHERE e.tenant_id = @tenant_id AND e.id = ANY (@ids::uuid[]) AND e.status <> 'running'
),
places AS MATERIALIZED (
    SELECT j.job_id, taken_slots(j.job_id) AS taken
    FROM (SELECT DISTINCT w.job_id FROM waiting w WHERE w.concurrency_limit > 0) j
),
served AS MATERIALIZED (
    SELECT kind.job_type FROM (SELECT DISTINCT w.job_type FROM waiting w) kind
    WHERE EXISTS (SELECT 1 FROM workers v, clock
                  WHERE NOT v.dead AND v.expires_at > clock.at AND (v.job_types = '{}' OR kind.job_type = ANY (v.job_types)))
)
SELECT w.id, w.status, w.trigger_type, w.scheduled_at, (CASE WHEN w.status = 'parked' THEN w.sweep_at ELSE w.available_at END)::timestamptz AS available_at,
       (coalesce(c.suspended, false) OR EXISTS (SELECT 1 FROM cancellations o WHERE o.job_id = w.job_id AND o.generation >= w.generation AND NOT (o.spare_backfills AND w.backfill_id IS NOT NULL)))::boolean AS cancelling,
       w.concurrency_limit, w.concurrency_key, clock.at::timestamptz AS at,
       coalesce((SELECT p.taken FROM places p WHERE p.job_id = w.job_id), 0)::bigint AS taken,
       EXISTS (SELECT 1 FROM running_keys k WHERE k.tenant_id = @tenant_id AND k.key = w.concurrency_key) AS key_taken,
       is_of_types(w.job_type, ARRAY(SELECT v.job_type FROM served v))::boolean AS served,
       coalesce(c.running, 0)::int AS running,
       coalesce(t.max_running, nullif(@max_running::int, 0), 1000000)::int AS max_running,
       coalesce(CASE w.job_type WHEN 'http' THEN c.running_http WHEN 'function' THEN c.running_function WHEN 'command' THEN c.running_command END, 0)::int AS type_running,
       coalesce((t.max_running_by_type->>w.job_type)::int, -1)::int AS type_limit
FROM waiting w CROSS JOIN clock
LEFT JOIN running_counts c ON c.tenant_id = @tenant_id
LEFT JOIN tenants t ON t.id = @tenant_id;

-- name: CountActiveByPriority :many
-- A tenant's backlog by priority; what is delayed waits for its instant.
SELECT priority, count(*) FILTER (WHERE status = 'running') AS running,
       count(*) FILTER (WHERE status IN ('pending', 'retrying') AND available_at <= @now::timestamptz) AS waiting,
       count(*) FILTER (WHERE status IN ('pending', 'retrying') AND available_at > @now::timestamptz) AS delayed,
       coalesce(min(available_at) FILTER (WHERE status IN ('pending', 'retrying') AND available_at <= @now::timestamptz), @now::timestamptz)::timestamptz AS oldest_at
FROM active_executions WHERE tenant_id = @tenant_id GROUP BY priority ORDER BY priority;

-- name: CountRunsByWorker :many
SELECT worker_id::uuid AS worker_id, count(*) AS running FROM active_executions
WHERE tenant_id = @tenant_id AND status = 'running' AND worker_id IS NOT NULL GROUP BY 1;
