-- name: InsertMonitor :one
INSERT INTO monitors (id, tenant_id, name, tags, cron_expression, timezone, interval_seconds, start_grace_seconds, completion_grace_seconds,
    max_runtime_seconds, min_runtime_seconds, alert_too_often, extend_on_log, failure_threshold, recovery_threshold, ping_key, created_by, created_at, updated_at)
VALUES (@id, @tenant_id, @name, @tags, sqlc.narg(cron_expression), @timezone, sqlc.narg(interval_seconds), @start_grace_seconds, @completion_grace_seconds,
    @max_runtime_seconds, @min_runtime_seconds, @alert_too_often, @extend_on_log, @failure_threshold, @recovery_threshold, @ping_key, @created_by,
    @now::timestamptz, @now::timestamptz)
RETURNING *;

-- name: CountMonitors :one
SELECT count(*) FROM monitors WHERE tenant_id = @tenant_id;

-- name: GetMonitor :one
SELECT * FROM monitors WHERE tenant_id = @tenant_id AND id = @id;

-- name: LockMonitor :one
-- Held while it is changed: pings wait meanwhile.
SELECT * FROM monitors WHERE tenant_id = @tenant_id AND id = @id FOR NO KEY UPDATE;

-- name: ListMonitors :many
-- Newest first; walks monitors_list.
SELECT * FROM monitors
WHERE tenant_id = @tenant_id AND (created_at, id) < (@before_created_at::timestamptz, @before_id::uuid)
  AND (sqlc.narg(tag)::text IS NULL OR sqlc.narg(tag)::text = ANY (tags))
  AND (sqlc.narg(status)::text IS NULL OR sqlc.narg(status)::text = CASE
        WHEN paused THEN 'paused' WHEN status <> 'ok' THEN status WHEN running_since IS NOT NULL THEN 'running'
        WHEN expected_at < now() THEN 'late' ELSE 'ok' END)
ORDER BY created_at DESC, id DESC LIMIT @page_size;

-- name: ListUpcomingMonitors :many
-- The schedules of a tenant's monitors that expect a run before a time, those that expect it first. It reads all
-- monitors of the tenant by monitors_list. A tenant has at most 10,000. An index by expected_at would cost every ping.
SELECT m.id, m.name, coalesce(m.cron_expression, '')::text AS cron_expression, m.timezone, coalesce(m.interval_seconds, 0)::int AS interval_seconds,
       coalesce(m.expected_at, '9999-01-01 00:00:00+00')::timestamptz AS expected_at
FROM monitors m
WHERE m.tenant_id = @tenant_id AND NOT m.paused AND m.expected_at < @to_at::timestamptz
ORDER BY m.expected_at, m.id LIMIT @most;

-- name: UpdateMonitor :one
-- For a row that the caller holds locked.
UPDATE monitors SET name = @name, tags = @tags, cron_expression = sqlc.narg(cron_expression), timezone = @timezone, interval_seconds = sqlc.narg(interval_seconds),
    start_grace_seconds = @start_grace_seconds, completion_grace_seconds = @completion_grace_seconds, max_runtime_seconds = @max_runtime_seconds,
    min_runtime_seconds = @min_runtime_seconds, alert_too_often = @alert_too_often, extend_on_log = @extend_on_log,
    failure_threshold = @failure_threshold, recovery_threshold = @recovery_threshold, paused = @paused, ping_key = @ping_key,
    version = version + 1, updated_at = @now::timestamptz,
    status = @status, expected_at = sqlc.narg(expected_at), running_since = sqlc.narg(running_since), deadline = sqlc.narg(deadline), state = @state
WHERE tenant_id = @tenant_id AND id = @id RETURNING *;

-- name: DeleteMonitor :execrows
-- Its runs go with it.
DELETE FROM monitors WHERE tenant_id = @tenant_id AND id = @id;

-- name: ListMonitorRuns :many
-- Newest first, of the 1,000 of a monitor that are kept.
SELECT * FROM monitor_runs WHERE tenant_id = @tenant_id AND monitor_id = @monitor_id AND n < @before_n ORDER BY n DESC LIMIT @page_size;

