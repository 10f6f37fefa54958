-- name: ListDueDeadlines :many
-- Cross-tenant: the pass that finds what did not run in time. Jobs whose deadline has passed, in turns of the tenants
-- that want to be told; since is from when on. For each tenant it walks job_deadlines_due.
SELECT d.job_id, a.since
FROM (SELECT n.tenant_id, min(n.since)::timestamptz AS since FROM notifications n JOIN tenants t ON t.id = n.tenant_id
      WHERE n.enabled AND 'job.not_run_by' = ANY (n.events) AND t.status = 'active' GROUP BY n.tenant_id) a
CROSS JOIN LATERAL (
    SELECT o.job_id, o.check_at, row_number() OVER (ORDER BY o.check_at, o.job_id) AS turn FROM job_deadlines o
    WHERE o.tenant_id = a.tenant_id AND o.check_at <= @until::timestamptz ORDER BY o.check_at, o.job_id LIMIT @most
) d
ORDER BY d.turn, d.check_at, d.job_id LIMIT @most;

-- name: LockDeadlines :many
-- Cross-tenant: the pass that finds what did not run in time. It waits for no request that changes a job.
SELECT job_id FROM job_deadlines WHERE job_id = ANY (@job_ids::uuid[]) ORDER BY job_id FOR NO KEY UPDATE SKIP LOCKED;

-- name: CheckDeadlines :many
-- Cross-tenant: the pass that finds what did not run in time, for rows that it holds locked. Of each job: the
-- scheduled times whose deadline has passed since the last check and that were not completed by then, with the first of
-- them. One statement, so that an execution that moves to the history is in one of the two. It reads up to
-- so many records of a job (to_at is how far it came) and goes by active_executions_by_job and
-- job_executions_job. Not told are times before the job was last activated, and those that the
-- notification is too young for. A job that became inactive by itself, because its schedule is finished, is told of. A repeated execution counts with its repetition.
WITH asked AS MATERIALIZED (
    SELECT d.job_id, d.tenant_id, j.name, j.tags, j.status, j.complete_within_seconds * interval '1 second' AS within, j.next_execution_at,
           (j.status = 'active' OR j.status = 'inactive' AND j.status_by = 'system')::boolean AS watched,
           greatest(d.checked_to, CASE WHEN j.status = 'active' THEN j.status_at END, u.since - j.complete_within_seconds * interval '1 second')::timestamptz AS from_at,
           (sqlc.arg(until)::timestamptz - j.complete_within_seconds * interval '1 second')::timestamptz AS until_at
    FROM (SELECT unnest(@job_ids::uuid[]) AS job_id, unnest(@sinces::timestamptz[]) AS since) u
    JOIN job_deadlines d ON d.job_id = u.job_id
    JOIN scheduled_jobs j ON j.id = d.job_id AND j.deleted_at IS NULL AND j.complete_within_seconds IS NOT NULL
)
SELECT k.job_id, k.tenant_id, k.name, k.tags, k.watched, extract(epoch FROM k.within)::int AS within_seconds, e.to_at::timestamptz AS to_at,
       coalesce(late.times, 0)::bigint AS times, coalesce(late.first_id, '00000000-0000-0000-0000-000000000000')::uuid AS first_id,
       coalesce(late.first_at, '9999-01-01 00:00:00+00')::timestamptz AS first_at, coalesce(late.last_at, '9999-01-01 00:00:00+00')::timestamptz AS last_at,
       coalesce(late.first_status, '')::text AS first_status, coalesce(next.at, '9999-01-01 00:00:00+00')::timestamptz AS next_at
FROM asked k
CROSS JOIN LATERAL (SELECT greatest(k.from_at, least(k.until_at, (
    SELECT h.scheduled_at FROM job_executions h WHERE h.job_id = k.job_id AND h.scheduled_at > k.from_at AND h.scheduled_at <= k.until_at
    ORDER BY h.scheduled_at OFFSET @most_records LIMIT 1))) AS to_at) e
LEFT JOIN LATERAL (
    SELECT sum(c.times) AS times, min(c.scheduled_at) AS first_at, max(c.scheduled_at) AS last_at,
           (array_agg(c.id ORDER BY c.scheduled_at, c.id))[1]::uuid AS first_id, (array_agg(c.status ORDER BY c.scheduled_at, c.id))[1] AS first_status
    FROM (
        (SELECT a.id, a.scheduled_at, a.status, 1::bigint AS times FROM active_executions a
         WHERE a.job_id = k.job_id AND a.scheduled_at > k.from_at AND a.scheduled_at <= e.to_at AND a.trigger_type = 'scheduled'
         ORDER BY a.scheduled_at LIMIT @most_records)
        UNION ALL
        SELECT h.id, h.scheduled_at, h.status, coalesce(h.missed_count, 1) FROM job_executions h
        WHERE h.job_id = k.job_id AND h.scheduled_at > k.from_at AND h.scheduled_at <= e.to_at AND h.trigger_type = 'scheduled'
          AND (h.status <> 'completed' OR h.completed_at > h.scheduled_at + k.within)
          -- The repetition is found by the scheduled time in its id, 48 bits of milliseconds.
          AND NOT EXISTS (SELECT 1 FROM execution_retries r
                          CROSS JOIN LATERAL (SELECT to_timestamp(('x' || translate(left(r.execution_id::text, 13), '-', ''))::bit(48)::bigint / 1000.0) AS at) i
                          JOIN job_executions o ON o.tenant_id = h.tenant_id AND o.job_id = h.job_id AND o.id = r.execution_id
                                               AND o.scheduled_at >= i.at AND o.scheduled_at < i.at + interval '1 millisecond'
                          WHERE r.retry_of = h.id AND o.status = 'completed' AND o.completed_at <= h.scheduled_at + k.within)
        UNION ALL
        SELECT NULL, k.next_execution_at, 'unpromoted', 1 WHERE k.status = 'active' AND k.next_execution_at > k.from_at AND k.next_execution_at <= e.to_at
    ) c
) late ON k.watched
LEFT JOIN LATERAL (SELECT least(
    (SELECT a.scheduled_at FROM active_executions a WHERE a.job_id = k.job_id AND a.scheduled_at > e.to_at ORDER BY a.scheduled_at LIMIT 1),
    (SELECT h.scheduled_at FROM job_executions h WHERE h.job_id = k.job_id AND h.scheduled_at > e.to_at ORDER BY h.scheduled_at LIMIT 1),
    CASE WHEN k.next_execution_at > e.to_at THEN k.next_execution_at END) AS at) next ON true;

-- name: MoveDeadlines :exec
-- Cross-tenant: the pass that finds what did not run in time, for rows that it holds locked.
UPDATE job_deadlines d SET checked_to = greatest(d.checked_to, u.to_at), check_at = u.check_at
FROM (SELECT unnest(@job_ids::uuid[]) AS job_id, unnest(@to_ats::timestamptz[]) AS to_at, unnest(@check_ats::timestamptz[]) AS check_at) u
WHERE d.job_id = u.job_id;

-- name: DeleteDeadlines :exec
-- Cross-tenant: the pass that finds what did not run in time: jobs that are deleted or have no such setting any more.
DELETE FROM job_deadlines WHERE job_id = ANY (@job_ids::uuid[]);

-- name: PurgeJobDeadlines :execrows
DELETE FROM job_deadlines WHERE tenant_id = @tenant_id;
