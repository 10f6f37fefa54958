-- name: ClaimExecutions :many
-- Cross-tenant: the worker. Claims executions that wait for nothing but a worker:
-- pending, available, and of a type that the worker does not leave to others, while
-- its lease stands. The attempt is counted here, so a run that kills its worker is
-- bounded. A claim whose commit was ambiguous is repeated with the same token and
-- finds its own rows. Skips locked rows: another worker is claiming them.
-- Rows of this table are found by an array of ids and by no join, here and in the
-- other statements. The table is empty most of the time, and once vacuum has seen it
-- so, the planner takes it for a single row, even when it holds many, and joins it by
-- comparing all with all (measured: 320 ms for a claim of 128 and 970 for a
-- completion of 256). Values for each row are looked up one by one (LATERAL).
-- start_runs counts the executions under their tenants' limits and returns those
-- that may start; its arrays are what keeps the order: executions first, then counts.
-- The start is that of the statement: its transaction may have waited for its turn to poll.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, statement_timestamp()) AS at),
locked AS MATERIALIZED (
    SELECT e.id, e.tenant_id, e.job_type, e.status FROM active_executions e, clock
    WHERE e.id = ANY (@ids::uuid[])
      AND ((e.status IN ('pending', 'retrying') AND e.available_at <= clock.at)
           OR (e.status = 'running' AND e.lease_token = @lease_token AND e.worker_id = @worker_id))
      AND (e.concurrency_limit = 0 AND e.concurrency_key IS NULL OR e.status = 'running')
      AND e.job_type <> ALL (@left_types::text[]) AND e.cancel_requested_at IS NULL
      AND EXISTS (SELECT 1 FROM workers w WHERE w.id = @worker_id AND NOT w.dead AND w.expires_at > clock.at)
    FOR UPDATE OF e SKIP LOCKED
),
asked AS (
    SELECT array_agg(l.id) AS ids, array_agg(l.tenant_id) AS tenant_ids, array_agg(l.job_type) AS job_types
    FROM locked l WHERE l.status <> 'running'
)
UPDATE active_executions e SET
    status = 'running', pooled = false, attempt = e.attempt + (e.status <> 'running')::int, worker_id = @worker_id, lease_token = @lease_token,
    started_at = coalesce(e.started_at, clock.at), attempt_started_at = clock.at,
    deadline_at = clock.at + make_interval(secs => e.timeout_ms / 1000.0 + 5),
    sweep_at = least(e.sweep_at, clock.at + interval '5 seconds')
FROM clock
WHERE e.id = ANY (ARRAY(SELECT start_runs(a.ids, a.tenant_ids, a.job_types, NULL, @max_running::int, c.at, @worker_id) FROM asked a, clock c
                        UNION ALL SELECT l.id FROM locked l WHERE l.status = 'running'))
RETURNING e.id, e.tenant_id, e.job_id, e.job_version, e.scheduled_at, e.trigger_type, e.job_type, e.priority, e.parameters,
          e.attempt, e.max_attempts, e.lease_token, e.timeout_ms, e.started_at::timestamptz AS started_at, clock.at::timestamptz AS claimed_at,
          CASE WHEN e.attempt = 1 AND e.trigger_type = 'scheduled' AND e.held_until IS NULL THEN e.scheduled_at ELSE e.available_at END::timestamptz AS due_at;

-- name: ListUnclaimedExecutions :many
-- Cross-tenant: the worker. Executions that ClaimExecutions was asked for and that
-- still wait. limited: it waits for a concurrency slot (needs_slot) or has a
-- concurrency key, so ClaimLimitedExecutions claims it. Otherwise nobody polls it
-- yet: this worker leaves its type to others (left_to_others), or a limit of its tenant is met.
SELECT e.id, e.job_id, (e.concurrency_limit > 0)::boolean AS needs_slot, e.awaits_turn AS limited,
       (e.job_type = ANY (@left_types::text[]))::boolean AS left_to_others
FROM active_executions e
WHERE e.id = ANY (@ids::uuid[]) AND e.status IN ('pending', 'retrying')
  AND CASE WHEN e.awaits_turn THEN e.job_type <> ALL (@left_types::text[]) ELSE NOT e.pooled END
  AND e.available_at <= coalesce(sqlc.narg(now)::timestamptz, now()) AND e.cancel_requested_at IS NULL
ORDER BY e.job_id, e.id;

