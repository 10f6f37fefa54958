-- Notifications: which events of which jobs somebody is told, where, and what became of
-- each message.

-- +goose Up
CREATE TABLE notifications (
    id              uuid PRIMARY KEY,
    tenant_id       uuid        NOT NULL REFERENCES tenants (id),
    name            text        NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    kind            text        NOT NULL, -- the contract says which there are
    url             text        NOT NULL DEFAULT '',   -- where that is secret, its host alone
    recipients      text[]      NOT NULL DEFAULT '{}', -- of e-mail
    events          text[]      NOT NULL,
    job_ids         uuid[]      NOT NULL DEFAULT '{}', -- none: every job
    tags            text[]      NOT NULL DEFAULT '{}', -- a job has one of them; none: every job
    settings        jsonb       NOT NULL DEFAULT '{}',
    enabled         boolean     NOT NULL DEFAULT true,
    disabled_reason text        NOT NULL DEFAULT '', -- why the sender disabled it; empty: it did not
    version         integer     NOT NULL DEFAULT 1,
    created_by      text        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    since           timestamptz NOT NULL DEFAULT now(), -- events from before are not told

    -- The process that sends writes these.
    due_at          timestamptz, -- when the first of its deliveries may be sent; NULL: none waits
    busy_until      timestamptz, -- one is being sent, until then at most
    failing_since   timestamptz, -- the first of the attempts that failed in a row
    dropped         bigint      NOT NULL DEFAULT 0, -- events that were one too many
    UNIQUE (tenant_id, name)
) WITH (fillfactor = 70);
CREATE INDEX notifications_list ON notifications (tenant_id, created_at DESC, id DESC);
CREATE INDEX notifications_due ON notifications (due_at) WHERE due_at IS NOT NULL;
ALTER TABLE notifications ENABLE ROW LEVEL SECURITY;
ALTER TABLE notifications FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON notifications TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON notifications TO scheduler_engine USING (true) WITH CHECK (true);
CREATE POLICY purge ON notifications AS RESTRICTIVE FOR DELETE TO scheduler_engine USING (tenant_is_deleting(tenant_id));
GRANT SELECT, INSERT, DELETE,
    UPDATE (name, kind, url, recipients, events, job_ids, tags, settings, enabled, disabled_reason, version, updated_at, since, due_at, failing_since)
    ON notifications TO scheduler_api;
GRANT SELECT, DELETE, UPDATE (enabled, disabled_reason, version, updated_at, due_at, busy_until, failing_since, dropped) ON notifications TO scheduler_engine;

-- The keys that messages are signed with, two while one takes the other's place, and
-- URLs that are secret.
CREATE TABLE notification_secrets (
    id              uuid PRIMARY KEY,
    notification_id uuid        NOT NULL REFERENCES notifications (id) ON DELETE CASCADE,
    tenant_id       uuid        NOT NULL,
    purpose         text        NOT NULL CHECK (purpose IN ('signing', 'url')),
    key_id          text        NOT NULL,
    sealed          bytea       NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    valid_until     timestamptz -- NULL: no other has taken its place
);
CREATE INDEX notification_secrets_of ON notification_secrets (notification_id);
ALTER TABLE notification_secrets ENABLE ROW LEVEL SECURITY;
ALTER TABLE notification_secrets FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON notification_secrets TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON notification_secrets TO scheduler_engine USING (true) WITH CHECK (true);
-- The API writes them and cannot read them, not even sealed.
GRANT SELECT (id, notification_id, tenant_id, purpose, key_id, created_at, valid_until), INSERT, DELETE, UPDATE (valid_until)
    ON notification_secrets TO scheduler_api;
GRANT SELECT, UPDATE (key_id, sealed) ON notification_secrets TO scheduler_engine;

