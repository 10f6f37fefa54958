-- Replays of many dead letters: what somebody asked for, and how far it is. A pass replays them
-- one by one, each in a transaction with its step here, so that a crash repeats none and
-- counts each once.

-- +goose Up
CREATE TABLE dead_letter_replays (
    id              uuid PRIMARY KEY,
    tenant_id       uuid        NOT NULL,
    selected        text        NOT NULL, -- the filter as JSON, one text for one filter
    job_id          uuid,
    error_types     text[],
    fingerprint     text,
    from_at         timestamptz NOT NULL,
    to_at           timestamptz NOT NULL, -- not after the replay was made, so that failures of its own executions are not in it
    rate_per_minute integer     NOT NULL CHECK (rate_per_minute BETWEEN 1 AND 3000),
    no_secrets      boolean     NOT NULL, -- who asked may not have secrets sent elsewhere
    status          text        NOT NULL CHECK (status IN ('canary', 'running', 'completed', 'halted', 'cancelled')),
    reason          text        NOT NULL DEFAULT '', -- why it was halted; of one that goes on, why it waits
    canary_id       uuid,                 -- the execution that has to complete first
    after_at        timestamptz NOT NULL, -- the last dead letter that was dealt with, oldest first
    after_id        uuid        NOT NULL,
    total           integer     NOT NULL,
    replayed        integer     NOT NULL DEFAULT 0,
    refused         integer     NOT NULL DEFAULT 0,
    faults          jsonb       NOT NULL DEFAULT '[]', -- of the first that were refused
    next_at         timestamptz NOT NULL,
    requested_by    text        NOT NULL,
    created_at      timestamptz NOT NULL,
    finished_at     timestamptz
) WITH (fillfactor = 70);
CREATE INDEX dead_letter_replays_list ON dead_letter_replays (tenant_id, created_at DESC, id DESC);
-- One at a time for one filter. A second one would halve the distance of the first.
CREATE UNIQUE INDEX dead_letter_replays_active ON dead_letter_replays (tenant_id, md5(selected)) WHERE status IN ('canary', 'running');
CREATE INDEX dead_letter_replays_due ON dead_letter_replays (next_at) WHERE status IN ('canary', 'running');
CREATE INDEX dead_letter_replays_age ON dead_letter_replays (finished_at) WHERE finished_at IS NOT NULL;
ALTER TABLE dead_letter_replays ENABLE ROW LEVEL SECURITY;
ALTER TABLE dead_letter_replays FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON dead_letter_replays TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON dead_letter_replays TO scheduler_engine USING (true) WITH CHECK (true);
CREATE POLICY retention ON dead_letter_replays AS RESTRICTIVE FOR DELETE TO scheduler_engine
    USING (finished_at IS NOT NULL OR tenant_is_deleting(tenant_id));
GRANT SELECT, INSERT, UPDATE (status, reason, finished_at) ON dead_letter_replays TO scheduler_api;
GRANT SELECT, DELETE, UPDATE (status, reason, canary_id, after_at, after_id, replayed, refused, faults, next_at, finished_at) ON dead_letter_replays TO scheduler_engine;
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR UPDATE OF status ON dead_letter_replays
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('deadLetterReplay', 'id', 'tenant_id',
    'id,tenant_id,created_at,no_secrets,after_at,after_id,next_at,requested_by,faults');
-- The pass makes executions that repeat others.
GRANT INSERT ON execution_retries TO scheduler_engine;

-- +goose Down
REVOKE INSERT ON execution_retries FROM scheduler_engine;
DROP TABLE dead_letter_replays;