-- name: CountMonitorRuns :many
-- The finished ones of a tenant and a range, by quarter of an hour: hours and days of every zone's clock begin with one. It reads
-- the newest rows alone, as many as it may; walks monitor_runs_times.
WITH newest AS (
    SELECT r.at, r.outcome, r.reason FROM monitor_runs r
    WHERE r.tenant_id = @tenant_id AND r.at >= @from_at::timestamptz AND r.at < @to_at::timestamptz ORDER BY r.at DESC LIMIT @most
)
SELECT date_bin('15 minutes', n.at, '2000-01-01 00:00:00+00')::timestamptz AS quarter, min(n.at)::timestamptz AS first_at, count(*) AS read_rows,
       count(*) FILTER (WHERE n.outcome NOT IN ('running', 'logged')) AS runs,
       count(*) FILTER (WHERE n.outcome NOT IN ('running', 'logged') AND n.reason NOT IN ('', 'outage')) AS failed
FROM newest n GROUP BY 1 ORDER BY 1;

-- name: LockMonitorsByKeys :many
-- Cross-tenant: pings, which name their monitor by its key alone. In id order, so that no two statements
-- wait for one another. A tenant that is being deleted has none any more.
SELECT m.* FROM monitors m JOIN tenants t ON t.id = m.tenant_id
WHERE m.ping_key = ANY (@keys::text[]) AND t.status NOT IN ('deleting', 'deleted')
ORDER BY m.id FOR NO KEY UPDATE OF m;

-- name: FindOpenMonitorRuns :many
-- Cross-tenant: pings that end another run than the last one, of monitors that they hold locked.
SELECT r.monitor_id, r.n, r.run_id, r.started_at FROM monitor_runs r
JOIN (SELECT unnest(@monitor_ids::uuid[]) AS monitor_id, unnest(@run_ids::text[]) AS run_id) w ON w.monitor_id = r.monitor_id AND w.run_id = r.run_id
WHERE r.ended_at IS NULL AND r.started_at IS NOT NULL ORDER BY r.n;

-- name: UpdateMonitorStates :exec
-- Cross-tenant: pings and the pass that finds out who is late, for rows that they hold locked.
UPDATE monitors m SET status = u.status, expected_at = nullif(u.expected_at, '9999-01-01 00:00:00+00'), running_since = nullif(u.running_since, '9999-01-01 00:00:00+00'),
    deadline = nullif(u.deadline, '9999-01-01 00:00:00+00'), state = u.state
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@statuses::text[]) AS status, unnest(@expected_ats::timestamptz[]) AS expected_at,
             unnest(@running_sinces::timestamptz[]) AS running_since, unnest(@deadlines::timestamptz[]) AS deadline, unnest(@states::jsonb[]) AS state) u
WHERE m.id = u.id;

-- name: UpsertMonitorRuns :exec
-- Cross-tenant: pings and the pass that finds out who is late, for monitors that they hold locked. Adds to what is
-- stored of a run, or takes the place of one that is 1,000 older.
INSERT INTO monitor_runs AS r (monitor_id, place, n, tenant_id, at, expected_at, started_at, ended_at, outcome, reason, exit_code, run_id, log)
SELECT u.monitor_id, (u.n % 1000)::smallint, u.n, u.tenant_id, u.at, nullif(u.expected_at, '9999-01-01 00:00:00+00'), nullif(u.started_at, '9999-01-01 00:00:00+00'),
       nullif(u.ended_at, '9999-01-01 00:00:00+00'), u.outcome, u.reason, nullif(u.exit_code, -1)::smallint, u.run_id, u.log
FROM (SELECT unnest(@monitor_ids::uuid[]) AS monitor_id, unnest(@ns::bigint[]) AS n, unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ats::timestamptz[]) AS at,
             unnest(@expected_ats::timestamptz[]) AS expected_at, unnest(@started_ats::timestamptz[]) AS started_at, unnest(@ended_ats::timestamptz[]) AS ended_at,
             unnest(@outcomes::text[]) AS outcome, unnest(@reasons::text[]) AS reason, unnest(@exit_codes::int[]) AS exit_code,
             unnest(@run_ids::text[]) AS run_id, unnest(@logs::text[]) AS log) u
ON CONFLICT (monitor_id, place) DO UPDATE SET n = excluded.n, at = CASE WHEN r.n = excluded.n THEN r.at ELSE excluded.at END,
    expected_at = CASE WHEN r.n = excluded.n THEN coalesce(r.expected_at, excluded.expected_at) ELSE excluded.expected_at END,
    started_at = excluded.started_at, ended_at = excluded.ended_at, outcome = excluded.outcome, reason = excluded.reason,
    exit_code = excluded.exit_code, run_id = excluded.run_id,
    log = CASE WHEN r.n = excluded.n THEN right(r.log || excluded.log, 10000) ELSE excluded.log END
WHERE r.n <= excluded.n;

