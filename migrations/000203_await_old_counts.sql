-- Waits for statements that began with the old functions: they still write the old rows.

-- +goose Up
-- Every statement that starts or ends runs holds a lock of this table from its beginning.
LOCK TABLE active_executions IN SHARE ROW EXCLUSIVE MODE;

-- +goose Down
SELECT 1;
