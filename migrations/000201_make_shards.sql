-- The shards of tenants that are there.

-- +goose Up
INSERT INTO running_shards (tenant_id, shard)
SELECT c.tenant_id, n.shard FROM running_counts c CROSS JOIN generate_series(0, 15) AS n(shard)
WHERE NOT EXISTS (SELECT 1 FROM running_shards s WHERE s.tenant_id = c.tenant_id AND s.shard = n.shard);

-- +goose Down
DELETE FROM running_shards;
