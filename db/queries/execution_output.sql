-- name: InsertExecutionOutput :exec
-- Cross-tenant: the worker. Fenced on (attempt, lease token): lines of an attempt that is no
-- longer the execution's are not stored. Inserting a chunk again is a no-op, so a statement
-- without an answer is repeated.
INSERT INTO execution_output (execution_id, attempt, last_line, tenant_id, lines, written_at)
SELECT w.id, w.attempt, w.last_line, e.tenant_id, w.lines, coalesce(sqlc.narg(now)::timestamptz, now())
FROM (SELECT unnest(@execution_ids::uuid[]) AS id, unnest(@attempts::int[]) AS attempt, unnest(@lease_tokens::uuid[]) AS lease_token,
             unnest(@last_lines::int[]) AS last_line, unnest(@lines::text[]) AS lines) w
JOIN active_executions e ON e.id = ANY (@execution_ids::uuid[]) AND e.id = w.id AND e.attempt = w.attempt AND e.lease_token = w.lease_token
ON CONFLICT DO NOTHING;

-- name: StoreProgress :exec
-- Cross-tenant: the worker. Fenced like InsertExecutionOutput. Skips executions that somebody
-- holds locked: the next report follows. It names no column of an index, so the update is HOT.
WITH reported AS (
    SELECT unnest(@execution_ids::uuid[]) AS id, unnest(@attempts::int[]) AS attempt, unnest(@lease_tokens::uuid[]) AS lease_token,
           unnest(@percents::int[]) AS percent, unnest(@messages::text[]) AS message
),
locked AS MATERIALIZED (
    SELECT e.id, e.tenant_id, r.percent, r.message
    FROM reported r CROSS JOIN LATERAL (
        SELECT a.id, a.tenant_id FROM active_executions a
        WHERE a.id = r.id AND a.attempt = r.attempt AND a.lease_token = r.lease_token
        FOR UPDATE SKIP LOCKED
    ) e
),
moved AS (
    UPDATE active_executions e SET progress = l.percent FROM locked l WHERE e.id = ANY (ARRAY(SELECT k.id FROM locked k)) AND e.id = l.id
)
INSERT INTO execution_progress (execution_id, tenant_id, message, begun_at)
SELECT l.id, l.tenant_id, l.message, coalesce(sqlc.narg(now)::timestamptz, now()) FROM locked l
ON CONFLICT (execution_id) DO UPDATE SET message = EXCLUDED.message WHERE execution_progress.message <> EXCLUDED.message;

-- name: ListExecutionOutput :many
-- Chunks of an execution after a line, in order, through the primary key.
SELECT o.attempt, o.last_line, o.lines FROM execution_output o
WHERE o.tenant_id = @tenant_id AND o.execution_id = @execution_id
  AND (o.attempt, o.last_line) > (@after_attempt::int, @after_line::int)
  AND (sqlc.narg(attempt)::int IS NULL OR o.attempt = sqlc.narg(attempt)::int)
ORDER BY o.attempt, o.last_line LIMIT @chunks;

-- name: DeleteOldOutput :execrows
-- Cross-tenant: retention. A batch of the oldest, of all tenants. Skips so many rows that
-- cannot be deleted.
DELETE FROM execution_output o
WHERE o.ctid = ANY (ARRAY(SELECT a.ctid FROM execution_output a WHERE a.written_at < @before
                          ORDER BY a.written_at OFFSET @skipped LIMIT @batch_size));

-- name: DeleteOldProgress :execrows
-- Cross-tenant: retention. As DeleteOldOutput.
DELETE FROM execution_progress p
WHERE p.execution_id = ANY (ARRAY(SELECT a.execution_id FROM execution_progress a WHERE a.begun_at < @before
                                  ORDER BY a.begun_at OFFSET @skipped LIMIT @batch_size));

-- name: PurgeOutput :execrows
DELETE FROM execution_output o WHERE o.tenant_id = @tenant_id AND o.ctid = ANY (ARRAY(
    SELECT a.ctid FROM execution_output a WHERE a.tenant_id = @tenant_id LIMIT 1000));

-- name: PurgeProgress :execrows
DELETE FROM execution_progress p WHERE p.tenant_id = @tenant_id AND p.execution_id = ANY (ARRAY(
    SELECT a.execution_id FROM execution_progress a WHERE a.tenant_id = @tenant_id LIMIT 1000));

-- name: ListFollowedOutput :many
-- Of each followed execution of a tenant whether it is active, and the chunks after a line, in
-- order. Without chunks it has one row. Both are of one snapshot, and output is stored before an
-- execution ends: of one that is not active all output is visible.
SELECT f.execution_id, EXISTS (SELECT 1 FROM active_executions e WHERE e.tenant_id = @tenant_id AND e.id = f.execution_id) AS active,
       coalesce(o.attempt, 0)::int AS attempt, coalesce(o.lines, '')::text AS lines
FROM (SELECT unnest(@execution_ids::uuid[])::uuid AS execution_id, unnest(@attempts::int[]) AS attempt, unnest(@last_lines::int[]) AS last_line) f
LEFT JOIN LATERAL (
    SELECT c.attempt, c.last_line, c.lines FROM execution_output c
    WHERE c.tenant_id = @tenant_id AND c.execution_id = f.execution_id AND (c.attempt, c.last_line) > (f.attempt, f.last_line)
    ORDER BY c.attempt, c.last_line LIMIT @chunks
) o ON true
ORDER BY f.execution_id, o.attempt, o.last_line;

-- name: LockWritingAttempt :many
-- An attempt outside our processes while it writes output: calls of one attempt follow each other. None
-- where it has ended.
SELECT e.id FROM active_executions e
WHERE e.tenant_id = @tenant_id AND e.id = @id AND e.status = 'running' AND e.attempt = @attempt AND e.lease_token = @lease_token
FOR NO KEY UPDATE;

-- name: ListOutputSizes :many
-- The chunks of an attempt in order, without their lines. gap: it says how many lines were dropped.
SELECT o.last_line, octet_length(o.lines)::int AS size, (substring(o.lines FROM 1 FOR 60) ~ '^\[\{"n":\d+,"at":-?\d+,"d":')::boolean AS gap
FROM execution_output o WHERE o.tenant_id = @tenant_id AND o.execution_id = @execution_id AND o.attempt = @attempt
ORDER BY o.last_line;

-- name: TakeOutput :many
DELETE FROM execution_output o
WHERE o.tenant_id = @tenant_id AND o.execution_id = @execution_id AND o.attempt = @attempt AND o.last_line = ANY (@last_lines::int[])
RETURNING o.lines;
