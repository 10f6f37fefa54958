-- name: InsertObjective :one
INSERT INTO objectives (id, tenant_id, name, kind, job_id, tag, threshold_ms, target, window_days, created_by, created_at)
VALUES (@id, @tenant_id, @name, @kind, sqlc.narg(job_id), sqlc.narg(tag), sqlc.narg(threshold_ms), @target, @window_days, @created_by, now())
RETURNING created_at;

-- name: CountObjectives :one
SELECT count(*) FROM objectives WHERE tenant_id = @tenant_id;

-- name: HasJob :one
SELECT EXISTS (SELECT 1 FROM job_definitions WHERE tenant_id = @tenant_id AND id = @id AND deleted_at IS NULL)::boolean AS has;

-- name: ListObjectives :many
-- All of a tenant, or the one with an id, with what is counted of their windows: whole hours of
-- the window's days, and whole five minutes of the last hour and of the last six. Reads at
-- most 744 and 73 counts of each.
SELECT o.id, o.name, o.kind, o.job_id, o.tag, o.threshold_ms, o.target, o.window_days, o.created_by, o.created_at, o.version,
       coalesce(o.updated_at, o.created_at)::timestamptz AS updated_at,
       greatest(o.created_at, date_bin('1 hour', t.at - make_interval(days => o.window_days), '2000-01-01 00:00:00+00'))::timestamptz AS from_at,
       greatest(o.created_at, c.read_to)::timestamptz AS counted_to,
       coalesce(w.good, 0)::bigint AS good, coalesce(w.bad, 0)::bigint AS bad,
       coalesce(r.good, 0)::bigint AS good_hour, coalesce(r.bad, 0)::bigint AS bad_hour,
       coalesce(r.good_six, 0)::bigint AS good_six, coalesce(r.bad_six, 0)::bigint AS bad_six
FROM objectives o CROSS JOIN objective_cursor c CROSS JOIN (SELECT coalesce(sqlc.narg(now)::timestamptz, now()) AS at) t
LEFT JOIN LATERAL (
    SELECT sum(n.good) AS good, sum(n.bad) AS bad FROM objective_counts n
    WHERE n.tenant_id = @tenant_id AND n.objective_id = o.id AND n.span = 1
      AND n.at >= date_bin('1 hour', t.at - make_interval(days => o.window_days), '2000-01-01 00:00:00+00')) w ON true
LEFT JOIN LATERAL (
    SELECT sum(n.good) FILTER (WHERE n.at >= date_bin('5 minutes', t.at - interval '1 hour', '2000-01-01 00:00:00+00')) AS good,
           sum(n.bad) FILTER (WHERE n.at >= date_bin('5 minutes', t.at - interval '1 hour', '2000-01-01 00:00:00+00')) AS bad,
           sum(n.good) AS good_six, sum(n.bad) AS bad_six FROM objective_counts n
    WHERE n.tenant_id = @tenant_id AND n.objective_id = o.id AND n.span = 0
      AND n.at >= date_bin('5 minutes', t.at - interval '6 hours', '2000-01-01 00:00:00+00')) r ON true
WHERE o.tenant_id = @tenant_id AND (sqlc.narg(id)::uuid IS NULL OR o.id = sqlc.narg(id)::uuid)
ORDER BY o.created_at DESC, o.id DESC;

-- name: LockObjective :execrows
-- One change of an objective waits for another, which it may have to refuse.
SELECT 1 FROM objectives WHERE tenant_id = @tenant_id AND id = @id FOR UPDATE;

-- name: UpdateObjective :exec
-- Its counts stay.
UPDATE objectives SET name = @name, target = @target, window_days = @window_days, version = version + 1, updated_at = @now::timestamptz
WHERE tenant_id = @tenant_id AND id = @id;

-- name: DeleteObjective :execrows
-- Its counts go with it.
DELETE FROM objectives WHERE tenant_id = @tenant_id AND id = @id;

-- name: HasObjectives :one
-- Cross-tenant: the pass that counts for objectives.
SELECT EXISTS (SELECT 1 FROM objectives)::boolean AS has;

-- name: LockObjectiveCursor :one
-- Cross-tenant: the pass that counts for objectives. Held until an interval is counted, so that
-- nothing counts twice. Nothing before the first objective is read.
SELECT greatest(c.read_to, (SELECT min(o.created_at) FROM objectives o))::timestamptz AS read_to FROM objective_cursor c FOR UPDATE OF c;

-- name: MoveObjectiveCursor :exec
-- Cross-tenant: the pass that counts for objectives, which holds the row locked.
UPDATE objective_cursor SET read_to = @read_to::timestamptz;

-- name: FindObjectiveIntervalEnd :one
-- Cross-tenant: the pass that counts for objectives. The time up to which so many executions ended
-- after another one, or so many pairs of one with an objective of its tenant; to_at where there are
-- fewer. Those that share a time are not torn apart. Walks job_executions_completed.
WITH weights AS MATERIALIZED (SELECT o.tenant_id, count(*) AS n FROM objectives o GROUP BY o.tenant_id),
page AS (
    SELECT e.completed_at, e.tenant_id FROM job_executions e
    WHERE e.completed_at > @from_at::timestamptz AND e.completed_at <= @to_at::timestamptz
    ORDER BY e.completed_at LIMIT @most::int
),
running AS (
    SELECT p.completed_at, count(p.tenant_id) OVER (ORDER BY p.completed_at) AS executions, sum(coalesce(w.n, 0)) OVER (ORDER BY p.completed_at) AS pairs
    FROM page p LEFT JOIN weights w ON w.tenant_id = p.tenant_id
)
SELECT coalesce((SELECT min(s.completed_at) FROM running s WHERE s.executions > @rows::int OR s.pairs > @pairs::int), @to_at)::timestamptz AS at;