-- name: InsertMonitorEvents :exec
-- Cross-tenant: pings and the pass that finds out who is late, for monitors that they hold locked.
INSERT INTO monitor_events (id, tenant_id, at, tags, event)
SELECT u.id, m.tenant_id, u.at, m.tags, u.event
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@monitor_ids::uuid[]) AS monitor_id, unnest(@ats::timestamptz[]) AS at, unnest(@events::jsonb[]) AS event) u
JOIN monitors m ON m.id = u.monitor_id ON CONFLICT DO NOTHING;

-- name: TouchMonitorIntake :one
-- Cross-tenant: the processes that take pings say that they can store them. Where none could for so long, where
-- one lost some (lost_from before lost_to), or where another gave no sign until it is taken for gone, that is a gap;
-- gaps within a minute are one.
WITH before AS (
    SELECT i.touched_at FROM monitor_intake i FOR NO KEY UPDATE
), gone AS (
    DELETE FROM monitor_takers t WHERE t.id <> @taker AND t.touched_at < now() - make_interval(secs => @gone_seconds::float8) RETURNING t.touched_at
), mine AS (
    INSERT INTO monitor_takers (id, name, touched_at) VALUES (@taker, @name, now()) ON CONFLICT (id) DO UPDATE SET touched_at = now()
), missed AS (
    SELECT g.touched_at AS from_at, now() AS to_at FROM gone g
    UNION ALL SELECT b.touched_at, now() AS to_at FROM before b WHERE b.touched_at < now() - make_interval(secs => @silence_seconds::float8)
    UNION ALL SELECT now() - make_interval(secs => @lost_from_seconds::float8), now() - make_interval(secs => @lost_to_seconds::float8)
    WHERE @lost_from_seconds::float8 > @lost_to_seconds::float8
), gap AS (
    SELECT min(m.from_at) AS from_at, max(m.to_at) AS to_at FROM missed m HAVING count(*) > 0
), extended AS (
    UPDATE monitor_gaps g SET to_at = greatest(g.to_at, p.to_at) FROM gap p
    WHERE g.from_at = (SELECT l.from_at FROM monitor_gaps l ORDER BY l.to_at DESC LIMIT 1) AND g.from_at <= p.from_at AND g.to_at >= p.from_at - interval '1 minute'
    RETURNING 1
), added AS (
    INSERT INTO monitor_gaps (from_at, to_at) SELECT p.from_at, p.to_at FROM gap p WHERE NOT EXISTS (SELECT 1 FROM extended)
    ON CONFLICT (from_at) DO UPDATE SET to_at = greatest(monitor_gaps.to_at, excluded.to_at)
), touched AS (
    UPDATE monitor_intake SET touched_at = now() FROM before b WHERE b.touched_at NOT BETWEEN now() - interval '1 second' AND now()
)
SELECT EXISTS (SELECT 1 FROM monitors m WHERE m.deadline IS NOT NULL)::boolean AS watched, (SELECT count(*) FROM gone)::int AS gone;

-- name: EndMonitorTaker :exec
-- Cross-tenant: a process that takes no pings any more because it was told to end.
DELETE FROM monitor_takers t WHERE t.id = @taker;

-- name: GetMonitorFront :one
-- Cross-tenant: the processes that take pings, before one of their own goes out and comes in by the public address.
SELECT f.ping_key, coalesce(extract(epoch FROM now() - f.touched_at), 1e9)::float8 AS silent_seconds FROM monitor_front f;

-- name: TouchMonitorFront :execrows
-- Cross-tenant: a ping of our own came in by the public address. Where none did for so long, that is a gap; where none did for
-- longer than alerts are held back, they were told, and it is none.
WITH before AS (
    SELECT f.touched_at FROM monitor_front f WHERE f.ping_key = @ping_key FOR NO KEY UPDATE
), added AS (
    INSERT INTO monitor_gaps (from_at, to_at) SELECT b.touched_at, now() FROM before b
    WHERE b.touched_at < now() - make_interval(secs => @silence_seconds::float8) AND b.touched_at > now() - make_interval(secs => @held_seconds::float8)
    ON CONFLICT (from_at) DO UPDATE SET to_at = greatest(monitor_gaps.to_at, excluded.to_at)
)
UPDATE monitor_front f SET touched_at = now() FROM before b WHERE f.ping_key = @ping_key;

-- name: GetMonitorIntake :one
-- Cross-tenant: the pass that finds out who is late.
SELECT i.touched_at, (extract(epoch FROM now() - i.touched_at))::float8 AS silent_seconds,
       coalesce(t.touched_at, i.touched_at)::timestamptz AS taker_at, coalesce(t.name, '')::text AS taker,
       coalesce((SELECT f.touched_at FROM monitor_front f WHERE f.touched_at > now() - make_interval(secs => @held_seconds::float8)), i.touched_at)::timestamptz AS front_at
