-- PostgreSQL analyses tables that change all the time less often.

-- +goose Up
-- By default PostgreSQL analyses a table after 50 changes and a tenth of its rows, and looks
-- whether it should every autovacuum_naptime, for which we advise 5 s. A small table that
-- changes ten times a second was analysed at each look. Then every session throws away its
-- kept plans of statements that use the table, and plans each again at its next call. With four
-- workers, two promoters and 50 executions a second PostgreSQL spent 0.4 ms of each execution on
-- plans, and 0.3 ms with these thresholds.
-- The statements on the tables of the first list look a key up or read a small table. Their
-- plans need no statistics. Lists and counts read the tables of the second list, so these are
-- analysed after 2,000 changes.
-- +goose StatementBegin
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['audit_anchors', 'audit_heads', 'cancellations', 'circuit_breakers', 'dead_letter_cursor',
                                'dead_letter_replays', 'execution_days', 'execution_progress', 'fold_backlogs', 'job_counts', 'job_durations', 'job_failures',
                                'metric_totals', 'monitor_front', 'monitor_intake', 'monitor_takers', 'notification_cursor', 'objective_cursor',
                                'rollup_cursor', 'running_counts', 'running_keys', 'running_shards', 'scheduler_locks', 'service_gauges',
                                'waiting_counts', 'workers'] LOOP
        EXECUTE format('ALTER TABLE public.%I SET (autovacuum_analyze_threshold = 1000000)', name);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['audit_log', 'execution_output', 'idempotency_keys', 'job_deadlines', 'job_versions', 'monitor_runs', 'monitors', 'notification_deliveries',
                                'notifications', 'objective_counts', 'outcome_deltas', 'outcome_rollups'] LOOP
        EXECUTE format('ALTER TABLE public.%I SET (autovacuum_analyze_threshold = 2000)', name);
    END LOOP;
END
$$;
-- +goose StatementEnd
-- A vacuum has the same effect on plans. PostgreSQL vacuums these tables after 1,000 changes and
-- no longer after 50. Each promotion changes its job, so half of the jobs may be promoted between
-- two analyses.
ALTER TABLE scheduled_jobs SET (autovacuum_vacuum_threshold = 1000, autovacuum_analyze_threshold = 2000, autovacuum_analyze_scale_factor = 0.5);
ALTER TABLE workers SET (autovacuum_vacuum_threshold = 1000);
ALTER TABLE scheduler_locks SET (autovacuum_vacuum_threshold = 1000);
ALTER TABLE idempotency_keys SET (autovacuum_vacuum_threshold = 1000);

-- Down leaves the thresholds: the release before is content with them.
-- +goose Down
SELECT 1;
