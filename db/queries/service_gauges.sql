-- name: SetGauges :exec
INSERT INTO service_gauges (name, value, taken_at)
SELECT unnest(@names::text[]), unnest(@values::bigint[]), now()
ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value, taken_at = EXCLUDED.taken_at;

-- name: TakeGaugeTurn :execrows
-- One row if the gauges were not counted within so long: whoever gets it counts
-- them, and for as long nobody else does. The row is kept, also when the count fails.
INSERT INTO service_gauges (name, value, taken_at) VALUES (@name, 0, now())
ON CONFLICT (name) DO UPDATE SET taken_at = now()
WHERE service_gauges.taken_at <= now() - make_interval(secs => @seconds::float8);

-- name: ListGauges :many
SELECT name, value, taken_at FROM service_gauges ORDER BY name;
