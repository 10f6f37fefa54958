-- The shards take over what those calls have written, which the view has counted until now.

-- +goose Up
WITH taken AS MATERIALIZED (
    SELECT c.tenant_id, c.running, c.running_by_type FROM running_counts c WHERE c.running <> 0 OR c.running_by_type <> '{}' FOR UPDATE
),
zero AS (
    UPDATE running_counts c SET running = 0, running_by_type = '{}' FROM taken t WHERE c.tenant_id = t.tenant_id
)
UPDATE running_shards s SET runs = s.runs + t.running,
    runs_by_type = (SELECT coalesce(jsonb_object_agg(n.name, n.runs), '{}') FROM (
        SELECT b.key AS name, sum((b.value)::bigint) AS runs
        FROM (SELECT * FROM jsonb_each_text(s.runs_by_type) UNION ALL SELECT * FROM jsonb_each_text(t.running_by_type)) b GROUP BY b.key) n)
FROM taken t WHERE s.tenant_id = t.tenant_id AND s.shard = 0;

-- +goose Down
SELECT 1;
