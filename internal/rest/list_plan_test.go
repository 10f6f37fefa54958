package rest_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// each is how many rows fill makes of each tenant and job.
const each = 300

// fill fills the tables of the smaller lists, for ten tenants with one job each.
const fill = `
CREATE TEMPORARY TABLE t AS SELECT gen_random_uuid() AS id, gen_random_uuid() AS job, now() - n * interval '1 minute' AS at FROM generate_series(1, 10) n;
CREATE TEMPORARY TABLE r AS SELECT t.*, n, t.at - n * interval '1 s' AS made FROM t, generate_series(1, 300) n;
INSERT INTO tenants (id, name, created_at) SELECT id, 'x', at FROM t;
INSERT INTO tenants (id, name, created_at) SELECT gen_random_uuid(), 'x', made FROM r;
INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds) SELECT job, id, 'x', 'ada', 'http', '{}', 1, 1 FROM t;
INSERT INTO scheduled_jobs (id, tenant_id, name, set_name, created_by, job_type, config, max_attempts, timeout_seconds)
	SELECT gen_random_uuid(), id, 'j' || n, 's' || n % 3, 'ada', 'http', '{}', 1, 1 FROM r;
INSERT INTO job_versions (job_id, version, tenant_id, spec, created_by) SELECT job, n, id, '{}', 'ada' FROM r;
INSERT INTO api_keys (id, tenant_id, name, prefix, hash, scopes, created_by, created_at) SELECT gen_random_uuid(), id, 'x', 'x', sha256('x'), '{}', 'ada', made FROM r;
INSERT INTO calendars (id, tenant_id, name, days, created_at) SELECT gen_random_uuid(), id, 'c' || n, '[]', made FROM r;
INSERT INTO circuit_breakers (id, tenant_id, host, state, failures, failing_since, failed_at, reason, pause_seconds, created_at) SELECT gen_random_uuid(), id, 'h' || n, 'closed', 1, made, made, '', 30, made FROM r;
INSERT INTO functions (id, tenant_id, name, digest, size_bytes, created_by, updated_by, created_at) SELECT gen_random_uuid(), id, 'f' || n, repeat('a', 64), 9, 'ada', 'ada', made FROM r;
INSERT INTO secrets (id, tenant_id, name, key_id, sealed, created_by, updated_by, created_at) SELECT gen_random_uuid(), id, 's' || n, 'k', 'x', 'ada', 'ada', made FROM r;
INSERT INTO notifications (id, tenant_id, name, kind, events, created_by, created_at) SELECT gen_random_uuid(), id, 'n' || n, 'webhook', '{}', 'ada', made FROM r;
INSERT INTO dead_letters (execution_id, tenant_id, job_id, error_type, error_message, fingerprint, failed_at, scheduled_at)
	SELECT gen_random_uuid(), id, job, 'TIMEOUT', 'x', lpad((n % 3)::text, 16, '0'), made, made FROM r;
INSERT INTO dead_letter_replays (id, tenant_id, selected, from_at, to_at, rate_per_minute, no_secrets, status, after_at, after_id, total, next_at, requested_by, created_at)
	SELECT gen_random_uuid(), id, n::text, made, made, 1, true, 'completed', made, id, 1, made, 'ada', made FROM r;
INSERT INTO notification_deliveries (id, notification_id, tenant_id, events, event_count, created_at, next_attempt_at, give_up_at)
	SELECT gen_random_uuid(), job, id, '[]', 1, made, made, made FROM r;
INSERT INTO backfills (id, tenant_id, job_id, job_version, from_at, to_at, cursor_at, rate_per_minute, total, requested_by, created_at)
	SELECT gen_random_uuid(), id, job, 1, made, at, made, 1, 1, 'ada', made FROM r;
INSERT INTO audit_log (tenant_id, strand, seq, at, actor_kind, actor, address, request_id, action, object_type, object_id, change, prev_hash, hash)
	SELECT id, 0, n, made, 'user', 'ada', '', '', 'x', 'job', 'o' || n % 10, 'update', sha256('x'), sha256('x') FROM r;
INSERT INTO monitors (id, tenant_id, name, interval_seconds, start_grace_seconds, completion_grace_seconds, ping_key, created_by, created_at)
	SELECT gen_random_uuid(), id, 'm' || n, 60, 60, 60, gen_random_uuid()::text, 'ada', made FROM r;
INSERT INTO monitors (id, tenant_id, name, interval_seconds, start_grace_seconds, completion_grace_seconds, ping_key, created_by, created_at)
	SELECT job, id, 'm', 60, 60, 60, gen_random_uuid()::text, 'ada', at FROM t;
INSERT INTO monitor_runs (monitor_id, place, n, tenant_id, at, outcome) SELECT job, n, n, id, made, 'completed' FROM r;
INSERT INTO metric_history SELECT id, made, true, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 FROM r`