FROM monitor_intake i LEFT JOIN LATERAL (SELECT k.touched_at, k.name FROM monitor_takers k ORDER BY k.touched_at LIMIT 1) t ON true;

-- name: ListDueMonitors :many
-- Cross-tenant: the pass that finds out who is late. In turns of the tenants, of the 20,000 that are due first. Walks
-- monitors_due.
WITH due AS (
    SELECT m.id, m.tenant_id, m.deadline FROM monitors m WHERE m.deadline <= @until::timestamptz ORDER BY m.deadline LIMIT 20000
), ranked AS (
    SELECT d.id, d.deadline, row_number() OVER (PARTITION BY d.tenant_id ORDER BY d.deadline, d.id) AS turn FROM due d
)
SELECT r.id FROM ranked r ORDER BY r.turn, r.deadline, r.id LIMIT @most::int;

-- name: LockDueMonitors :many
-- Cross-tenant: the pass that finds out who is late. Leaves out those that a ping holds: it moves their deadline.
SELECT m.* FROM monitors m WHERE m.id = ANY (@ids::uuid[]) AND m.deadline <= @until::timestamptz ORDER BY m.id FOR NO KEY UPDATE OF m SKIP LOCKED;

-- name: PutOffMonitor :exec
-- Cross-tenant: the pass that finds out who is late, of one that fails alone.
UPDATE monitors m SET deadline = now() + interval '1 minute' WHERE m.id = @id;

-- name: ListMonitorGaps :many
-- Cross-tenant: the pass that finds out who is late.
SELECT g.from_at, g.to_at FROM monitor_gaps g WHERE g.to_at >= @since::timestamptz ORDER BY g.to_at DESC LIMIT 10000;

-- name: ListMonitorEvents :many
-- Cross-tenant: the pass that tells what monitors found.
SELECT e.id FROM monitor_events e ORDER BY e.at, e.id LIMIT @most::int;

-- name: ReadMonitorEvents :many
-- Cross-tenant: the pass that tells what monitors found, which holds the cursor locked, so nobody else removes them.
SELECT e.* FROM monitor_events e WHERE e.id = ANY (@ids::uuid[]) ORDER BY e.at, e.id;

-- name: DeleteMonitorEvents :exec
-- Cross-tenant: the pass that tells what monitors found.
DELETE FROM monitor_events e WHERE e.id = ANY (@ids::uuid[]);

-- name: CountMonitorsByStatus :many
-- Cross-tenant: the service's gauges.
SELECT CASE WHEN m.paused THEN 'paused' WHEN m.status <> 'ok' THEN m.status WHEN m.running_since IS NOT NULL THEN 'running'
            WHEN m.expected_at < now() THEN 'late' ELSE 'ok' END::text AS status, count(*) AS monitors FROM monitors m GROUP BY 1;

-- name: DeleteOldMonitorRuns :execrows
-- Cross-tenant: retention. A bounded piece of what is too old; walks monitor_runs_age.
DELETE FROM monitor_runs r USING (
    SELECT o.monitor_id, o.place FROM monitor_runs o WHERE o.at < @before::timestamptz ORDER BY o.at OFFSET @skipped LIMIT @batch_size
) old WHERE r.monitor_id = old.monitor_id AND r.place = old.place AND r.at < @before::timestamptz;

-- name: DeleteOldMonitorGaps :execrows
-- Cross-tenant: retention. The longest time between two runs is a year.
DELETE FROM monitor_gaps g USING (
    SELECT o.from_at FROM monitor_gaps o WHERE o.to_at < @before::timestamptz ORDER BY o.to_at OFFSET @skipped LIMIT @batch_size
) old WHERE g.from_at = old.from_at;

-- name: PurgeMonitorRuns :execrows
DELETE FROM monitor_runs r USING (SELECT o.monitor_id, o.place FROM monitor_runs o WHERE o.tenant_id = @tenant_id LIMIT 1000) old
WHERE r.tenant_id = @tenant_id AND r.monitor_id = old.monitor_id AND r.place = old.place;

-- name: PurgeMonitorEvents :execrows
DELETE FROM monitor_events e WHERE e.tenant_id = @tenant_id;

-- name: PurgeMonitors :execrows
DELETE FROM monitors m USING (SELECT o.id FROM monitors o WHERE o.tenant_id = @tenant_id LIMIT 1000) old WHERE m.tenant_id = @tenant_id AND m.id = old.id;
