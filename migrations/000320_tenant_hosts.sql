-- The hosts that a tenant's jobs may call; none: any.

-- +goose Up
ALTER TABLE tenants ADD COLUMN allowed_hosts text[] NOT NULL DEFAULT '{}';
GRANT UPDATE (allowed_hosts) ON tenants TO scheduler_api;

-- +goose Down
ALTER TABLE tenants DROP COLUMN allowed_hosts;
