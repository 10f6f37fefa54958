-- name: FindWork :one
-- Cross-tenant: maintenance, each second in each promoter. Says which passes have
-- something to do, so that those that have nothing send no statements of their own.
-- Each condition is that of the pass's own statements or a wider one; all read the
-- beginning of an index, and of the jobs that are held one of each tenant. settled is
-- how far those stay behind that read what ended (package settled).
-- An active schedule of a tenant is looked for in the order of tenants, from its id on. If its id were
-- asked for alone, the planner would read the schedules of all tenants in the order of their times.
WITH RECURSIVE held AS (
    (SELECT j.tenant_id FROM job_definitions j WHERE j.status = 'paused' AND j.status_by = 'platform' ORDER BY j.tenant_id LIMIT 1)
    UNION ALL
    SELECT (SELECT j.tenant_id FROM job_definitions j
            WHERE j.status = 'paused' AND j.status_by = 'platform' AND j.tenant_id > h.tenant_id ORDER BY j.tenant_id LIMIT 1)
    FROM held h WHERE h.tenant_id IS NOT NULL
)
SELECT
    (EXISTS (SELECT 1 FROM active_executions e WHERE e.sweep_at <= coalesce(sqlc.narg(now)::timestamptz, now()) + interval '5 seconds')
     OR EXISTS (SELECT 1 FROM workers w WHERE NOT w.dead AND w.expires_at < coalesce(sqlc.narg(now)::timestamptz, now()) - interval '0.5 seconds'))::boolean AS sweep,
    (EXISTS (SELECT 1 FROM active_executions e WHERE e.awaited_until <= coalesce(sqlc.narg(now)::timestamptz, now()))
     OR EXISTS (SELECT 1 FROM active_executions e WHERE e.cancel_requested_at <= coalesce(sqlc.narg(now)::timestamptz, now()) AND e.awaited_until IS NOT NULL))::boolean AS end_awaited,
    (EXISTS (SELECT 1 FROM cancellations)
     OR EXISTS (SELECT 1 FROM tenants t WHERE t.status IN ('suspended', 'deleting')
                AND EXISTS (SELECT 1 FROM active_executions e WHERE e.tenant_id = t.id OFFSET 0)))::boolean AS cancel,
    (EXISTS (SELECT 1 FROM tenants t WHERE t.status IN ('suspended', 'deleting')
             AND (t.status = 'deleting' OR t.id = (SELECT s.tenant_id FROM job_schedule s WHERE s.tenant_id >= t.id AND s.status = 'active' ORDER BY s.tenant_id LIMIT 1)))
     OR EXISTS (SELECT 1 FROM held h JOIN tenants t ON t.id = h.tenant_id WHERE t.status = 'active'))::boolean AS suspend,
    (EXISTS (SELECT 1 FROM job_definitions j WHERE j.status = 'paused' AND j.paused_until <= coalesce(sqlc.narg(now)::timestamptz, now()))
     OR EXISTS (SELECT 1 FROM job_executions f
                WHERE f.status = 'failed' AND f.completed_at > coalesce(sqlc.narg(now)::timestamptz, now()) - interval '60 seconds'))::boolean AS change_status,
    (EXISTS (SELECT 1 FROM active_executions) OR EXISTS (SELECT 1 FROM waiting_counts))::boolean AS count_waiting,
    EXISTS (SELECT 1 FROM dead_letter_replays d
            WHERE d.status IN ('canary', 'running') AND d.next_at <= coalesce(sqlc.narg(now)::timestamptz, now())
              AND NOT EXISTS (SELECT 1 FROM tenants t WHERE t.id = d.tenant_id AND t.status <> 'active'))::boolean AS replay,
    EXISTS (SELECT 1 FROM dead_letter_cursor c JOIN job_executions f ON f.status = 'failed' AND f.completed_at > c.read_to
              AND f.completed_at <= coalesce(sqlc.narg(now)::timestamptz, now()) - make_interval(secs => @settled::float8))::boolean AS collect_letters,
    (EXISTS (SELECT 1 FROM monitors m WHERE m.deadline <= coalesce(sqlc.narg(now)::timestamptz, now()))
     OR EXISTS (SELECT 1 FROM monitor_events))::boolean AS watch_monitors,
    (EXISTS (SELECT 1 FROM monitors) OR EXISTS (SELECT 1 FROM service_gauges g WHERE starts_with(g.name, 'monitors_') AND g.value > 0))::boolean AS count_monitors,
    (EXISTS (SELECT 1 FROM objectives) OR EXISTS (SELECT 1 FROM service_gauges g WHERE starts_with(g.name, 'objectives_') AND g.value > 0))::boolean AS count_objectives,
    EXISTS (SELECT 1 FROM notifications n WHERE n.enabled)::boolean AS derive_events,
    EXISTS (SELECT 1 FROM notifications n WHERE n.enabled AND 'job.not_run_by' = ANY (n.events)
              AND EXISTS (SELECT 1 FROM job_deadlines d WHERE d.tenant_id = n.tenant_id
                          AND d.check_at <= coalesce(sqlc.narg(now)::timestamptz, now()) - make_interval(secs => @settled::float8)))::boolean AS check_deadlines,
    EXISTS (SELECT 1 FROM notifications n WHERE n.enabled AND n.due_at <= coalesce(sqlc.narg(now)::timestamptz, now()))::boolean AS send_notifications,
    EXISTS (SELECT 1 FROM metric_totals t WHERE t.tenant_id = '00000000-0000-0000-0000-000000000000'
              AND (t.taken_at IS NULL OR t.taken_at < date_bin('30 seconds', coalesce(sqlc.narg(now)::timestamptz, now()), '2000-01-01 00:00:00+00')
                   OR EXISTS (SELECT 1 FROM job_executions e WHERE e.completed_at > t.counted_to
                              AND e.completed_at <= coalesce(sqlc.narg(now)::timestamptz, now()) - make_interval(secs => @settled::float8))))::boolean AS metrics;
