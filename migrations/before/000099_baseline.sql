-- The last step of an installation from before 1.0: from here on it has what the
-- baseline makes, so that the files of the baseline count as applied. It locks nothing.
--
-- It keeps what processes of the version before name and 1.0 does not: the column
-- dispatch_seq of active_executions, running_http, running_function and running_command
-- of running_counts, and the functions is_of_types, next_of_job and next_of_key. The
-- first version after 1.0 may drop them (IF EXISTS: new installations have none).

-- +goose Up
INSERT INTO goose_db_version (version_id, is_applied)
SELECT number, true FROM generate_series(100, 107) AS number;

-- +goose Down
DELETE FROM goose_db_version WHERE version_id BETWEEN 100 AND 107;
