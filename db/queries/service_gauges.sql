-- name: SetGauges :exec
INSERT INTO service_gauges (name, value, taken_at)
SELECT unnest(@names::text[]), unnest(@values::bigint[]), now()
ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value, taken_at = EXCLUDED.taken_at;

-- name: TakeGaugeTurn :execrows
-- One row if the gauges were not counted within so long: the process that gets it
-- counts them, and for as long no other does. The row is kept, also when the count fails.
INSERT INTO service_gauges (name, value, taken_at) VALUES (@name, 0, now())
ON CONFLICT (name) DO UPDATE SET taken_at = now()
WHERE service_gauges.taken_at <= now() - make_interval(secs => @seconds::float8);

-- name: ListGauges :many
SELECT name, value, extract(epoch FROM now() - taken_at)::float8 AS age_seconds FROM service_gauges ORDER BY name;

-- name: OldestSnapshot :one
-- The holder that keeps vacuum from removing dead rows: the session, prepared transaction or
-- replication slot with the oldest snapshot, and how many transactions began since.
-- No row where nobody has one. The role need not be of pg_monitor: these columns
-- of other sessions are visible to everybody.
SELECT o.holder::text AS holder, o.xmin::text AS snapshot, age(o.xmin)::bigint AS transactions
FROM (SELECT 'the session with pid ' || a.pid AS holder, a.backend_xmin AS xmin FROM pg_catalog.pg_stat_activity a WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid()
      UNION ALL SELECT 'the prepared transaction ' || p.gid, p.transaction FROM pg_catalog.pg_prepared_xacts p
      UNION ALL SELECT 'the replication slot ' || s.slot_name, s.xmin FROM pg_catalog.pg_replication_slots s WHERE s.xmin IS NOT NULL) o
ORDER BY age(o.xmin) DESC LIMIT 1;

-- name: KeepJobGauges :exec
-- Cross-tenant: the collector of metrics. Keeps the newest numbers of jobs where every
-- process may read them.
INSERT INTO service_gauges AS g (name, value, taken_at)
SELECT 'active_jobs', h.active_jobs, now() FROM metric_history h
WHERE h.tenant_id = '00000000-0000-0000-0000-000000000000' AND h.taken_at = @slot::timestamptz
ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value, taken_at = EXCLUDED.taken_at;
