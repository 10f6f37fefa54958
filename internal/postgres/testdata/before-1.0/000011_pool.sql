-- The pool: executions that wait in PostgreSQL without a hint under way, which
-- workers look for, fairly between tenants. Lock: active_executions, for the
-- moment of adding a column with a constant default (nothing is rewritten) and
-- for making two indexes over no row. Duration: instant.
--
-- What is hinted is not in the pool, so the index costs it nothing, and its
-- claim stays a HOT update. Claiming from the pool takes the row out of it:
-- what runs is never in the way of a look. dispatch_seq is used no more; the
-- version after this one may drop it.

-- +goose Up
ALTER TABLE active_executions ADD COLUMN pooled boolean NOT NULL DEFAULT false;
-- A line for each tenant, priority and type, by the instant since which a run
-- waits.
CREATE INDEX active_executions_pool ON active_executions (tenant_id, priority, job_type, available_at) WHERE pooled;
-- The jobs of which runs wait for a place. No claim changes either column.
CREATE INDEX active_executions_gated ON active_executions (job_id) WHERE concurrency_limit > 0;

-- +goose Down
DROP INDEX active_executions_gated;
DROP INDEX active_executions_pool;
ALTER TABLE active_executions DROP COLUMN pooled;
