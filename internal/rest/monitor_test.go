package rest_test

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/statistics"
	"github.com/scheduler-service/scheduler/internal/statistics/collect"
	"github.com/scheduler-service/scheduler/internal/tenant"
	"github.com/scheduler-service/scheduler/internal/version"
)

// over stores finished executions, one for each of the durations in milliseconds.
func (b *bundle) over(t *testing.T, who tenant.Actor, of uuid.UUID, at time.Time, status string, durations ...int) {
	t.Helper()
	if _, err := b.engine.Pool().Exec(t.Context(), "SELECT create_job_executions_partition($1)", at); err != nil {
		t.Fatal(err)
	}
	for _, ms := range durations {
		_, err := b.engine.Pool().Exec(t.Context(), `INSERT INTO job_executions
			(id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, attempt, completed_at, created_at, duration_ms)
			VALUES (gen_random_uuid(), $1, $2, $3, 1, 'scheduled', 'http', $4, CASE WHEN $5 > 900 THEN 2 ELSE 1 END, $1, $1, CASE WHEN $5 >= 0 THEN $5::bigint END)`, at, who.TenantID, of, status, ms)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestExecutionStats(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Viewer)
	one, two := b.makeJob(t, b.ours).ID, b.makeJob(t, b.ours).ID
	at := func(text string) time.Time {
		parsed, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	hundred := make([]int, 1000)
	for i := range hundred {
		hundred[i] = i + 1
	}
	b.over(t, b.ours, one, at("2026-02-28T16:30:00Z"), "completed", hundred...) // 1 March in Shanghai
	b.over(t, b.ours, one, at("2026-02-28T10:00:00Z"), "failed", 7, 7)
	b.over(t, b.ours, two, at("2026-03-01T20:00:00Z"), "completed", 15)
	b.over(t, b.ours, two, at("2026-03-01T20:59:59Z"), "cancelled", -1)
	b.over(t, b.ours, two, at("2026-03-01T21:00:00Z"), "missed", -1)
	b.over(t, b.ours, two, at("2026-03-02T00:00:00Z"), "completed", 1) // just outside
	b.over(t, b.theirs, b.makeJob(t, b.theirs).ID, at("2026-03-01T20:00:00Z"), "failed", 1)
	ask := func(query string) api.ExecutionStats {
		t.Helper()
		path := base + "/executions/stats?from=2026-02-28T00:00:00Z&to=2026-03-02T00:00:00Z&" + query
		return read[api.ExecutionStats](t, b.do(t, request{method: "GET", path: path, token: token}), http.StatusOK)
	}
	whole := ask("")
	if whole.Total.Count != 1005 || whole.Total.Completed != 1001 || whole.Total.Failed != 2 || whole.Total.Cancelled != 1 || whole.Total.Missed != 1 ||
		whole.Total.Retried != 100 || len(whole.Groups) != 0 || whole.Truncated || *whole.Total.SuccessRate != 1001.0/1003 {
		t.Errorf("the total is %+v", whole)
	}
	d := *whole.Total.DurationMs
	for _, p := range []struct{ got, want float64 }{{d.Avg, (500500 + 14 + 15) / 1003.0}, {d.P50, 499}, {d.P95, 949}, {d.P99, 990}} {
		if math.Abs(p.got-p.want) > 0.03*p.want {
			t.Errorf("a duration is %v, want %v: %+v", p.got, p.want, d)
		}
	}
	groups := func(query string) string {
		t.Helper()
		var text []string
		for _, g := range ask(query).Groups {
			key := g.Key
			if name := g.JobName; name != nil {
				key = *name + " " + key
			}
			text = append(text, fmt.Sprintf("%s:%d", key, g.Count))
		}
		return strings.Join(text, " ")
	}
	for _, test := range []struct{ query, want string }{
		{"groupBy=status", "completed:1001 failed:2 cancelled:1 missed:1"},
		{"groupBy=job", "stored " + one.String() + ":1002 stored " + two.String() + ":3"},
		{"groupBy=jobType", "http:1005"},
		{"groupBy=triggerType", "scheduled:1005"},
		{"groupBy=day", "2026-02-28T00:00:00Z:1002 2026-03-01T00:00:00Z:3"},
		{"groupBy=day&timezone=" + url.QueryEscape("Asia/Shanghai"), "2026-02-28T00:00:00+08:00:2 2026-03-01T00:00:00+08:00:1000 2026-03-02T00:00:00+08:00:3"},
		{"groupBy=hour", "2026-02-28T10:00:00Z:2 2026-02-28T16:00:00Z:1000 2026-03-01T20:00:00Z:2 2026-03-01T21:00:00Z:1"},
		{"groupBy=hour&timezone=Asia/Kolkata&jobId=" + two.String(), "2026-03-02T01:30:00+05:30:2 2026-03-02T02:30:00+05:30:1"},
		{"groupBy=status&jobId=" + two.String(), "cancelled:1 completed:1 missed:1"},
		{"groupBy=status&jobId=" + uuid.NewString(), ""},
		{"groupBy=status&jobType=function", ""},
		{"groupBy=status&triggerType=manual", ""},
	} {
		want := test.want
		if strings.Contains(test.query, "Kolkata") { // its hours begin at the half of ours
			want = "2026-03-02T01:00:00+05:30:1 2026-03-02T02:00:00+05:30:2"
		}
		if got := groups(test.query); got != want {
			t.Errorf("%s: %s, want %s", test.query, got, want)
		}
	}
	small := ask("groupBy=status&jobId=" + two.String()).Groups[1].DurationMs
	if small.Avg != 15 || small.P50 != 15 || small.P99 != 15 {
		t.Errorf("a duration below 20 ms is %+v", small)
	}
	b.over(t, b.ours, two, at("2026-03-01T22:00:00Z"), "completed", 0, 0, 0, 1)
	tiny := ask("groupBy=hour&jobId=" + two.String()).Groups
	if d := tiny[len(tiny)-1].DurationMs; d.Avg != 0.25 || d.P50 != 0 || d.P99 != 1 {
		t.Errorf("durations below 1 ms are %+v", d)
	}
	if none := ask("jobType=function"); none.Total.Count != 0 || none.Total.DurationMs != nil || none.Total.SuccessRate != nil {
		t.Errorf("of nothing they are %+v", none)
	}
	for query, field := range map[string]string{
		"from=2026-01-01T00:00:00Z&to=2026-02-02T00:00:00Z": "to", "groupBy=minute": "groupBy", "timezone=Local": "timezone",
		"timezone=localtime": "timezone", "timezone=right/UTC": "timezone", "timezone=UTC/": "timezone", "timezone=Europe/Nowhere": "timezone",
	} {
		e := refused(t, b.do(t, request{method: "GET", path: base + "/executions/stats?" + query, token: token}), http.StatusBadRequest, "VALIDATION_FAILED")
		if len(e.Error.Details) != 1 || e.Error.Details[0].Field != field {
			t.Errorf("%s: details are %+v", query, e.Error.Details)
		}
	}
}

// The dashboards of one tenant, and those of all.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.wide(t, b.ours)
	paused := b.makeJob(t, b.ours)
	if _, err := b.jobs.Pause(t.Context(), b.ours, paused.ID, "", nil); err != nil {
		t.Fatal(err)
	}
	runs, waits, delayed := b.makeExecution(t, b.ours, made.ID), b.makeExecution(t, b.ours, made.ID), b.makeExecution(t, b.ours, made.ID)
	worker := b.claimer(t)
	worker.claim(runs.ID)
	exec := func(sql string, args ...any) {
		if _, err := b.engine.Pool().Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec("UPDATE active_executions SET available_at = now() - interval '1 minute', priority = 8 WHERE id = $1", waits.ID)
	exec("UPDATE active_executions SET available_at = now() + interval '1 hour' WHERE id = $1", delayed.ID)
	exec("UPDATE scheduled_jobs SET next_execution_at = now() - interval '10 seconds' WHERE id = $1", made.ID)
	exec("UPDATE workers SET running = 7, job_types = '{http,function}', heartbeat_at = now() - interval '2 seconds'")
	exec("INSERT INTO workers (id, host, pid, slots, expires_at) VALUES ($1, 'gone', 1, 1, now() - interval '1 second')", uuid.New())
	b.makeExecution(t, b.theirs, b.wide(t, b.theirs).ID)

	viewer, platform := b.token(t, b.ours, identity.Viewer), b.token(t, b.ours, identity.PlatformAdmin)
	get := func(token, path string) answer {
		return b.do(t, request{method: "GET", path: base + path, token: token})
	}
	status := read[api.Status](t, get(viewer, "/status"), http.StatusOK)
	if status.Jobs.Total != 2 || status.Jobs.Active != 1 || status.Jobs.Paused != 1 || status.Executions.Running != 1 || status.Executions.Waiting != 1 ||
		status.Executions.Delayed != 1 || math.Abs(status.Executions.OldestWaitingSeconds-60) > 120 || math.Abs(status.PromotionLagSeconds-10) > 120 ||
		status.PromotionLagSeconds < 10 || status.ActiveWorkers != 1 || status.Status == "" || status.Version != version.String() {
		t.Errorf("the status is %+v", status)
	}
	queues := read[api.Queues](t, get(viewer, "/queues"), http.StatusOK)
	var lanes []string
	for _, lane := range queues.Lanes {
		lanes = append(lanes, fmt.Sprintf("%s %d %d %d %v", lane.Name, lane.Running, lane.Waiting, lane.Delayed, lane.OldestWaitingSeconds >= 60))
	}
	if diff := cmp.Diff([]string{"high 0 1 0 true", "normal 0 0 0 false", "low 1 0 1 false"}, lanes); diff != "" {
		t.Errorf("the lanes differ (-want +got):\n%s", diff)
	}
	if queues.Service != nil {
		t.Errorf("a viewer sees all tenants' numbers: %+v", *queues.Service)
	}
	if all := read[api.Queues](t, get(platform, "/queues"), http.StatusOK); all.Service == nil {
		t.Error("a platform administrator does not see all tenants' numbers")
	}
	for _, test := range []struct {
		token   string
		running int64
		host    bool
	}{{viewer, 1, false}, {b.token(t, b.theirs, identity.Admin), 0, false}, {platform, 1, true}} {
		list := read[api.WorkerList](t, get(test.token, "/workers"), http.StatusOK)
		if len(list.Items) != 1 {
			t.Fatalf("%d workers are listed, want the one that lives", len(list.Items))
		}
		w := list.Items[0]
		if w.ID != worker.id || w.Slots != 1000 || w.Running != test.running || (w.Host == nil) == test.host || (w.RunningOfAll == nil) == test.host ||
			math.Abs(w.HeartbeatAgeSeconds-2) > 120 || !cmp.Equal(w.JobTypes, []string{"http", "function"}) {
			t.Errorf("the worker is %+v", w)
		}
	}
	theirs := read[api.Status](t, get(b.token(t, b.theirs, identity.Viewer), "/status"), http.StatusOK)
	if theirs.Executions.Waiting != 1 || theirs.Executions.Running != 0 || theirs.Jobs.Total != 1 {
		t.Errorf("another tenant sees %+v", theirs)
	}
}

// The numbers that were taken, of the tenant that asks or of all.
func TestMetrics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	viewer, platform := b.token(t, b.ours, identity.Viewer), b.token(t, b.ours, identity.PlatformAdmin)
	get := func(token, query string) answer {
		return b.do(t, request{method: "GET", path: base + "/metrics" + query, token: token})
	}
	if none := read[api.Metrics](t, get(viewer, ""), http.StatusOK); none.TakenAt != nil || none.Jobs.Total != 0 || none.ErrorRate != nil {
		t.Errorf("before any were taken they are %+v", none)
	}
	for i, whose := range []uuid.UUID{b.ours.TenantID, collect.Service, b.theirs.TenantID} {
		_, err := b.engine.Pool().Exec(t.Context(), `INSERT INTO metric_history (tenant_id, taken_at, jobs, active_jobs, paused_jobs, waiting, running, workers,
				completed, failed, cancelled, skipped, timed_out, retried, timed, duration_ms, coarse)
			SELECT $1, date_bin('30 seconds', now() - n * interval '30 seconds', '2000-01-01 00:00:00+00'), 5, 3, 1, $2::int + 1, 2, 4, 60, 20, 3, 1, 8, 4, 80, 8000, false
			FROM generate_series(0, 2) n`, whose, 10*i)
		if err != nil {
			t.Fatal(err)
		}
	}
	ours := read[api.Metrics](t, get(viewer, ""), http.StatusOK)
	if ours.TakenAt == nil || ours.Jobs.Total != 5 || ours.Jobs.Active != 3 || ours.Jobs.Paused != 1 || ours.Waiting != 1 || ours.Running != 2 || ours.ActiveWorkers != 4 ||
		ours.Executions.Total != 83 || ours.Executions.Completed != 60 || ours.Executions.Failed != 20 || ours.Executions.Cancelled != 3 ||
		*ours.ErrorRate != 0.25 || *ours.TimeoutRate != 0.1 || *ours.RetryRate != 0.05 || ours.DurationMs.Avg != 100 {
		t.Errorf("the numbers are %+v", ours)
	}
	refused(t, get(viewer, "?scope=service"), http.StatusForbidden, "FORBIDDEN")
	refused(t, get(viewer, "/history?scope=service"), http.StatusForbidden, "FORBIDDEN")
	if all := read[api.Metrics](t, get(platform, "?scope=service"), http.StatusOK); all.Waiting != 11 {
		t.Errorf("those of all are %+v", all)
	}
	history := read[api.MetricsHistory](t, get(viewer, "/history?to=2090-01-01T00:00:00Z&from=2020-01-01T00:00:00Z"), http.StatusOK)
	if len(history.Items) != 3 || history.Items[0].Waiting != 1 || !history.Items[0].TakenAt.After(*history.Items[2].TakenAt) {
		t.Errorf("the history is %+v", history)
	}
	if few := read[api.MetricsHistory](t, get(viewer, "/history?limit=2&to=2090-01-01T00:00:00Z&from=2020-01-01T00:00:00Z"), http.StatusOK); len(few.Items) != 2 {
		t.Errorf("%d are listed, want 2", len(few.Items))
	}
	refused(t, get(viewer, "/history?from=2026-01-01T00:00:00Z&to=2026-01-01T00:00:00Z"), http.StatusBadRequest, "VALIDATION_FAILED")
}

// Statistics that take longer than a statement may name the way out, and it is
// one: a range with less in it is answered.
func TestExecutionStatsOverTooMuch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token, id := b.token(t, b.ours, identity.Viewer), b.makeJob(t, b.ours).ID
	b.over(t, b.ours, id, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), "completed", 1)
	// A row that takes a minute to read stands for millions.
	owner, err := pgx.Connect(t.Context(), b.database.OwnerURL)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close(t.Context())
	if _, err := owner.Exec(t.Context(), `CREATE POLICY slow ON job_executions AS RESTRICTIVE FOR SELECT TO scheduler_api USING (pg_sleep(60)::text = '')`); err != nil {
		t.Fatal(err)
	}
	b.impatient(t)
	path := base + "/executions/stats?from=2026-03-01T00:00:00Z&to=2026-03-0"
	e := refused(t, b.again(t, request{method: "GET", path: path + "2T00:00:00Z", token: token}, "STATS_RANGE_TOO_LARGE"), http.StatusUnprocessableEntity, "STATS_RANGE_TOO_LARGE")
	for _, way := range []string{"from and to", "jobId"} {
		if !strings.Contains(e.Error.Message, way) {
			t.Errorf("the message names no %s: %s", way, e.Error.Message)
		}
	}
	got := read[api.ExecutionStats](t, b.again(t, request{method: "GET", path: path + "1T06:00:00Z", token: token}, `"total":`), http.StatusOK)
	if got.Total.Count != 0 {
		t.Errorf("counted %d, want none", got.Total.Count)
	}
}

// impatient gives statistics four seconds for a statement, about what they have in production.
func (b *bundle) impatient(t *testing.T) {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: b.database.URL, Role: postgres.API, Name: "test", MaxConns: 1, StatementTimeout: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	b.deps.Monitor = statistics.NewStore(db)
	b.handler = newHandler(t, b.deps)
}

// again sends a request until the answer has a text, five times at most: on a busy machine
// something else may take too long, too.
func (b *bundle) again(t *testing.T, r request, text string) (got answer) {
	t.Helper()
	for try := 0; try < 5 && !strings.Contains(got.body, text); try++ {
		got = b.do(t, r)
	}
	return got
}
