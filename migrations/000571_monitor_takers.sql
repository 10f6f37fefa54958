-- Each process that takes pings gives a sign of its own, so that one that hangs beside others is noticed; and a ping that came
-- by the service's public address says that the way in from outside is open. No table that is in use is locked.

-- +goose Up
CREATE TABLE monitor_takers (
    id         uuid PRIMARY KEY,
    name       text        NOT NULL, -- of its host, for people
    touched_at timestamptz NOT NULL
) WITH (fillfactor = 50);
ALTER TABLE monitor_takers ENABLE ROW LEVEL SECURITY;
ALTER TABLE monitor_takers FORCE ROW LEVEL SECURITY;
CREATE POLICY engine ON monitor_takers TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON monitor_takers TO scheduler_engine;

-- One row: when a ping of our own came in by the public address last.
CREATE TABLE monitor_front (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    ping_key   text        NOT NULL, -- by which our own are known
    touched_at timestamptz           -- NULL: none ever came
) WITH (fillfactor = 10);
INSERT INTO monitor_front (ping_key) VALUES ('front-' || gen_random_uuid());
ALTER TABLE monitor_front ENABLE ROW LEVEL SECURITY;
ALTER TABLE monitor_front FORCE ROW LEVEL SECURITY;
CREATE POLICY engine ON monitor_front TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, UPDATE ON monitor_front TO scheduler_engine;

-- +goose Down
DROP TABLE monitor_front;
DROP TABLE monitor_takers;
