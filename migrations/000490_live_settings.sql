-- Settings that change while the processes run.

-- +goose Up
-- Every process reads the whole table every few seconds. A row is never deleted, so that the
-- one who resets a setting is in it: without a value, processes go by their environments.
CREATE TABLE live_settings (
    name       text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 64),
    value      text CHECK (length(value) BETWEEN 1 AND 64),
    changed_at timestamptz NOT NULL,
    changed_by text        NOT NULL,
    changed_in uuid        NOT NULL -- the tenant of the one who changed it, whose audit log records that
);
ALTER TABLE live_settings ENABLE ROW LEVEL SECURITY;
ALTER TABLE live_settings FORCE ROW LEVEL SECURITY;
CREATE POLICY everybody ON live_settings FOR SELECT TO scheduler_api, scheduler_engine USING (true);
CREATE POLICY make ON live_settings FOR INSERT TO scheduler_api
    WITH CHECK (changed_in = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY change ON live_settings FOR UPDATE TO scheduler_api USING (true)
    WITH CHECK (changed_in = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE ON live_settings TO scheduler_api;
GRANT SELECT ON live_settings TO scheduler_engine;
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR UPDATE ON live_settings
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('setting', 'name', 'changed_in',
    'name,changed_at,changed_by,changed_in');

-- +goose Down
DROP TABLE live_settings;
