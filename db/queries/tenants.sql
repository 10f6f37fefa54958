-- name: GetTenantStatus :one
SELECT status FROM tenants WHERE id = sqlc.arg(tenant_id);

-- name: InsertTenant :exec
-- Two requests of a new tenant race: the second finds the first's row.
INSERT INTO tenants (id, name) VALUES (sqlc.arg(tenant_id), @name) ON CONFLICT (id) DO NOTHING;

-- name: LockTenant :one
-- Held until the end of a transaction that adds something of which a tenant
-- may have so many: of two at once, the second counts what the first added.
SELECT id FROM tenants WHERE id = sqlc.arg(tenant_id) FOR NO KEY UPDATE;
