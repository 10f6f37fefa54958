-- Leases for what one process does at a time. Lock: none on existing tables.
-- Duration: instant.

-- +goose Up
-- One row for each lease that was ever taken, and never deleted: its fencing
-- number grows with each acquisition, so a late owner has a lower one.
CREATE TABLE scheduler_locks (
    name        text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 100),
    owner       uuid        NOT NULL, -- random, of this acquisition
    holder      text        NOT NULL CHECK (length(holder) <= 200), -- host and process id, for the operator
    fence       bigint      NOT NULL DEFAULT 1 CHECK (fence >= 1),
    acquired_at timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL
) WITH (fillfactor = 50);
-- The API takes one lease only: the one by which GET /health tries whether
-- leases work.
ALTER TABLE scheduler_locks ENABLE ROW LEVEL SECURITY;
ALTER TABLE scheduler_locks FORCE ROW LEVEL SECURITY;
CREATE POLICY health ON scheduler_locks TO scheduler_api USING (name = 'health') WITH CHECK (name = 'health');
CREATE POLICY engine ON scheduler_locks TO scheduler_engine USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE ON scheduler_locks TO scheduler_api, scheduler_engine;

-- +goose Down
DROP TABLE scheduler_locks;
