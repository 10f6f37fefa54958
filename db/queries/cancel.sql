-- name: CountExecutionsOfJob :one
-- How many of a job are not over, of at most so many that are counted.
SELECT count(*) FROM (SELECT 1 FROM active_executions WHERE tenant_id = @tenant_id AND job_id = @job_id LIMIT @most) few;

-- name: LockExecutionsOfJobs :exec
-- Cross-tenant: the promoter, for jobs whose rows it holds, before it cancels what
-- is active of several of them: job by job it would lock out of order, and wait in
-- a circle with a completion, which locks in id order what is of many jobs.
SELECT id FROM active_executions WHERE job_id = ANY (@job_ids::uuid[]) ORDER BY id FOR UPDATE;

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

-- name: OrderCancellation :exec
-- Orders that everything that a job has by now is cancelled, for a job that the
-- caller holds locked. From the commit on no claim takes any of it; promoters
-- cancel it in pieces. What is made of the job afterwards is of the next
-- generation and not meant. Writing the tenant's count waits for the claims
-- under way, and those after it see the order.
WITH job AS (
    UPDATE scheduled_jobs s SET generation = s.generation + 1 WHERE s.tenant_id = @tenant_id AND s.id = @job_id
    RETURNING s.id, s.tenant_id, s.generation - 1 AS upto
),
ordered AS (
    INSERT INTO cancellations (tenant_id, job_id, generation, spare_backfills, requested_at, reason, cancelled_by)
    SELECT j.tenant_id, j.id, j.upto, @spare_backfills, @now::timestamptz, @reason, @cancelled_by FROM job j
)
UPDATE running_counts c SET cancelling = c.cancelling + 1 FROM job j WHERE c.tenant_id = j.tenant_id;

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

-- name: ListCancellations :many
-- Cross-tenant: the promoters. The oldest order of each job, tenants in turns.
SELECT o.tenant_id, o.job_id, o.generation, o.spare_backfills, o.reason, o.cancelled_by
FROM cancellations o
WHERE NOT EXISTS (SELECT 1 FROM cancellations b WHERE b.job_id = o.job_id AND b.generation < o.generation)
ORDER BY row_number() OVER (PARTITION BY o.tenant_id ORDER BY o.requested_at), random() LIMIT @batch_size;

-- name: CancelPieceOfJob :one
-- Ends some of what waits under an order, from a place in the order of scheduled
-- times on, and asks what runs, or is parked, to end. It begins where the last piece ended, so
-- that it does not read again what that one removed. Skips what is locked: a
-- claim or an outcome that is being written, or another promoter.
WITH piece AS MATERIALIZED (
    SELECT e.* FROM active_executions e
    WHERE e.tenant_id = @tenant_id AND e.job_id = @job_id AND e.generation <= @generation
      AND (e.scheduled_at, e.id) > (@after_at::timestamptz, @after_id::uuid)
      AND (e.status IN ('pending', 'retrying') OR e.cancel_requested_at IS NULL)
      AND NOT (@spare_backfills::boolean AND e.backfill_id IS NOT NULL)
    ORDER BY e.scheduled_at, e.id
    LIMIT @piece_size
    FOR UPDATE SKIP LOCKED
),
asked AS (
    UPDATE active_executions e SET cancel_requested_at = now(), cancel_reason = @reason::text, cancelled_by = @cancelled_by::text
    WHERE e.id = ANY (ARRAY(SELECT p.id FROM piece p WHERE p.status IN ('running', 'parked')))
),
moved AS (DELETE FROM active_executions e WHERE e.id = ANY (ARRAY(SELECT p.id FROM piece p WHERE p.status IN ('pending', 'retrying')))),
recorded AS (
    INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
                                status, reason, cancelled_by, attempt, max_attempts, progress, attempts, backfill_id, started_at, completed_at, created_at)
    SELECT p.id, p.scheduled_at, p.tenant_id, p.job_id, p.job_version, p.trigger_type, p.triggered_by, p.job_type, p.priority, p.parameters,
           'cancelled', @reason::text, @cancelled_by::text, p.attempt, p.max_attempts, p.progress, p.attempts, p.backfill_id, p.started_at, now(), p.created_at
    FROM piece p WHERE p.status IN ('pending', 'retrying')
    ON CONFLICT (id, scheduled_at) DO NOTHING
)
SELECT p.scheduled_at, p.id, count(*) OVER ()::int AS executions FROM piece p ORDER BY p.scheduled_at DESC, p.id DESC LIMIT 1;

