-- name: ListDeadLetters :many
-- From the position of the last page. Walks dead_letters_list, or dead_letters_group where a
-- fingerprint is given; the other filters read up to what a tenant may have.
SELECT d.execution_id, d.job_id, d.error_type, d.error_message, d.fingerprint, d.failed_at, d.scheduled_at,
       coalesce((SELECT j.name FROM job_definitions j WHERE j.tenant_id = @tenant_id AND j.id = d.job_id), '')::text AS job_name
FROM dead_letters d
WHERE d.tenant_id = @tenant_id AND (d.failed_at, d.execution_id) < (@before_at::timestamptz, @before_id::uuid)
  AND d.failed_at >= @from_at::timestamptz AND d.failed_at < @to_at::timestamptz
  AND (sqlc.narg(fingerprint)::text IS NULL OR d.fingerprint = sqlc.narg(fingerprint)::text)
  AND (sqlc.narg(job_id)::uuid IS NULL OR d.job_id = sqlc.narg(job_id)::uuid)
  AND (sqlc.narg(error_types)::text[] IS NULL OR d.error_type = ANY (sqlc.narg(error_types)::text[]))
ORDER BY d.failed_at DESC, d.execution_id DESC LIMIT @page_size;

-- name: ListDeadLetterGroups :many
-- The largest groups first. Reads what fits of the tenant's dead letters, which have a cap.
WITH by_job AS (
    SELECT d.fingerprint, d.job_id, count(*) AS letters, min(d.failed_at) AS first_at, max(d.failed_at) AS last_at
    FROM dead_letters d
    WHERE d.tenant_id = @tenant_id AND d.failed_at >= @from_at::timestamptz AND d.failed_at < @to_at::timestamptz
      AND (sqlc.narg(fingerprint)::text IS NULL OR d.fingerprint = sqlc.narg(fingerprint)::text)
      AND (sqlc.narg(job_id)::uuid IS NULL OR d.job_id = sqlc.narg(job_id)::uuid)
      AND (sqlc.narg(error_types)::text[] IS NULL OR d.error_type = ANY (sqlc.narg(error_types)::text[]))
    GROUP BY d.fingerprint, d.job_id
),
grouped AS (
    SELECT b.fingerprint, sum(b.letters)::bigint AS letters, min(b.first_at) AS first_at, max(b.last_at) AS last_at, count(*) AS jobs,
           (array_agg(b.job_id ORDER BY b.letters DESC, b.job_id))[1:10] AS job_ids
    FROM by_job b GROUP BY b.fingerprint
    ORDER BY letters DESC, b.fingerprint LIMIT @page_size
)
SELECT g.fingerprint, g.letters, g.first_at::timestamptz AS first_at, g.last_at::timestamptz AS last_at, g.jobs, g.job_ids::uuid[] AS job_ids,
       e.execution_id, e.error_type, e.error_message
FROM grouped g CROSS JOIN LATERAL (
    SELECT n.execution_id, n.error_type, n.error_message FROM dead_letters n
    WHERE n.tenant_id = @tenant_id AND n.fingerprint = g.fingerprint ORDER BY n.failed_at DESC, n.execution_id DESC LIMIT 1) e
ORDER BY g.letters DESC, g.fingerprint;

-- name: GetDeadLetter :one
SELECT d.execution_id, d.job_id, d.error_type, d.error_message, d.fingerprint, d.failed_at, d.scheduled_at,
       coalesce((SELECT j.name FROM job_definitions j WHERE j.tenant_id = @tenant_id AND j.id = d.job_id), '')::text AS job_name
FROM dead_letters d WHERE d.tenant_id = @tenant_id AND d.execution_id = @id;

-- name: DeleteDeadLetter :execrows
-- By a replay, a retry or a discard. Of two at once the second waits and finds nothing.
DELETE FROM dead_letters WHERE tenant_id = @tenant_id AND execution_id = @id;

-- name: DiscardDeadLetters :execrows
-- A bounded piece of those that fit, the oldest first. Skips what somebody replays at this moment.
DELETE FROM dead_letters d WHERE d.tenant_id = @tenant_id AND d.execution_id = ANY (ARRAY(
    SELECT s.execution_id FROM dead_letters s
    WHERE s.tenant_id = @tenant_id AND s.failed_at >= @from_at::timestamptz AND s.failed_at < @to_at::timestamptz
      AND (sqlc.narg(fingerprint)::text IS NULL OR s.fingerprint = sqlc.narg(fingerprint)::text)
      AND (sqlc.narg(job_id)::uuid IS NULL OR s.job_id = sqlc.narg(job_id)::uuid)
      AND (sqlc.narg(error_types)::text[] IS NULL OR s.error_type = ANY (sqlc.narg(error_types)::text[]))
    ORDER BY s.failed_at, s.execution_id LIMIT @most FOR UPDATE SKIP LOCKED));

