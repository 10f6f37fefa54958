-- name: GetRolledSpan :one
-- Which outcomes the roll-ups hold: those after rolled_from (where it is NULL, all)
-- and up to rolled_to.
SELECT rolled_from, rolled_to FROM rollup_cursor;

-- name: ListRollups :many
-- A tenant's roll-ups of some parts: the weeks of a range, the days before and
-- after those, and the hours before and after these. Each is one range of the
-- primary key for each part.
SELECT o.part, o.span, o.at, o.cells FROM outcome_rollups o
WHERE o.tenant_id = @tenant_id AND o.part = ANY (@parts::smallint[]) AND o.span = 2
  AND o.at >= @first_week::timestamptz AND o.at < @last_week::timestamptz
UNION ALL
SELECT o.part, o.span, o.at, o.cells FROM outcome_rollups o
WHERE o.tenant_id = @tenant_id AND o.part = ANY (@parts::smallint[]) AND o.span = 1
  AND o.at >= @first_day::timestamptz AND o.at < @first_week::timestamptz
UNION ALL
SELECT o.part, o.span, o.at, o.cells FROM outcome_rollups o
WHERE o.tenant_id = @tenant_id AND o.part = ANY (@parts::smallint[]) AND o.span = 1
  AND o.at >= @last_week::timestamptz AND o.at < @last_day::timestamptz
UNION ALL
SELECT o.part, o.span, o.at, o.cells FROM outcome_rollups o
WHERE o.tenant_id = @tenant_id AND o.part = ANY (@parts::smallint[]) AND o.span = 0
  AND o.at >= @first_hour::timestamptz AND o.at < @first_day::timestamptz
UNION ALL
SELECT o.part, o.span, o.at, o.cells FROM outcome_rollups o
WHERE o.tenant_id = @tenant_id AND o.part = ANY (@parts::smallint[]) AND o.span = 0
  AND o.at >= @last_day::timestamptz AND o.at < @last_hour::timestamptz;

-- name: MeasureRollups :one
-- How many bytes ListRollups would answer, without reading them.
SELECT coalesce(sum(l.bytes), 0)::bigint AS bytes FROM (
    SELECT octet_length(o.cells) AS bytes FROM outcome_rollups o
    WHERE o.tenant_id = @tenant_id AND o.part = ANY (@parts::smallint[]) AND o.span = 2
      AND o.at >= @first_week::timestamptz AND o.at < @last_week::timestamptz
    UNION ALL
    SELECT octet_length(o.cells) FROM outcome_rollups o
    WHERE o.tenant_id = @tenant_id AND o.part = ANY (@parts::smallint[]) AND o.span = 1
      AND (o.at >= @first_day::timestamptz AND o.at < @first_week::timestamptz OR o.at >= @last_week::timestamptz AND o.at < @last_day::timestamptz)
    UNION ALL
    SELECT octet_length(o.cells) FROM outcome_rollups o
    WHERE o.tenant_id = @tenant_id AND o.part = ANY (@parts::smallint[]) AND o.span = 0
      AND (o.at >= @first_hour::timestamptz AND o.at < @first_day::timestamptz OR o.at >= @last_day::timestamptz AND o.at < @last_hour::timestamptz)
    UNION ALL
    SELECT octet_length(d.cells) FROM outcome_deltas d WHERE d.tenant_id = @tenant_id AND d.at >= @first_hour AND d.at < @last_hour
) l;

-- name: ListOutcomeDeltas :many
-- A tenant's outcomes that are counted and not folded into its roll-ups yet, by hours;
-- walks the key.
SELECT d.at, d.cells FROM outcome_deltas d
WHERE d.tenant_id = @tenant_id AND d.at >= @from_at::timestamptz AND d.at < @to_at::timestamptz;

-- name: FindIntervalEnd :one
-- Cross-tenant: the collector of metrics. The time up to which about so many
-- outcomes ended after another one, or to_at where there are fewer. Those that
-- share a time are not torn apart. Walks job_executions_completed.
SELECT coalesce((SELECT e.completed_at FROM job_executions e
        WHERE e.completed_at > @from_at::timestamptz AND e.completed_at <= @to_at::timestamptz
        ORDER BY e.completed_at OFFSET @rows::int LIMIT 1), @to_at)::timestamptz AS at;

