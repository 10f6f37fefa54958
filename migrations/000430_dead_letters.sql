-- Dead letters: executions that failed for good and that nobody replayed or discarded yet.
--
-- A pass reads failed executions once, in the order in which they ended, and writes a row for
-- each. Two other ways were weighed:
--   A trigger on job_executions would show a dead letter at once, and would cost every batch
--   of completions a call and a copy of its rows; of these, few fail.
--   The history itself with an index of its failures would need no rows, and no list of it
--   would be bounded: a tenant's failures of 13 months have no cap, groups of them would be
--   counted over all, and each read would leave out what was discarded.
-- The price is that a dead letter appears some 20 seconds after the failure.
--
-- A row is a dead letter that waits. A replay and a discard delete it: the new execution
-- names the old one (execution_retries), and the audit log has the discard.

-- +goose Up
CREATE TABLE dead_letters (
    execution_id  uuid PRIMARY KEY,
    tenant_id     uuid        NOT NULL,
    job_id        uuid        NOT NULL,
    error_type    text        NOT NULL,
    error_message text        NOT NULL CHECK (length(error_message) <= 500), -- its beginning
    fingerprint   text        NOT NULL CHECK (length(fingerprint) = 16),     -- the same for failures that differ in numbers and names alone
    failed_at     timestamptz NOT NULL,
    scheduled_at  timestamptz NOT NULL
);
-- Filters by job and error type read the list: a tenant has some 100,000 rows at most, which
-- one pass enforces and every query relies on.
CREATE INDEX dead_letters_list ON dead_letters (tenant_id, failed_at DESC, execution_id DESC);
CREATE INDEX dead_letters_group ON dead_letters (tenant_id, fingerprint, failed_at DESC, execution_id DESC);
-- Retention: a dead letter goes with the month of its execution.
CREATE INDEX dead_letters_age ON dead_letters (scheduled_at);
ALTER TABLE dead_letters ENABLE ROW LEVEL SECURITY;
ALTER TABLE dead_letters FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON dead_letters TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON dead_letters TO scheduler_engine USING (true) WITH CHECK (true);
-- The right to update is the right to lock a row; nothing changes one.
GRANT SELECT, DELETE, UPDATE (failed_at) ON dead_letters TO scheduler_api;
GRANT SELECT, INSERT, DELETE, UPDATE (failed_at) ON dead_letters TO scheduler_engine;

-- One row: failures up to read_to have their rows. Those from before this migration have none.
CREATE TABLE dead_letter_cursor (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    read_to timestamptz NOT NULL
) WITH (fillfactor = 10);
INSERT INTO dead_letter_cursor (read_to) VALUES (now());
ALTER TABLE dead_letter_cursor ENABLE ROW LEVEL SECURITY;
ALTER TABLE dead_letter_cursor FORCE ROW LEVEL SECURITY;
CREATE POLICY engine ON dead_letter_cursor TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, UPDATE ON dead_letter_cursor TO scheduler_engine;

-- Discards. A row is here for its transaction only: a trigger records it in the audit log,
-- once for a call that discards thousands.
CREATE TABLE dead_letter_discards (
    id        uuid    NOT NULL DEFAULT gen_random_uuid(),
    tenant_id uuid    NOT NULL,
    selected  text    NOT NULL, -- the id of an execution, or the filter
    discarded integer NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
ALTER TABLE dead_letter_discards ENABLE ROW LEVEL SECURITY;
ALTER TABLE dead_letter_discards FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON dead_letter_discards TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
GRANT SELECT, INSERT, DELETE ON dead_letter_discards TO scheduler_api;
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT ON dead_letter_discards
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('deadLetter', 'selected', 'tenant_id', 'id,tenant_id,selected');

-- +goose Down
DROP TABLE dead_letter_discards;
DROP TABLE dead_letter_cursor;
DROP TABLE dead_letters;
