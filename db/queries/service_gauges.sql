-- name: SetGauges :exec
INSERT INTO service_gauges (name, value, taken_at)
SELECT unnest(@names::text[]), unnest(@values::bigint[]), now()
ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value, taken_at = EXCLUDED.taken_at;

-- name: ListGauges :many
SELECT name, value, taken_at FROM service_gauges ORDER BY name;