-- name: FindIntervalStart :one
-- Cross-tenant: the collector of metrics. The same backwards: about so many
-- outcomes are after the answer and up to the given time. The answer is always before
-- that time, however many share it, so that each interval goes on. The year 1 stands
-- for the beginning.
SELECT coalesce((SELECT e.completed_at FROM job_executions e WHERE e.completed_at < @to_at::timestamptz
        ORDER BY e.completed_at DESC OFFSET @rows::int LIMIT 1), '0001-01-01 00:00:00+00')::timestamptz AS at;

-- name: ListOutcomeCells :many
-- Cross-tenant: the collector of metrics. Executions that ended in an interval, by
-- tenant, job and quarter of an hour of scheduled_at; walks
-- job_executions_completed. For the buckets see SummarizeOutcomes.
SELECT h.tenant_id, h.job_id, date_bin('15 minutes', h.scheduled_at, '2000-01-01 00:00:00+00')::timestamptz AS at, h.job_type, h.trigger_type, h.status,
       (CASE WHEN coalesce(h.duration_us, h.duration_ms) IS NULL OR h.status NOT IN ('completed', 'failed') THEN -1
             WHEN coalesce(h.duration_us / 1000, h.duration_ms) < 1 THEN 0
             ELSE floor(ln(coalesce(h.duration_us / 1000, h.duration_ms)) * 20)::int + 1 END)::int AS bucket,
       count(*) AS rows, count(*) FILTER (WHERE h.attempt > 1) AS retried, (coalesce(sum(coalesce(h.duration_us, h.duration_ms * 1000)), 0) / 1000)::bigint AS duration_ms
FROM job_executions h
WHERE h.completed_at > @from_at::timestamptz AND h.completed_at <= @to_at::timestamptz
GROUP BY 1, 2, 3, 4, 5, 6, 7;

-- name: InsertOutcomeDeltas :exec
-- Cross-tenant: the collector of metrics. Nothing of a tenant that is being
-- deleted, because its rows may have been purged a moment ago.
WITH fresh AS (
    INSERT INTO outcome_deltas (tenant_id, at, outcomes, cells)
    SELECT u.tenant_id, u.at, u.outcomes, u.cells
    FROM (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ats::timestamptz[]) AS at,
                 unnest(@outcomes::bigint[]) AS outcomes, unnest(@cells::bytea[]) AS cells) u
    WHERE NOT EXISTS (SELECT FROM tenants t WHERE t.id = u.tenant_id AND t.status IN ('deleting', 'deleted'))
    RETURNING tenant_id, outcomes
)
INSERT INTO fold_backlogs AS b (tenant_id, rows, outcomes, since)
SELECT f.tenant_id, count(*), sum(f.outcomes)::bigint, now() FROM fresh f GROUP BY f.tenant_id ORDER BY f.tenant_id
ON CONFLICT (tenant_id) DO UPDATE SET rows = b.rows + EXCLUDED.rows, outcomes = b.outcomes + EXCLUDED.outcomes,
    since = CASE WHEN b.rows = 0 THEN EXCLUDED.since ELSE b.since END;

-- name: ClaimFold :one
-- Cross-tenant: the process that folds. The tenant that has waited longest among those with
-- enough to fold, but for some and for those that somebody else folds. Enough is a
-- quarter of what the roll-ups hold, at some 24 bytes for each, within bounds, so that what a fold
-- rewrites is a small multiple of what it adds. The lock is an advisory one, so that the
-- collector goes on to add to the row.
SELECT d.tenant_id FROM (
    SELECT b.tenant_id FROM fold_backlogs b
    WHERE b.rows > 0 AND NOT b.tenant_id = ANY (@but::uuid[])
      AND (b.outcomes >= greatest(20000, least(400000, b.folded / 96)) OR b.rows >= 1000
           OR b.since < coalesce(sqlc.narg(now)::timestamptz, now()) - interval '6 hours')
    ORDER BY b.since, b.tenant_id LIMIT 100
) d WHERE pg_try_advisory_xact_lock(hashtext('outcome_deltas'), hashtext(d.tenant_id::text)) LIMIT 1;

-- name: ShareRolledSpan :one
-- By the process that folds: a collector of the version before, which writes roll-ups itself,
-- holds this row for as long.
SELECT one FROM rollup_cursor FOR SHARE;

