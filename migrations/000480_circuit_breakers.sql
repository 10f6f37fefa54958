-- A tenant's calls stay away from a host that fails.

-- +goose Up
-- A row is there while calls to the host fail: closed while failures are counted, open once
-- they were too many in a row, and half open while one call, the probe, is out. A closed one
-- that is not open again is removed.
CREATE TABLE circuit_breakers (
    id            uuid PRIMARY KEY,
    tenant_id     uuid        NOT NULL,
    host          text        NOT NULL CHECK (length(host) BETWEEN 1 AND 255),
    state         text        NOT NULL CHECK (state IN ('closed', 'open', 'half_open')),
    failures      bigint      NOT NULL, -- in a row
    failing_since timestamptz NOT NULL, -- the first of them
    failed_at     timestamptz NOT NULL, -- the last of them
    reason        text        NOT NULL, -- why the last one failed
    opened_at     timestamptz,
    retry_at      timestamptz, -- when a probe may go out; of a half-open one, when another may
    pause_seconds integer     NOT NULL, -- from the last failed probe to the next one
    probe         uuid,        -- of the call that is out
    created_at    timestamptz NOT NULL,
    UNIQUE (tenant_id, host)
) WITH (fillfactor = 70);
CREATE INDEX circuit_breakers_list ON circuit_breakers (tenant_id, created_at DESC, id DESC);
ALTER TABLE circuit_breakers ENABLE ROW LEVEL SECURITY;
ALTER TABLE circuit_breakers FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON circuit_breakers TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON circuit_breakers TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, DELETE ON circuit_breakers TO scheduler_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON circuit_breakers TO scheduler_engine;
CREATE CONSTRAINT TRIGGER record_change AFTER DELETE ON circuit_breakers
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('circuitBreaker', 'id', 'tenant_id',
    'id,tenant_id,created_at,pause_seconds,probe');

-- An execution that a breaker holds back waits until then; another time in available_at
-- means that it waits for something else by now.
ALTER TABLE active_executions ADD COLUMN held_until timestamptz, ADD COLUMN held_host text;

-- +goose Down
ALTER TABLE active_executions DROP COLUMN held_host, DROP COLUMN held_until;
DROP TABLE circuit_breakers;
