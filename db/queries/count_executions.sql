-- name: CountActiveOfJob :batchone
-- The slots of one job, whose row the caller holds locked since an earlier
-- statement, which may have travelled with this one: each sees what was committed
-- before it began. See count_active. A job whose runs may overlap has no slots, and
-- counting would read up to 1,001 of what waits of it.
SELECT coalesce(sum(c.taken), 0)::bigint AS taken, coalesce(sum(c.waiting), 0)::bigint AS waiting
FROM count_active(ARRAY(SELECT j.id FROM job_definitions j WHERE j.tenant_id = @tenant_id AND j.id = @job_id::uuid AND j.overlap_policy <> 'allow')) c;

-- name: CountActiveExecutions :many
-- Cross-tenant: the service's gauges. Reads all that is pending or running (0.4 s
-- of a core for a million), so one promoter at a time asks it, and then nobody for
-- a hundred times as long as it took. oldest_ms is how long the first of those that
-- wait has waited.
SELECT a.job_type, a.priority, count(*) FILTER (WHERE a.status = 'running' AND a.awaited_until IS NULL) AS running,
       count(*) FILTER (WHERE a.status IN ('pending', 'retrying') AND a.available_at <= now()) AS waiting,
       count(*) FILTER (WHERE a.status IN ('pending', 'retrying') AND a.available_at > now()) AS delayed,
       coalesce(extract(epoch FROM now() - min(a.available_at) FILTER (WHERE a.status IN ('pending', 'retrying') AND a.available_at <= now())) * 1000, 0)::bigint AS oldest_ms
FROM active_executions a GROUP BY a.job_type, a.priority;

-- name: CountDueSoon :many
-- Cross-tenant: the service's gauges. Active jobs by type that are due within so many
-- seconds, overdue ones too, of at most so many that are read in the order of their times.
SELECT d.job_type, count(*) AS jobs FROM (
    SELECT j.job_type FROM scheduled_jobs j
    WHERE j.status = 'active' AND j.next_execution_at <= now() + make_interval(secs => @seconds::float8)
    ORDER BY j.next_execution_at LIMIT @most) d
GROUP BY d.job_type;

-- name: CountActiveByPriority :many
-- A tenant's backlog by priority; a delayed execution waits for its time.
SELECT priority, count(*) FILTER (WHERE status = 'running') AS running,
       count(*) FILTER (WHERE status IN ('pending', 'retrying') AND available_at <= @now::timestamptz) AS waiting,
       count(*) FILTER (WHERE status IN ('pending', 'retrying') AND available_at > @now::timestamptz) AS delayed,
       coalesce(min(available_at) FILTER (WHERE status IN ('pending', 'retrying') AND available_at <= @now::timestamptz), @now::timestamptz)::timestamptz AS oldest_at
FROM active_executions WHERE tenant_id = @tenant_id GROUP BY priority ORDER BY priority;

-- name: CountRunsByWorker :many
SELECT worker_id::uuid AS worker_id, count(*) AS running FROM active_executions
WHERE tenant_id = @tenant_id AND status = 'running' AND worker_id IS NOT NULL AND awaited_until IS NULL GROUP BY 1;

-- name: ListObstacles :many
-- Obstacles that keep executions of a page from running at present. Counts the
-- slots of each job once. A parked execution is tried again at available_at; one that
-- runs awaits a callback until then.
WITH clock AS (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at),
waiting AS MATERIALIZED (
    SELECT e.* FROM active_executions e
    WHERE e.tenant_id = @tenant_id AND e.id = ANY (@ids::uuid[]) AND (e.status <> 'running' OR e.awaited_until IS NOT NULL)
),
slots AS MATERIALIZED (
    SELECT j.job_id, taken_slots(j.job_id) AS taken
    FROM (SELECT DISTINCT w.job_id FROM waiting w WHERE w.concurrency_limit > 0) j
)
SELECT w.id, w.status, w.trigger_type, w.scheduled_at, (CASE WHEN w.status = 'parked' THEN w.sweep_at WHEN w.status = 'running' THEN w.awaited_until ELSE w.available_at END)::timestamptz AS available_at,
       (coalesce(c.suspended, false) OR EXISTS (SELECT 1 FROM cancellations o WHERE o.job_id = w.job_id AND o.generation >= w.generation AND NOT (o.spare_backfills AND w.backfill_id IS NOT NULL)))::boolean AS cancelling,
       w.concurrency_limit, w.concurrency_key, clock.at::timestamptz AS at,
       (CASE WHEN w.held_until = w.available_at THEN w.held_host ELSE '' END)::text AS held_host,
       coalesce((SELECT p.taken FROM slots p WHERE p.job_id = w.job_id), 0)::bigint AS taken,
       EXISTS (SELECT 1 FROM running_keys k WHERE k.tenant_id = @tenant_id AND k.key = w.concurrency_key) AS key_taken,
       (CASE WHEN w.remote_function IS NULL THEN is_served(w.job_type, clock.at) ELSE is_served_by(w.tenant_id, w.remote_function, clock.at) END)::boolean AS served,
       coalesce(c.running, 0)::int AS running,
       coalesce(t.max_running, nullif(@max_running::int, 0), 1000000)::int AS max_running,
       coalesce((c.running_by_type->>w.job_type)::int, 0)::int AS type_running,
       coalesce((t.max_running_by_type->>w.job_type)::int, -1)::int AS type_limit
FROM waiting w CROSS JOIN clock
LEFT JOIN running_totals c ON c.tenant_id = @tenant_id
LEFT JOIN tenants t ON t.id = @tenant_id;

-- name: GetCancellation :one
-- How far the cancelling of a job is: since when, and how much of it is left, of
-- at most so many that are counted. No row where nothing is being cancelled.
SELECT o.requested_at,
       (SELECT count(*) FROM (
            SELECT 1 FROM active_executions e
            WHERE e.tenant_id = @tenant_id AND e.job_id = @job_id AND e.generation <= o.generation
              AND (e.status IN ('pending', 'retrying') OR e.cancel_requested_at IS NULL) AND NOT (o.spare_backfills AND e.backfill_id IS NOT NULL)
            LIMIT @most) few)::int AS remaining
FROM cancellations o WHERE o.tenant_id = @tenant_id AND o.job_id = @job_id ORDER BY o.generation DESC LIMIT 1;