-- A message to be sent, and what became of it. Of a notification that is gone those that
-- are finished stay until retention removes them.
CREATE TABLE notification_deliveries (
    id               uuid PRIMARY KEY,
    notification_id  uuid        NOT NULL,
    tenant_id        uuid        NOT NULL,
    events           jsonb       NOT NULL, -- at most 50 of them
    event_count      integer     NOT NULL,
    status           text        NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'delivered', 'failed')),
    attempts         integer     NOT NULL DEFAULT 0,
    created_at       timestamptz NOT NULL DEFAULT now(),
    next_attempt_at  timestamptz NOT NULL,
    give_up_at       timestamptz NOT NULL, -- no attempt begins later
    attempted_at     timestamptz,
    finished_at      timestamptz,
    response_status  integer,
    response_excerpt text        NOT NULL DEFAULT '',
    error            text        NOT NULL DEFAULT ''
) WITH (fillfactor = 80);
CREATE INDEX notification_deliveries_list ON notification_deliveries (tenant_id, notification_id, created_at DESC, id DESC);
CREATE INDEX notification_deliveries_waiting ON notification_deliveries (tenant_id, notification_id, next_attempt_at, id) WHERE status = 'pending';
CREATE INDEX notification_deliveries_age ON notification_deliveries (created_at);
ALTER TABLE notification_deliveries ENABLE ROW LEVEL SECURITY;
ALTER TABLE notification_deliveries FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON notification_deliveries TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid)
    WITH CHECK (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON notification_deliveries TO scheduler_engine USING (true) WITH CHECK (true);
CREATE POLICY retention ON notification_deliveries AS RESTRICTIVE FOR DELETE TO scheduler_engine
    USING (created_at < now() - interval '1 day' OR tenant_is_deleting(tenant_id));
GRANT SELECT, INSERT, DELETE, UPDATE (status, attempts, next_attempt_at, give_up_at, finished_at, response_status, response_excerpt, error)
    ON notification_deliveries TO scheduler_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON notification_deliveries TO scheduler_engine;

-- Jobs whose last execution failed, of tenants with notifications: so that the first
-- failure and the recovery are told, and the failures between them need not be.
CREATE TABLE job_failures (
    job_id       uuid PRIMARY KEY,
    tenant_id    uuid        NOT NULL,
    since        timestamptz NOT NULL, -- when the first of them ended
    failures     bigint      NOT NULL,
    execution_id uuid        NOT NULL  -- the first of them
) WITH (fillfactor = 80);
CREATE INDEX job_failures_tenant ON job_failures (tenant_id);
ALTER TABLE job_failures ENABLE ROW LEVEL SECURITY;
ALTER TABLE job_failures FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON job_failures FOR SELECT TO scheduler_api
    USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), '')::uuid);
CREATE POLICY engine ON job_failures TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON job_failures TO scheduler_engine;

-- One row: what happened up to read_to is told, or was nobody's to be told.
CREATE TABLE notification_cursor (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    read_to timestamptz NOT NULL
) WITH (fillfactor = 10);
INSERT INTO notification_cursor (read_to) VALUES (now());
ALTER TABLE notification_cursor ENABLE ROW LEVEL SECURITY;
ALTER TABLE notification_cursor FORCE ROW LEVEL SECURITY;
CREATE POLICY engine ON notification_cursor TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, UPDATE ON notification_cursor TO scheduler_engine;

CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR DELETE OR UPDATE OF version ON notifications
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('notification', 'id', 'tenant_id',
    'id,tenant_id,created_at,created_by,updated_at,since,due_at,busy_until,failing_since,dropped');
-- A test, and one that is sent again.
CREATE CONSTRAINT TRIGGER record_change AFTER INSERT OR UPDATE ON notification_deliveries
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (audited()) EXECUTE FUNCTION record_change('notificationDelivery', 'id', 'tenant_id',
    'id,tenant_id,created_at,events,give_up_at,response_excerpt');

-- +goose Down
DROP TABLE notification_cursor;
DROP TABLE job_failures;
DROP TABLE notification_deliveries;
DROP TABLE notification_secrets;
DROP TABLE notifications;
