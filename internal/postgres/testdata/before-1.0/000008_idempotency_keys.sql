-- Answers remembered for Idempotency-Key, per tenant, written in the
-- transaction of the change itself. Lock: none. Duration: instant.

-- +goose Up
CREATE TABLE idempotency_keys (
    tenant_id   uuid        NOT NULL,
    key         text        NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    route       text        NOT NULL,
    body_sha256 bytea       NOT NULL,
    status      integer     NOT NULL,
    response    jsonb       NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, key)
);
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);

ALTER TABLE idempotency_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE idempotency_keys FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON idempotency_keys TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON idempotency_keys TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_keys TO scheduler_api;
-- Locking a row takes the right to update some column of it.
GRANT SELECT, UPDATE (expires_at), DELETE ON idempotency_keys TO scheduler_engine;

-- +goose Down
DROP TABLE idempotency_keys;
