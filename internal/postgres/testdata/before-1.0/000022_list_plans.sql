-- What the lists of calendars and tenants need to read a page and not the whole
-- table. Lock: SHARE on calendars while the index is built, ACCESS EXCLUSIVE on
-- tenants for the moment of changing a policy. Duration: as long as the
-- calendars take.

-- +goose Up
CREATE INDEX calendars_list ON calendars (tenant_id, created_at DESC, id DESC);

-- The planner takes `current_setting(...) = 'on'` for true of one row in 200, and
-- so read and sorted all tenants for the few that it expected. Of a CASE it
-- expects half.
ALTER POLICY platform ON tenants USING (CASE WHEN current_setting('app.platform', true) = 'on' THEN true ELSE false END);

-- +goose Down
ALTER POLICY platform ON tenants USING (current_setting('app.platform', true) = 'on');
DROP INDEX calendars_list;
