-- Claims of tenants' workers that brought something, by the id that the worker gave them, so that
-- one whose answer was lost is answered again.

-- +goose Up
CREATE TABLE remote_claims (
    worker_id     uuid        NOT NULL REFERENCES workers ON DELETE CASCADE,
    claim_id      uuid        NOT NULL,
    tenant_id     uuid        NOT NULL,
    lease_token   uuid        NOT NULL, -- of the attempts
    execution_ids uuid[]      NOT NULL, -- at most 32
    claimed_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (worker_id, claim_id)
);
CREATE INDEX remote_claims_tenant ON remote_claims (tenant_id);
ALTER TABLE remote_claims ENABLE ROW LEVEL SECURITY;
ALTER TABLE remote_claims FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON remote_claims TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON remote_claims TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, DELETE ON remote_claims TO scheduler_engine;

-- +goose Down
DROP TABLE remote_claims;
