-- The index keeps what every worker reads every few seconds as small as the tenants that
-- have a list of hosts.

-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS tenants_allowed_hosts;
CREATE INDEX CONCURRENTLY tenants_allowed_hosts ON tenants (id) WHERE allowed_hosts <> '{}';

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS tenants_allowed_hosts;
