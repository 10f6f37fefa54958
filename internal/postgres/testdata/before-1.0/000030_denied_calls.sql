-- Refused calls in the audit log. Lock: none that lasts. Duration: instant.

-- +goose Up
-- A row is here for its transaction only: the trigger writes it into the audit log,
-- in its chain, as it does with every change.
CREATE TABLE denied_calls (
    id        uuid NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid NOT NULL REFERENCES tenants (id),
    operation text NOT NULL,
    reason    text NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
ALTER TABLE denied_calls ENABLE ROW LEVEL SECURITY;
ALTER TABLE denied_calls FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON denied_calls TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
GRANT SELECT, INSERT, DELETE ON denied_calls TO scheduler_api;
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT ON denied_calls
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('call', 'operation', 'tenant_id', 'id,tenant_id,operation');

-- +goose Down
DROP TABLE denied_calls;
