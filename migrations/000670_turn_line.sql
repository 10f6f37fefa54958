-- Polls that wait for their turn keep no snapshot meanwhile.

-- +goose Up
-- Transactions that wait for their turn stand in line for a lock of this table (see DB.InTurn).
-- It has no columns, because nobody reads or writes it. A statement that waits for an advisory
-- lock has a snapshot, and LOCK TABLE has none. While 40 workers waited, the oldest of their
-- snapshots was 0.7 s old, so PostgreSQL had to keep what was removed since, and each poll
-- stepped over it: to find 250 executions polls read 16,000 pages and not 6,000.
CREATE TABLE turn_line ();
ALTER TABLE turn_line ENABLE ROW LEVEL SECURITY;
ALTER TABLE turn_line FORCE ROW LEVEL SECURITY;
GRANT UPDATE ON turn_line TO scheduler_engine; -- LOCK TABLE asks for it

-- +goose Down
DROP TABLE turn_line;
