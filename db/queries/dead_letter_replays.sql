-- name: InsertDeadLetterReplay :one
-- Of dead letters up to now: none of a later failure belongs to it. total counts those that
-- fit; a tenant has a bounded number of them.
INSERT INTO dead_letter_replays (id, tenant_id, selected, job_id, error_types, fingerprint, from_at, to_at, rate_per_minute, no_secrets, status, after_at, after_id,
                                 total, next_at, requested_by, created_at)
SELECT @id, @tenant_id, @selected, sqlc.narg(job_id)::uuid, sqlc.narg(error_types)::text[], sqlc.narg(fingerprint)::text, @from_at::timestamptz, least(@to_at::timestamptz, @now::timestamptz),
       @rate_per_minute, @no_secrets, @status, '1970-01-01 00:00:00+00', '00000000-0000-0000-0000-000000000000',
       (SELECT count(*) FROM dead_letters d
        WHERE d.tenant_id = @tenant_id AND d.failed_at >= @from_at::timestamptz AND d.failed_at < least(@to_at::timestamptz, @now::timestamptz)
          AND (sqlc.narg(fingerprint)::text IS NULL OR d.fingerprint = sqlc.narg(fingerprint)::text)
          AND (sqlc.narg(job_id)::uuid IS NULL OR d.job_id = sqlc.narg(job_id)::uuid)
          AND (sqlc.narg(error_types)::text[] IS NULL OR d.error_type = ANY (sqlc.narg(error_types)::text[]))),
       @now::timestamptz, @requested_by, @now::timestamptz
RETURNING *;

-- name: CountActiveReplays :one
SELECT count(*) AS active, count(*) FILTER (WHERE selected = @selected) AS same
FROM dead_letter_replays WHERE tenant_id = @tenant_id AND status IN ('canary', 'running');

-- name: ListDeadLetterReplays :many
SELECT * FROM dead_letter_replays
WHERE tenant_id = @tenant_id AND (created_at, id) < (@before_created_at::timestamptz, @before_id::uuid)
ORDER BY created_at DESC, id DESC LIMIT @page_size;

-- name: GetDeadLetterReplay :one
SELECT * FROM dead_letter_replays WHERE tenant_id = @tenant_id AND id = @id;

-- name: CancelDeadLetterReplay :execrows
-- Waits for the step that is being made; nothing is replayed after it.
UPDATE dead_letter_replays SET status = 'cancelled', reason = '', finished_at = @now::timestamptz
WHERE tenant_id = @tenant_id AND id = @id AND status IN ('canary', 'running');

-- name: ListDueReplays :many
-- Cross-tenant: the pass that replays. Those whose next step is due, in turns of their tenants.
SELECT r.id, r.tenant_id FROM (
    SELECT d.id, d.tenant_id, d.next_at, row_number() OVER (PARTITION BY d.tenant_id ORDER BY d.next_at, d.id) AS turn
    FROM dead_letter_replays d
    WHERE d.status IN ('canary', 'running') AND d.next_at <= coalesce(sqlc.narg(now)::timestamptz, now())
      AND NOT EXISTS (SELECT 1 FROM tenants t WHERE t.id = d.tenant_id AND t.status <> 'active')
) r ORDER BY r.turn, r.next_at, r.id LIMIT @most;

-- name: LockDueReplay :one
-- By the pass that replays. No row where somebody else steps it, or it is not due any more.
SELECT * FROM dead_letter_replays
WHERE tenant_id = @tenant_id AND id = @id AND status IN ('canary', 'running') AND next_at <= @now::timestamptz
FOR NO KEY UPDATE SKIP LOCKED;

-- name: NextDeadLetter :one
-- By the pass that replays: the oldest that fits after the last one. Walks dead_letters_list, or
-- dead_letters_group where a fingerprint is given.
SELECT d.execution_id, d.failed_at FROM dead_letters d
WHERE d.tenant_id = @tenant_id AND (d.failed_at, d.execution_id) > (@after_at::timestamptz, @after_id::uuid)
  AND d.failed_at >= @from_at::timestamptz AND d.failed_at < @to_at::timestamptz
  AND (sqlc.narg(fingerprint)::text IS NULL OR d.fingerprint = sqlc.narg(fingerprint)::text)
  AND (sqlc.narg(job_id)::uuid IS NULL OR d.job_id = sqlc.narg(job_id)::uuid)
  AND (sqlc.narg(error_types)::text[] IS NULL OR d.error_type = ANY (sqlc.narg(error_types)::text[]))
ORDER BY d.failed_at, d.execution_id LIMIT 1;

-- name: StepDeadLetterReplay :exec
-- By the pass that replays, which holds the row locked.
UPDATE dead_letter_replays SET status = @status, reason = @reason, canary_id = coalesce(sqlc.narg(canary_id)::uuid, canary_id), after_at = @after_at, after_id = @after_id,
       replayed = replayed + @replayed::int, refused = refused + @refused::int,
       faults = CASE WHEN jsonb_array_length(faults) < 100 THEN faults || @faults::jsonb ELSE faults END,
       next_at = @next_at, finished_at = CASE WHEN @finished::boolean THEN @now::timestamptz END
WHERE tenant_id = @tenant_id AND id = @id;

-- name: DeleteOldDeadLetterReplays :execrows
-- Cross-tenant: retention. A bounded piece of those that ended before the oldest month that is
-- kept. Skips so many rows that cannot be deleted.
DELETE FROM dead_letter_replays d WHERE d.id = ANY (ARRAY(
    SELECT o.id FROM dead_letter_replays o WHERE o.finished_at < @before::timestamptz ORDER BY o.finished_at OFFSET @skipped LIMIT @batch_size));

-- name: PurgeDeadLetterReplays :execrows
DELETE FROM dead_letter_replays d WHERE d.tenant_id = @tenant_id AND d.id = ANY (ARRAY(
    SELECT o.id FROM dead_letter_replays o WHERE o.tenant_id = @tenant_id LIMIT 1000));
