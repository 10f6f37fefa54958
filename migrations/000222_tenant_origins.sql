-- The origins from which browsers may call the API for a tenant, of those that the
-- installation admits; none: all of those.

-- +goose Up
ALTER TABLE tenants ADD COLUMN allowed_origins text[] NOT NULL DEFAULT '{}';
GRANT UPDATE (allowed_origins) ON tenants TO scheduler_api;

-- +goose Down
ALTER TABLE tenants DROP COLUMN allowed_origins;