-- name: FindPieceOfJob :one
-- The first execution that the next piece would hold, for one that holds it
-- alone and fails.
SELECT e.scheduled_at, e.id FROM active_executions e
WHERE e.tenant_id = @tenant_id AND e.job_id = @job_id AND e.generation <= @generation
  AND (e.scheduled_at, e.id) > (@after_at::timestamptz, @after_id::uuid)
  AND (e.status IN ('pending', 'retrying') OR e.cancel_requested_at IS NULL)
  AND NOT (@spare_backfills::boolean AND e.backfill_id IS NOT NULL)
ORDER BY e.scheduled_at, e.id LIMIT 1;

-- name: CloseCancellation :execrows
-- Deletes an order under which nothing waits and everything that runs is asked
-- to end. An outcome that is being written, or a claim, is still seen as it was
-- before, so the order stays until it is known what became of it.
WITH done AS (
    DELETE FROM cancellations o
    WHERE o.tenant_id = @tenant_id AND o.job_id = @job_id AND o.generation = @generation
      AND NOT EXISTS (SELECT 1 FROM active_executions e
                      WHERE e.job_id = o.job_id AND e.generation <= o.generation
                        AND (e.status IN ('pending', 'retrying') OR e.cancel_requested_at IS NULL)
                        AND NOT (o.spare_backfills AND e.backfill_id IS NOT NULL))
    RETURNING o.tenant_id
)
UPDATE running_counts c SET cancelling = c.cancelling - 1 FROM done d WHERE c.tenant_id = d.tenant_id;

-- name: ListSuspendedTenants :many
-- Cross-tenant: the promoters. Tenants that are suspended or being deleted and of
-- which something waits, or runs and is not asked to end.
SELECT t.id FROM tenants t
WHERE t.status IN ('suspended', 'deleting')
  AND EXISTS (SELECT 1 FROM active_executions e WHERE e.tenant_id = t.id AND (e.status IN ('pending', 'retrying') OR e.cancel_requested_at IS NULL))
ORDER BY random() LIMIT @batch_size;

-- name: CancelPieceOfTenant :one
-- CancelPieceOfJob for everything of a tenant, for as long as it is suspended.
WITH piece AS MATERIALIZED (
    SELECT e.* FROM active_executions e
    WHERE e.tenant_id = @tenant_id
      AND EXISTS (SELECT 1 FROM running_counts c WHERE c.tenant_id = @tenant_id AND c.suspended)
      AND (e.scheduled_at, e.id) > (@after_at::timestamptz, @after_id::uuid)
      AND (e.status IN ('pending', 'retrying') OR e.cancel_requested_at IS NULL)
    ORDER BY e.scheduled_at, e.id
    LIMIT @piece_size
    FOR UPDATE SKIP LOCKED
),
asked AS (
    UPDATE active_executions e SET cancel_requested_at = now(), cancel_reason = @reason::text, cancelled_by = @cancelled_by::text
    WHERE e.id = ANY (ARRAY(SELECT p.id FROM piece p WHERE p.status IN ('running', 'parked')))
),
moved AS (DELETE FROM active_executions e WHERE e.id = ANY (ARRAY(SELECT p.id FROM piece p WHERE p.status IN ('pending', 'retrying')))),
recorded AS (
    INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, triggered_by, job_type, priority, parameters,
                                status, reason, cancelled_by, attempt, max_attempts, progress, attempts, backfill_id, started_at, completed_at, created_at)
    SELECT p.id, p.scheduled_at, p.tenant_id, p.job_id, p.job_version, p.trigger_type, p.triggered_by, p.job_type, p.priority, p.parameters,
           'cancelled', @reason::text, @cancelled_by::text, p.attempt, p.max_attempts, p.progress, p.attempts, p.backfill_id, p.started_at, now(), p.created_at
    FROM piece p WHERE p.status IN ('pending', 'retrying')
    ON CONFLICT (id, scheduled_at) DO NOTHING
)
SELECT p.scheduled_at, p.id, count(*) OVER ()::int AS executions FROM piece p ORDER BY p.scheduled_at DESC, p.id DESC LIMIT 1;

-- name: FindPieceOfTenant :one
-- FindPieceOfJob for everything of a tenant.
SELECT e.scheduled_at, e.id FROM active_executions e
WHERE e.tenant_id = @tenant_id AND (e.scheduled_at, e.id) > (@after_at::timestamptz, @after_id::uuid)
  AND (e.status IN ('pending', 'retrying') OR e.cancel_requested_at IS NULL)
ORDER BY e.scheduled_at, e.id LIMIT 1;
