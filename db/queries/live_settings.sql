-- name: ListLiveSettings :many
-- Of the installation: each process, every few seconds. At most one row a setting.
SELECT name, value, changed_at, changed_by FROM live_settings;

-- name: PutLiveSetting :exec
INSERT INTO live_settings (name, value, changed_at, changed_by, changed_in)
VALUES (@name, @value::text, now(), @changed_by, @changed_in)
ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value, changed_at = EXCLUDED.changed_at, changed_by = EXCLUDED.changed_by, changed_in = EXCLUDED.changed_in;

-- name: ResetLiveSetting :exec
UPDATE live_settings SET value = NULL, changed_at = now(), changed_by = @changed_by, changed_in = @changed_in
WHERE name = @name AND value IS NOT NULL;