-- name: ClaimLimitedExecutions :many
-- Cross-tenant: the worker. Claims executions that wait for a concurrency slot or
-- have a concurrency key, in one transaction with and after LockJobs: in one
-- statement the count of taken slots would be of the snapshot from before the lock
-- and admit too many. Running executions and those with a reserved slot take slots; a
-- backfill's execution gets one that no other execution wants. Of each key the first
-- execution is tried. Skips locked rows: another worker is claiming them. The tenants'
-- limits, and who gets a key, are decided by start_runs.
-- The start is that of this statement and not of its transaction: LockJobs may have waited,
-- and a run that ended meanwhile would seem to have run beside this one.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, statement_timestamp()) AS at),
wanted AS (
    SELECT e.id, e.job_id, e.priority, e.available_at, e.backfill_id, e.concurrency_limit,
           CASE WHEN e.concurrency_key IS NULL THEN 1
                ELSE row_number() OVER (PARTITION BY e.tenant_id, e.concurrency_key ORDER BY e.priority DESC, e.available_at, e.id) END AS nth_of_key
    FROM active_executions e, clock
    WHERE e.id = ANY (@ids::uuid[]) AND e.status IN ('pending', 'retrying') AND e.available_at <= clock.at
      AND (e.concurrency_limit > 0 OR e.concurrency_key IS NOT NULL) AND e.job_type <> ALL (@left_types::text[]) AND e.cancel_requested_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM running_keys k WHERE k.tenant_id = e.tenant_id AND k.key = e.concurrency_key)
      AND NOT EXISTS (SELECT 1 FROM cancellations o WHERE o.job_id = e.job_id AND o.generation >= e.generation AND NOT (o.spare_backfills AND e.backfill_id IS NOT NULL))
      AND EXISTS (SELECT 1 FROM workers w WHERE w.id = @worker_id AND NOT w.dead AND w.expires_at > clock.at)
),
slots AS MATERIALIZED (
    SELECT j.job_id, taken_slots(j.job_id) AS taken FROM (SELECT DISTINCT w.job_id FROM wanted w WHERE w.concurrency_limit > 0) j
),
ranked AS (
    SELECT e.id, e.concurrency_limit,
           row_number() OVER (PARTITION BY e.job_id, e.concurrency_limit > 0 ORDER BY e.backfill_id IS NOT NULL, e.priority DESC, e.available_at, e.id) AS nth,
           CASE WHEN e.concurrency_limit > 0 THEN e.concurrency_limit - (SELECT s.taken FROM slots s WHERE s.job_id = e.job_id) END AS free
    FROM wanted e WHERE e.nth_of_key = 1
),
locked AS MATERIALIZED (
    SELECT e.id, e.tenant_id, e.job_type, e.concurrency_key FROM active_executions e
    WHERE e.id = ANY (ARRAY(SELECT r.id FROM ranked r WHERE r.concurrency_limit = 0 OR r.nth <= r.free))
      AND e.status IN ('pending', 'retrying') AND e.cancel_requested_at IS NULL
    FOR UPDATE OF e SKIP LOCKED
),
asked AS (
    SELECT array_agg(l.id) AS ids, array_agg(l.tenant_id) AS tenant_ids, array_agg(l.job_type) AS job_types, array_agg(l.concurrency_key) AS keys
    FROM locked l
)
UPDATE active_executions e SET
    status = 'running', pooled = false, attempt = e.attempt + 1, worker_id = @worker_id, lease_token = @lease_token,
    started_at = coalesce(e.started_at, clock.at), attempt_started_at = clock.at,
    deadline_at = clock.at + make_interval(secs => e.timeout_ms / 1000.0 + 5),
    sweep_at = least(e.sweep_at, clock.at + interval '5 seconds')
FROM clock
WHERE e.id = ANY (ARRAY(SELECT start_runs(a.ids, a.tenant_ids, a.job_types, a.keys, @max_running::int, c.at, @worker_id) FROM asked a, clock c))
RETURNING e.id, e.tenant_id, e.job_id, e.job_version, e.scheduled_at, e.trigger_type, e.job_type, e.priority, e.parameters,
          e.attempt, e.max_attempts, e.lease_token, e.timeout_ms, e.started_at::timestamptz AS started_at, clock.at::timestamptz AS claimed_at,
          CASE WHEN e.attempt = 1 AND e.trigger_type = 'scheduled' AND e.held_until IS NULL THEN e.scheduled_at ELSE e.available_at END::timestamptz AS due_at;

-- name: CommitWithoutFlush :exec
-- Has the commit that follows wait neither for the disk nor for a standby. For a transaction
-- that has locked rows and has nothing to tell: a crash may undo it, and nobody would notice. What
-- a later transaction made of it is not kept without it.
SELECT set_config('synchronous_commit', 'off', true);
