-- name: CountExecutionsOfJobs :many
-- How many of each of some jobs have not finished, of at most so many that are counted
-- of one; the jobs with fewest first.
SELECT (j.id)::uuid AS job_id, few.executions::int AS executions
FROM unnest(@job_ids::uuid[]) j(id)
CROSS JOIN LATERAL (SELECT count(*) AS executions FROM (
    SELECT 1 FROM active_executions e WHERE e.tenant_id = @tenant_id AND e.job_id = j.id LIMIT @most) one) few
ORDER BY few.executions, j.id;

-- name: LockExecutionsOfJobs :exec
-- Cross-tenant: the promoter, for jobs whose rows it holds, before it cancels the
-- active executions of several of them: job by job it would lock out of order, and wait
-- in a circle with a completion, which locks executions of many jobs in id order. uuid_send sorts
-- like the id, and no plan walks all ids for it.
SELECT id FROM active_executions WHERE job_id = ANY (@job_ids::uuid[]) ORDER BY uuid_send(id) FOR UPDATE;

-- name: CancelExecutionsOfJobs :exec
-- Cancels the waiting executions of jobs, or with spare_backfills those that no
-- backfill made, and asks the running ones to end: the worker, the completion and the
-- sweeper all look at the mark under the row's lock. A parked execution is not tried
-- again either. For jobs with few active executions; see OrderCancellations. Everything
-- of the jobs is locked first, in id order, and only then asked where it stands: an
-- attempt whose failure is just being written waits after that, and one that is just
-- being claimed runs.
WITH locked AS MATERIALIZED (
    SELECT e.id, e.status, e.backfill_id, e.cancel_requested_at FROM active_executions e
    WHERE e.tenant_id = @tenant_id AND e.job_id = ANY (@job_ids::uuid[])
    ORDER BY uuid_send(e.id) FOR UPDATE
),
asked AS (
    UPDATE active_executions e SET cancel_requested_at = @now::timestamptz, cancel_reason = @reason::text, cancelled_by = @cancelled_by::text
    WHERE e.id = ANY (ARRAY(SELECT l.id FROM locked l WHERE l.status IN ('running', 'parked') AND l.cancel_requested_at IS NULL))
)
SELECT cancel_waiting(ARRAY(SELECT l.id FROM locked l WHERE l.backfill_id IS NULL OR NOT @spare_backfills::boolean),
                      @reason::text, @cancelled_by::text, @now::timestamptz)::bigint AS cancelled;

-- name: CancelExecutionsOfBackfill :exec
-- CancelExecutionsOfJobs for one backfill; a parked execution of it is tried again.
WITH locked AS MATERIALIZED (
    SELECT e.id, e.status, e.cancel_requested_at FROM active_executions e
    WHERE e.tenant_id = @tenant_id AND e.job_id = @job_id AND e.backfill_id = @backfill_id
    ORDER BY uuid_send(e.id) FOR UPDATE
),
asked AS (
    UPDATE active_executions e SET cancel_requested_at = @now::timestamptz, cancel_reason = @reason::text, cancelled_by = @cancelled_by::text
    WHERE e.id = ANY (ARRAY(SELECT l.id FROM locked l WHERE l.status = 'running' AND l.cancel_requested_at IS NULL))
)
SELECT cancel_waiting(ARRAY(SELECT l.id FROM locked l), @reason::text, @cancelled_by::text, @now::timestamptz)::bigint AS cancelled;

-- name: CancelExecution :one
-- Cancels one waiting execution, or asks one that runs to end; a second request keeps
-- the moment of the first, its reason and who made it. A parked one is tried again at
-- once: it ran, and keeps its outcome. The row is locked first: a claim or an
-- outcome that is just being written comes before, or after. No row where it has
-- finished.
WITH locked AS MATERIALIZED (
    SELECT e.id, e.job_id, e.status, e.cancel_requested_at FROM active_executions e WHERE e.tenant_id = @tenant_id AND e.id = @id FOR UPDATE
),
asked AS (
    UPDATE active_executions e SET cancel_requested_at = @now::timestamptz, cancel_reason = @reason::text, cancelled_by = @cancelled_by::text
    WHERE e.id = ANY (ARRAY(SELECT l.id FROM locked l WHERE l.status = 'running' AND l.cancel_requested_at IS NULL))
),
tried AS (
    UPDATE active_executions e SET sweep_at = @now::timestamptz
    WHERE e.id = ANY (ARRAY(SELECT l.id FROM locked l WHERE l.status = 'parked'))
)
SELECT l.job_id, (cancel_waiting(ARRAY[l.id], @reason::text, @cancelled_by::text, @now::timestamptz) > 0)::boolean AS cancelled FROM locked l;

