-- name: PublishWorkerFunctions :exec
-- The worker that started last says what a function takes. In the order of the key, so
-- that two workers that start at once wait for each other and nobody for both.
INSERT INTO worker_functions (module, name, description, parameters)
SELECT f.module, f.name, f.description, f.parameters
FROM (SELECT unnest(@modules::text[]) AS module, unnest(@names::text[]) AS name, unnest(@descriptions::text[]) AS description, unnest(@parameters::jsonb[]) AS parameters) f
ORDER BY f.module, f.name
ON CONFLICT (module, name) DO UPDATE SET description = EXCLUDED.description, parameters = EXCLUDED.parameters, published_at = now();

-- name: ListWorkerFunctions :many
SELECT module, name, description, parameters FROM worker_functions ORDER BY module, name LIMIT @most;
