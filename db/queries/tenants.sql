-- name: GetTenantStatus :one
SELECT status FROM tenants WHERE id = sqlc.arg(tenant_id);

-- name: InsertTenant :exec
-- Two requests of a new tenant race: the second finds the first's row.
INSERT INTO tenants (id, name) VALUES (sqlc.arg(tenant_id), @name) ON CONFLICT (id) DO NOTHING;
