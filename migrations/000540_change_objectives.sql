-- An objective's name, target and window may change; what it counts stays what it is. The table has at
-- most a hundred rows of each tenant, and only requests about objectives wait for the lock.

-- +goose Up
ALTER TABLE objectives ADD COLUMN version integer NOT NULL DEFAULT 1, ADD COLUMN updated_at timestamptz;
GRANT UPDATE (name, target, window_days, version, updated_at) ON objectives TO scheduler_api;
DROP TRIGGER record_change ON objectives;
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR DELETE OR UPDATE OF version ON objectives
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('objective', 'id', 'tenant_id',
    'id,tenant_id,created_at,created_by,updated_at');

-- +goose Down
DROP TRIGGER record_change ON objectives;
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR DELETE ON objectives
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('objective', 'id', 'tenant_id',
    'id,tenant_id,created_at,created_by');
REVOKE UPDATE (name, target, window_days, version, updated_at) ON objectives FROM scheduler_api;
ALTER TABLE objectives DROP COLUMN updated_at, DROP COLUMN version;