-- name: AddObjectiveCounts :exec
-- Cross-tenant: the pass that counts for objectives. Adds what ended in an interval; walks
-- job_executions_completed. Of success count executions that completed or failed; of onTime
-- scheduled ones that started, and scheduled times that were missed, unless somebody had
-- paused the job. Tags are compared once for each job, not for each execution.
WITH ended AS MATERIALIZED (
    SELECT e.tenant_id, e.job_id, e.status, e.completed_at, coalesce(e.missed_count, 1) AS n,
           e.trigger_type = 'scheduled' AND (e.started_at IS NOT NULL OR e.status = 'missed' AND e.reason NOT LIKE 'due while the job was paused%') AS timed,
           e.started_at - e.scheduled_at AS late
    FROM job_executions e
    WHERE e.completed_at > @from_at::timestamptz AND e.completed_at <= @to_at::timestamptz
      AND e.tenant_id = ANY (ARRAY(SELECT DISTINCT o.tenant_id FROM objectives o))
),
concerned AS MATERIALIZED (
    SELECT o.id, k.tenant_id, k.job_id, o.kind, o.threshold_ms, o.created_at
    FROM (SELECT DISTINCT e.tenant_id, e.job_id FROM ended e) k
    JOIN objectives o ON o.tenant_id = k.tenant_id
    LEFT JOIN job_definitions j ON j.id = k.job_id AND j.tenant_id = k.tenant_id
    WHERE o.job_id = k.job_id OR j.tags @> ARRAY[o.tag]
),
judged AS (
    SELECT o.id, o.tenant_id, e.completed_at, e.n,
           CASE o.kind WHEN 'success' THEN e.status = 'completed'
                ELSE e.status <> 'missed' AND e.late <= o.threshold_ms * interval '1 millisecond' END AS good
    FROM concerned o JOIN ended e ON e.tenant_id = o.tenant_id AND e.job_id = o.job_id AND e.completed_at > o.created_at
    WHERE CASE o.kind WHEN 'success' THEN e.status IN ('completed', 'failed') ELSE e.timed END
)
INSERT INTO objective_counts AS c (objective_id, tenant_id, span, at, good, bad)
SELECT j.id, j.tenant_id, s.span, date_bin(s.length, j.completed_at, '2000-01-01 00:00:00+00'),
       coalesce(sum(j.n) FILTER (WHERE j.good), 0), coalesce(sum(j.n) FILTER (WHERE NOT j.good), 0)
FROM judged j CROSS JOIN (VALUES (0::smallint, interval '5 minutes'), (1::smallint, interval '1 hour')) s (span, length)
GROUP BY 1, 2, 3, 4
ORDER BY 1, 3, 4
ON CONFLICT (objective_id, span, at) DO UPDATE SET good = c.good + EXCLUDED.good, bad = c.bad + EXCLUDED.bad;

-- name: MeasureObjectives :one
-- Cross-tenant: the pass that counts for objectives. How many burn their budgets fast and slowly,
-- by burn rates over one hour and over six, and how many have none left.
SELECT coalesce(sum((r.bad > b.fast * (1 - o.target) * (r.good + r.bad))::int), 0)::bigint AS fast,
       coalesce(sum((r.bad_six > b.slow * (1 - o.target) * (r.good_six + r.bad_six))::int), 0)::bigint AS slow,
       coalesce(sum((w.bad > 0 AND w.bad >= (1 - o.target) * (w.good + w.bad))::int), 0)::bigint AS exhausted
FROM objectives o CROSS JOIN (SELECT @fast::float8 AS fast, @slow::float8 AS slow) b
LEFT JOIN LATERAL (
    SELECT sum(n.good) AS good, sum(n.bad) AS bad FROM objective_counts n
    WHERE n.objective_id = o.id AND n.span = 1 AND n.at >= date_bin('1 hour', now() - make_interval(days => o.window_days), '2000-01-01 00:00:00+00')) w ON true
LEFT JOIN LATERAL (
    SELECT sum(n.good) FILTER (WHERE n.at >= date_bin('5 minutes', now() - interval '1 hour', '2000-01-01 00:00:00+00')) AS good,
           sum(n.bad) FILTER (WHERE n.at >= date_bin('5 minutes', now() - interval '1 hour', '2000-01-01 00:00:00+00')) AS bad,
           sum(n.good) AS good_six, sum(n.bad) AS bad_six FROM objective_counts n
    WHERE n.objective_id = o.id AND n.span = 0 AND n.at >= date_bin('5 minutes', now() - interval '6 hours', '2000-01-01 00:00:00+00')) r ON true;

-- name: DeleteOldObjectiveCounts :exec
-- Cross-tenant: the pass that counts for objectives. Five minutes are kept for a little longer than
-- burn rates need them, hours a little longer than the longest window.
DELETE FROM objective_counts WHERE span = 0 AND at < now() - interval '7 hours' OR span = 1 AND at < now() - interval '32 days';

-- name: PurgeObjectiveCounts :execrows
DELETE FROM objective_counts n WHERE n.tenant_id = @tenant_id AND (n.objective_id, n.span, n.at) IN (
    SELECT o.objective_id, o.span, o.at FROM objective_counts o WHERE o.tenant_id = @tenant_id LIMIT 1000);

-- name: PurgeObjectives :execrows
DELETE FROM objectives WHERE tenant_id = @tenant_id;