-- name: OrderCancellations :exec
-- Orders that everything that jobs have by now is cancelled; the caller holds the jobs
-- locked. From the commit on no claim starts any of it; it is cancelled in
-- pieces. Executions that a job gets afterwards are of the next
-- generation, and the order does not concern them. Writing the tenant's row waits for the claims
-- under way, and those after it see the orders (trigger hold_starts).
WITH job AS (
    UPDATE scheduled_jobs s SET generation = s.generation + 1 WHERE s.tenant_id = @tenant_id AND s.id = ANY (@job_ids::uuid[])
    RETURNING s.id, s.tenant_id, s.generation - 1 AS upto
),
ordered AS (
    INSERT INTO cancellations (tenant_id, job_id, generation, spare_backfills, requested_at, reason, cancelled_by)
    SELECT j.tenant_id, j.id, j.upto, @spare_backfills, @now::timestamptz, @reason, @cancelled_by FROM job j
)
UPDATE running_counts c SET cancelling = c.cancelling + j.orders
FROM (SELECT o.tenant_id, count(*) AS orders FROM job o GROUP BY o.tenant_id) j WHERE c.tenant_id = j.tenant_id;

-- name: ListCancellations :many
-- Cross-tenant: maintenance. The oldest order of each job, tenants in turns.
SELECT o.tenant_id, o.job_id, o.generation, o.spare_backfills, o.reason, o.cancelled_by
FROM cancellations o
WHERE NOT EXISTS (SELECT 1 FROM cancellations b WHERE b.job_id = o.job_id AND b.generation < o.generation)
ORDER BY row_number() OVER (PARTITION BY o.tenant_id ORDER BY o.requested_at), random() LIMIT @batch_size;

-- name: CancelPieceOfJob :one
-- Cancels some of what waits under an order, from a place in the order of scheduled
-- times on, and asks what runs, or is parked, to end. It begins where the last piece
-- ended, so that it does not read again what that one removed. Skips locked rows: a
-- claim or an outcome that is being written, or another process that cancels.
WITH piece AS MATERIALIZED (
    SELECT e.id, e.scheduled_at, e.status FROM active_executions e
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
-- The join is what has cancel_waiting called.
cancelled AS MATERIALIZED (
    SELECT cancel_waiting(ARRAY(SELECT p.id FROM piece p), @reason::text, @cancelled_by::text, now()) AS executions
)
SELECT p.scheduled_at, p.id, (count(*) OVER ())::int AS executions FROM piece p CROSS JOIN cancelled ORDER BY p.scheduled_at DESC, p.id DESC LIMIT 1;

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
                        AND NOT (o.spare_backfills AND e.backfill_id IS NOT NULL) OFFSET 0)
    RETURNING o.tenant_id
)
UPDATE running_counts c SET cancelling = c.cancelling - 1 FROM done d WHERE c.tenant_id = d.tenant_id;

-- name: ListSuspendedTenants :many
-- Cross-tenant: maintenance. Tenants that are suspended or being deleted and of
-- which something waits, or runs and is not asked to end.
SELECT t.id FROM tenants t
WHERE t.status IN ('suspended', 'deleting')
  AND EXISTS (SELECT 1 FROM active_executions e WHERE e.tenant_id = t.id AND (e.status IN ('pending', 'retrying') OR e.cancel_requested_at IS NULL) OFFSET 0)
ORDER BY random() LIMIT @batch_size;

-- name: CancelPieceOfTenant :one
-- CancelPieceOfJob for everything of a tenant, for as long as it is suspended.
WITH piece AS MATERIALIZED (
    SELECT e.id, e.scheduled_at, e.status FROM active_executions e
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
-- The join is what has cancel_waiting called.
cancelled AS MATERIALIZED (
    SELECT cancel_waiting(ARRAY(SELECT p.id FROM piece p), @reason::text, @cancelled_by::text, now()) AS executions
)
SELECT p.scheduled_at, p.id, (count(*) OVER ())::int AS executions FROM piece p CROSS JOIN cancelled ORDER BY p.scheduled_at DESC, p.id DESC LIMIT 1;

-- name: FindPieceOfTenant :one
-- FindPieceOfJob for everything of a tenant.
SELECT e.scheduled_at, e.id FROM active_executions e
WHERE e.tenant_id = @tenant_id AND (e.scheduled_at, e.id) > (@after_at::timestamptz, @after_id::uuid)
  AND (e.status IN ('pending', 'retrying') OR e.cancel_requested_at IS NULL)
ORDER BY e.scheduled_at, e.id LIMIT 1;

-- name: TakeCancelTurn :one
-- Cross-tenant: maintenance. True for one transaction at a time.
SELECT pg_try_advisory_xact_lock(hashtext('cancellations'), 0)::boolean AS mine;
