package rest_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// An execution says what it waits for, alone and in both lists, and nothing
// once it does not wait.
func TestWhatAnExecutionWaitsFor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Viewer)
	made := b.makeJob(t, b.ours)
	one, other := b.makeExecution(t, b.ours, made.ID), b.makeExecution(t, b.ours, made.ID)
	conn, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	until := clock.Now().Add(time.Hour).UTC().Truncate(time.Second)
	for _, step := range []struct {
		sql  string
		args []any
		want any
	}{
		{"SELECT 1", nil, wait("no_worker")},
		{"INSERT INTO workers (id, host, pid, slots, job_types, expires_at) VALUES (gen_random_uuid(), '', 1, 1, '{function}', now() + interval '1 hour')", nil, wait("no_worker")},
		{"UPDATE workers SET job_types = '{function,http}'", nil, wait("dispatching")},
		{"UPDATE running_shards SET runs = 2, runs_by_type = jsonb_build_object('http', 1) WHERE shard = 0 AND tenant_id = $1", []any{b.ours.TenantID}, wait("dispatching")},
		{"UPDATE tenants SET max_running = 2 WHERE id = $1", []any{b.ours.TenantID}, wait("tenant_limit", 2.0, 2.0)},
		{`UPDATE tenants SET max_running_by_type = '{"http": 0}' WHERE id = $1`, []any{b.ours.TenantID}, wait("type_limit", 1.0, 0.0)},
		{"UPDATE active_executions SET concurrency_key = 'k' WHERE id = $1", []any{one.ID}, wait("type_limit", 1.0, 0.0)},
		{"INSERT INTO running_keys (tenant_id, key, execution_id) VALUES ($1, 'k', $2)", []any{b.ours.TenantID, other.ID}, wait("concurrency_key", 1.0, 1.0, "k")},
		{"UPDATE active_executions SET concurrency_limit = (id = $1)::int", []any{one.ID}, wait("job_limit", 1.0, 1.0)},
		{"UPDATE active_executions SET status = 'retrying', available_at = $2::timestamptz WHERE id = $1", []any{one.ID, until}, wait("retry", nil, nil, nil, until.Format(time.RFC3339))},
		{"UPDATE active_executions SET status = 'running', worker_id = id, lease_token = id WHERE id = $1", []any{one.ID}, nil},
	} {
		if _, err := conn.Exec(t.Context(), step.sql, step.args...); err != nil {
			t.Fatal(err)
		}
		got := read[map[string]any](t, b.do(t, request{method: "GET", path: base + "/executions/" + one.ID.String(), token: token}), http.StatusOK)
		if diff := cmp.Diff(step.want, got["waitingOn"]); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", step.sql, diff)
		}
		for _, list := range []string{"/executions", "/jobs/" + made.ID.String() + "/executions"} {
			page := read[struct{ Items []map[string]any }](t, b.do(t, request{method: "GET", path: base + list, token: token}), http.StatusOK)
			for _, item := range page.Items {
				if item["id"] == one.ID.String() && !cmp.Equal(step.want, item["waitingOn"]) {
					t.Errorf("after %s, %s has %v", step.sql, list, item["waitingOn"])
				}
			}
		}
	}
}

// wait is what the contract shows: used, limit, key and until, as far as given.
func wait(reason string, values ...any) any {
	shown := map[string]any{"reason": reason, "used": nil, "limit": nil, "key": nil, "until": nil}
	for i, name := range []string{"used", "limit", "key", "until"} {
		if i < len(values) {
			shown[name] = values[i]
		}
	}
	return shown
}