-- name: InsertDeadLetterDiscard :one
-- The trigger records it; see DeleteDeadLetterDiscard.
INSERT INTO dead_letter_discards (tenant_id, selected, discarded) VALUES (@tenant_id, @selected, @discarded) RETURNING id;

-- name: DeleteDeadLetterDiscard :exec
-- In the same transaction: the record is in the audit log.
DELETE FROM dead_letter_discards WHERE tenant_id = @tenant_id AND id = @id;

-- name: LockDeadLetterCursor :one
-- Cross-tenant: the pass that makes dead letters. Held until those of an interval are stored.
SELECT read_to FROM dead_letter_cursor FOR UPDATE;

-- name: MoveDeadLetterCursor :exec
-- Cross-tenant: the pass that makes dead letters, which holds the row locked.
UPDATE dead_letter_cursor SET read_to = @read_to::timestamptz;

-- name: FindFailedIntervalEnd :one
-- Cross-tenant: the pass that makes dead letters. The time up to which about so many
-- executions failed after another one, or to_at where there are fewer. Those that share a
-- time are not torn apart. Walks job_executions_failed.
SELECT coalesce((SELECT e.completed_at FROM job_executions e
        WHERE e.status = 'failed' AND e.completed_at > @from_at::timestamptz AND e.completed_at <= @to_at::timestamptz
        ORDER BY e.completed_at OFFSET @rows::int LIMIT 1), @to_at)::timestamptz AS at;

-- name: ListFailedExecutions :many
-- Cross-tenant: the pass that makes dead letters. Executions that failed in an interval and that
-- nobody retried meanwhile; walks job_executions_failed. Nothing of a tenant that is being deleted,
-- because its rows may have been purged a moment ago.
SELECT h.id, h.tenant_id, h.job_id, coalesce(h.error_type, '')::text AS error_type, left(coalesce(h.error_message, ''), 500)::text AS error_message,
       h.completed_at, h.scheduled_at
FROM job_executions h
WHERE h.status = 'failed' AND h.completed_at > @from_at::timestamptz AND h.completed_at <= @to_at::timestamptz
  AND NOT EXISTS (SELECT 1 FROM execution_retries r WHERE r.retry_of = h.id)
  AND NOT EXISTS (SELECT 1 FROM tenants t WHERE t.id = h.tenant_id AND t.status IN ('deleting', 'deleted'));

-- name: InsertDeadLetters :execrows
-- Cross-tenant: the pass that makes dead letters.
INSERT INTO dead_letters (execution_id, tenant_id, job_id, error_type, error_message, fingerprint, failed_at, scheduled_at)
SELECT unnest(@ids::uuid[]), unnest(@owners::uuid[]), unnest(@job_ids::uuid[]), unnest(@error_types::text[]), unnest(@error_messages::text[]),
       unnest(@fingerprints::text[]), unnest(@failed_ats::timestamptz[]), unnest(@scheduled_ats::timestamptz[])
ON CONFLICT (execution_id) DO NOTHING;

-- name: DeleteRetriedDeadLetters :execrows
-- Cross-tenant: the pass that counts dead letters. Those whose execution was retried while it was read
-- as failed: the retry found no dead letter to remove. Walks execution_retries_age.
DELETE FROM dead_letters d USING execution_retries r
WHERE r.created_at > @since::timestamptz AND d.execution_id = r.retry_of;

-- name: CountDeadLetters :many
-- Cross-tenant: the pass that counts dead letters. Reads all of them: 22 ms for 100,000.
SELECT d.tenant_id, count(*) AS letters FROM dead_letters d GROUP BY d.tenant_id;

-- name: TrimDeadLetters :execrows
-- By the pass that counts dead letters, of a tenant that has too many: its oldest, a bounded piece.
DELETE FROM dead_letters d WHERE d.tenant_id = @tenant_id AND d.execution_id = ANY (ARRAY(
    SELECT o.execution_id FROM dead_letters o WHERE o.tenant_id = @tenant_id
    ORDER BY o.failed_at, o.execution_id LIMIT @most FOR UPDATE SKIP LOCKED));

-- name: DeleteOldDeadLetters :execrows
-- Cross-tenant: retention. A bounded piece of those of months whose executions are removed;
-- walks dead_letters_age. Skips so many rows that cannot be deleted.
DELETE FROM dead_letters d WHERE d.execution_id = ANY (ARRAY(
    SELECT o.execution_id FROM dead_letters o WHERE o.scheduled_at < @before::timestamptz
    ORDER BY o.scheduled_at OFFSET @skipped LIMIT @batch_size));

-- name: PurgeDeadLetters :execrows
DELETE FROM dead_letters d WHERE d.tenant_id = @tenant_id AND d.execution_id = ANY (ARRAY(
    SELECT o.execution_id FROM dead_letters o WHERE o.tenant_id = @tenant_id LIMIT 1000));