// The smaller lists read the page that they answer, by an index, whatever else
// the tables hold; those of one job at most what that job has. Executions and jobs have such tests of their own, because there
// is more to them.
func TestListsReadAPage(t *testing.T) {
	t.Parallel()
	const page = 20
	conn, err := pgx.Connect(t.Context(), pgtest.New(t).AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	if _, err := conn.PgConn().Exec(t.Context(), fill).ReadAll(); err != nil {
		t.Fatal(err)
	}
	var tenantID, jobID uuid.UUID
	if err := conn.QueryRow(t.Context(), "SELECT id, job FROM t ORDER BY at OFFSET 5 LIMIT 1").Scan(&tenantID, &jobID); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.PgConn().Exec(t.Context(), "ANALYZE; SET ROLE scheduler_api; SET app.platform = 'on'; SET enable_sort = off").ReadAll(); err != nil {
		t.Fatal(err)
	}
	far, object, group := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), "o3", "0000000000000001"
	entries := db.ListAuditEntriesParams{TenantID: tenantID, BeforeAt: far, BeforeShard: 8, ScanRows: 10_000, PageSize: page}
	ofObject, ofNobody := entries, entries
	ofNobody.Actor, ofNobody.ScanRows = &object, 5*page
	ofObject.ObjectID = &object
	empty := map[string]bool{"active_executions": true, "audit_anchors": true, "audit_heads": true, "outcome_deltas": true, "job_definitions": true, "job_schedule": true}
	for _, test := range []struct {
		name string
		most float64 // rows that one step touches
		ask  func(context.Context, *db.Queries) error
	}{
		{"API keys", page, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListApiKeys(ctx, db.ListApiKeysParams{TenantID: tenantID, BeforeCreatedAt: far, PageSize: page})
			return err
		}},
		{"audit", page + 1, func(ctx context.Context, q *db.Queries) error { _, err := q.ListAuditEntries(ctx, entries); return err }},
		{"audit of an object", 10 * page, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListAuditEntries(ctx, ofObject)
			return err
		}},
		{"audit of nobody, over 100 entries", 5 * page, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListAuditEntries(ctx, ofNobody)
			return err
		}},
		{"audit, to verify", page, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListAuditLinks(ctx, db.ListAuditLinksParams{TenantID: tenantID, FromSeq: 100, PageSize: page})
			return err
		}},
		{"backfills", each, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListBackfillsByJob(ctx, db.ListBackfillsByJobParams{TenantID: tenantID, JobID: jobID, BeforeCreatedAt: far, PageSize: page})
			return err
		}},
		{"calendars", page, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListCalendars(ctx, db.ListCalendarsParams{TenantID: tenantID, BeforeCreatedAt: far, PageSize: page})
			return err
		}},
		{"dead letters, with the name of one of ten jobs each", 10 * page, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListDeadLetters(ctx, db.ListDeadLettersParams{TenantID: tenantID, BeforeAt: far, ToAt: far, PageSize: page})
			return err
		}},
		{"replays of dead letters", page, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListDeadLetterReplays(ctx, db.ListDeadLetterReplaysParams{TenantID: tenantID, BeforeCreatedAt: far, PageSize: page})
			return err
		}},
		{"dead letters of a group", each, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListDeadLetters(ctx, db.ListDeadLettersParams{TenantID: tenantID, BeforeAt: far, ToAt: far, Fingerprint: &group, PageSize: page})
			return err
		}},
		{"groups of dead letters", each, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListDeadLetterGroups(ctx, db.ListDeadLetterGroupsParams{TenantID: tenantID, ToAt: far, PageSize: page})
			return err
		}},
		{"notifications", page, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListNotifications(ctx, db.ListNotificationsParams{TenantID: tenantID, BeforeCreatedAt: far, PageSize: page})
			return err
		}},
		{"monitors", page, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListMonitors(ctx, db.ListMonitorsParams{TenantID: tenantID, BeforeCreatedAt: far, PageSize: page})
			return err
		}},
		{"runs of a monitor", each, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListMonitorRuns(ctx, db.ListMonitorRunsParams{TenantID: tenantID, MonitorID: jobID, BeforeN: 200, PageSize: page})
			return err
		}},
		{"runs of monitors", page, func(ctx context.Context, q *db.Queries) error {
			_, err := q.CountMonitorRuns(ctx, db.CountMonitorRunsParams{TenantID: tenantID, FromAt: time.Unix(0, 0), ToAt: far, Most: page})
			return err
		}},
		{"deliveries", page, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListNotificationDeliveries(ctx, db.ListNotificationDeliveriesParams{TenantID: tenantID, NotificationID: jobID, BeforeCreatedAt: far, PageSize: page})
			return err
		}},
		{"sets, each with its jobs", each, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListJobSets(ctx, db.ListJobSetsParams{TenantID: tenantID, PageSize: page})
			return err
		}},
		{"versions", each, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListJobVersions(ctx, db.ListJobVersionsParams{TenantID: tenantID, JobID: jobID, BeforeVersion: 200, PageSize: page})
			return err
		}},
		{"functions", page, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListFunctions(ctx, db.ListFunctionsParams{TenantID: tenantID, BeforeCreatedAt: far, PageSize: page})
			return err
		}},
		{"jobs of a set", page, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListSetJobs(ctx, db.ListSetJobsParams{TenantID: tenantID, SetName: "s1", AfterName: "j1", PageSize: page})
			return err
		}},
		{"circuit breakers", page, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListBreakers(ctx, db.ListBreakersParams{TenantID: tenantID, BeforeCreatedAt: far, PageSize: page})
			return err
		}},
		{"secrets", page, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListSecrets(ctx, db.ListSecretsParams{TenantID: tenantID, BeforeCreatedAt: far, PageSize: page})
			return err
		}},
		{"tenants", page, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListTenants(ctx, db.ListTenantsParams{BeforeCreatedAt: far, PageSize: page})
			return err
		}},
		{"metrics", page, func(ctx context.Context, q *db.Queries) error {
			_, err := q.ListMetrics(ctx, db.ListMetricsParams{TenantID: tenantID, FromAt: time.Unix(0, 0), ToAt: far, PageSize: page})
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				if mode == "force_generic_plan" && test.name == "audit of an object" {
					continue // postgres.InList has it planned for each call
				}
				plan := pgtest.Explain(t, conn, mode, tenantID, func(ctx context.Context, s *pgtest.Statement) error { return test.ask(ctx, db.New(s)) })
				plan.Walk(func(n pgtest.PlanNode) {
					if n.Relation != "" && n.Loops > 0 && (n.Touched() > test.most || n.Type == "Seq Scan" && !empty[n.Relation]) {
						t.Errorf("%s: %s on %s %s touches %.0f rows, want %.0f at most", mode, n.Type, n.Relation, n.Index, n.Touched(), test.most)
					}
				})
			}
		})
	}
}