-- name: TakeOutcomeDeltas :many
-- By the process that folds and holds the tenant's lock: at most so many bytes, and one row at
-- least, those of the oldest hours first. The last row is found first: a join of the rows
-- with their sums is quadratic where statistics say that the table has one row.
DELETE FROM outcome_deltas d
WHERE d.tenant_id = @tenant_id AND (d.at, d.seq) <= (
    SELECT sized.at, sized.seq
    FROM (
        SELECT s.at, s.seq, sum(octet_length(s.cells)) OVER (ORDER BY s.at, s.seq) - octet_length(s.cells) AS bytes_before
        FROM outcome_deltas s WHERE s.tenant_id = @tenant_id
    ) sized
    WHERE sized.bytes_before < @most_bytes::bigint
    ORDER BY sized.at DESC, sized.seq DESC
    LIMIT 1
)
RETURNING d.at, d.outcomes, d.cells;

-- name: SettleFold :exec
-- By the process that folded, at the end, so that the row is not locked for long.
UPDATE fold_backlogs b SET rows = greatest(0, b.rows - @rows::bigint), outcomes = greatest(0, b.outcomes - @outcomes::bigint), folded = @folded, since = now()
WHERE b.tenant_id = @tenant_id;

-- name: GetRollupsByKeys :many
-- By the process that folds, some roll-ups of one tenant.
SELECT o.part, o.span, o.at, o.cells
FROM (SELECT unnest(@parts::smallint[]) AS part, unnest(@spans::smallint[]) AS span, unnest(@ats::timestamptz[]) AS at) k
JOIN outcome_rollups o ON o.tenant_id = @tenant_id AND o.part = k.part AND o.span = k.span AND o.at = k.at;

-- name: UpsertRollups :exec
-- By the process that folds, those of one tenant: nothing where it is being deleted, because
-- its roll-ups may have been purged a moment ago.
INSERT INTO outcome_rollups (tenant_id, part, span, at, cells)
SELECT @tenant_id, u.part, u.span, u.at, u.cells
FROM (SELECT unnest(@parts::smallint[]) AS part, unnest(@spans::smallint[]) AS span, unnest(@ats::timestamptz[]) AS at, unnest(@cells::bytea[]) AS cells) u
WHERE NOT EXISTS (SELECT FROM tenants t WHERE t.id = @tenant_id AND t.status IN ('deleting', 'deleted'))
ON CONFLICT (tenant_id, part, span, at) DO UPDATE SET cells = EXCLUDED.cells;

-- name: LockRolledSpan :one
-- By the collector of metrics, after its cursor; a faster one may have moved it.
SELECT rolled_from, rolled_to FROM rollup_cursor FOR UPDATE;

-- name: MoveRolledSpan :exec
-- By the collector of metrics, who holds its cursor locked.
UPDATE rollup_cursor SET rolled_from = sqlc.narg(rolled_from)::timestamptz, rolled_to = @rolled_to::timestamptz;

-- name: DeleteOldRollups :execrows
-- Cross-tenant: retention. A bounded piece of those of months whose executions
-- are removed; walks outcome_rollups_age.
DELETE FROM outcome_rollups o USING (
    SELECT r.tenant_id, r.part, r.span, r.at FROM outcome_rollups r
    WHERE r.at AT TIME ZONE 'UTC' < timezone('UTC', @before::timestamptz) ORDER BY r.at AT TIME ZONE 'UTC' OFFSET @skipped LIMIT @batch_size
) old WHERE o.tenant_id = old.tenant_id AND o.part = old.part AND o.span = old.span AND o.at = old.at;

-- name: PurgeRollups :execrows
WITH backlog AS (DELETE FROM fold_backlogs b WHERE b.tenant_id = @tenant_id),
deltas AS (
    DELETE FROM outcome_deltas d USING (
        SELECT r.at, r.seq FROM outcome_deltas r WHERE r.tenant_id = @tenant_id LIMIT 1000
    ) old WHERE d.tenant_id = @tenant_id AND d.at = old.at AND d.seq = old.seq RETURNING 1
),
rollups AS (
    DELETE FROM outcome_rollups o USING (
        SELECT r.part, r.span, r.at FROM outcome_rollups r WHERE r.tenant_id = @tenant_id LIMIT 1000
    ) old WHERE o.tenant_id = @tenant_id AND o.part = old.part AND o.span = old.span AND o.at = old.at RETURNING 1
)
SELECT 1 FROM rollups UNION ALL SELECT 1 FROM deltas;
