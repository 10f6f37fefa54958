package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// A finished execution shows everything that is known of it.
func TestReadAnExecution(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Viewer)
	made := b.makeJob(t, b.ours)
	worker := uuid.MustParse("0192f0a1-7b3c-7d4e-8f5a-6b7c8d9e0f10")
	at := b.now.Truncate(time.Millisecond)
	insert := func(status, columns, values string, args ...any) uuid.UUID {
		t.Helper()
		id := execution.RequestedID(b.ours.TenantID, made.ID, at, []byte(status))
		_, err := b.engine.Pool().Exec(t.Context(), fmt.Sprintf(`INSERT INTO job_executions
			(id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, completed_at, created_at%s)
			VALUES ($1, $2, $3, $4, 3, 'scheduled', 'http', $5, $2, $2%s)`, columns, values),
			append([]any{id, at, b.ours.TenantID, made.ID, status}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	failed := insert("failed", `, priority, attempt, max_attempts, progress, worker_id, started_at, attempt_started_at, duration_us, result, error_type, error_message, error_stack,
		memory_peak_mb, cpu_time_ms, parameters, triggered_by, attempts`, `, 9, 2, 4, 50, $6, $2, $2, 1234567, '{"status":500}', 'NETWORK_ERROR', 'no answer', 'main.go:1', 1.5, 17, '{"a":null}', 'ada', $7`,
		worker, `[{"number":1,"startedAt":"2026-03-01T09:00:00Z","endedAt":"2026-03-01T09:00:01Z","workerId":"`+worker.String()+`","error":{"type":"TIMEOUT","message":"too slow"}}]`)
	missed := insert("missed", ", reason, missed_count, missed_until", ", 'the service was away', 42, $2")
	// A row from before durations had fractions.
	old := insert("completed", ", attempt, worker_id, started_at, duration_ms", ", 1, $6, $2, 250", worker)
	moment := at.Format(time.RFC3339Nano)
	for _, test := range []struct {
		id   uuid.UUID
		want map[string]any
	}{
		{failed, map[string]any{
			"status": "failed", "reason": nil, "priority": 9.0, "progress": 50.0, "triggeredBy": "ada", "parameters": map[string]any{"a": nil},
			"startedAt": moment, "durationMs": 1234.567, "result": map[string]any{"status": 500.0}, "errorType": "NETWORK_ERROR", "errorMessage": "no answer",
			"errorStack": "main.go:1", "retryCount": 1.0, "maxAttempts": 4.0, "workerId": worker.String(),
			"missedCount": nil, "missedUntil": nil, "attempts": []any{map[string]any{
				"number": 1.0, "status": "failed", "startedAt": "2026-03-01T09:00:00Z", "endedAt": "2026-03-01T09:00:01Z", "durationMs": 1000.0,
				"workerId": worker.String(), "errorType": "TIMEOUT", "errorMessage": "too slow", "errorStack": nil, "logs": logs(failed, 1),
			}, map[string]any{
				"number": 2.0, "status": "failed", "startedAt": moment, "endedAt": moment, "durationMs": 1234.567,
				"workerId": worker.String(), "errorType": "NETWORK_ERROR", "errorMessage": "no answer", "errorStack": "main.go:1", "logs": logs(failed, 2),
			}},
		}},
		{missed, map[string]any{
			"status": "missed", "reason": "the service was away", "priority": 0.0, "progress": 0.0, "triggeredBy": nil, "parameters": nil,
			"startedAt": nil, "durationMs": nil, "result": nil, "errorType": nil, "errorMessage": nil, "errorStack": nil, "retryCount": 0.0, "maxAttempts": 0.0,
			"workerId": nil, "missedCount": 42.0, "missedUntil": moment, "attempts": []any{},
		}},
		{old, map[string]any{
			"status": "completed", "reason": nil, "priority": 0.0, "progress": 0.0, "triggeredBy": nil, "parameters": nil,
			"startedAt": moment, "durationMs": 250.0, "result": nil, "errorType": nil, "errorMessage": nil, "errorStack": nil, "retryCount": 0.0, "maxAttempts": 0.0,
			"workerId": worker.String(), "missedCount": nil, "missedUntil": nil, "attempts": []any{map[string]any{
				"number": 1.0, "status": "completed", "startedAt": moment, "endedAt": moment, "durationMs": 250.0,
				"workerId": worker.String(), "errorType": nil, "errorMessage": nil, "errorStack": nil, "logs": logs(old, 1),
			}},
		}},
	} {
		for name, value := range map[string]any{
			"id": test.id.String(), "tenantId": b.ours.TenantID.String(), "jobId": made.ID.String(), "jobName": made.Name, "jobVersion": 3.0, "jobType": "http",
			"triggerType": "scheduled", "scheduledAt": moment, "completedAt": moment, "createdAt": moment, "backfillId": nil, "retryOf": nil, "retriedAs": nil, "progressMessage": nil, "waitingOn": nil, "nextAttemptAt": nil, "cancelRequested": false, "cancelledBy": nil,
		} {
			test.want[name] = value
		}
		got := b.do(t, request{method: "GET", path: base + "/executions/" + test.id.String(), token: token})
		if diff := cmp.Diff(test.want, read[map[string]any](t, got, http.StatusOK)); diff != "" {
			t.Errorf("the execution differs (-want +got):\n%s", diff)
		}
		list := b.do(t, request{method: "GET", path: base + "/jobs/" + made.ID.String() + "/executions?include=result&status=" + test.want["status"].(string), token: token})
		var page struct{ Items []json.RawMessage }
		if err := json.Unmarshal([]byte(list.body), &page); err != nil || len(page.Items) != 1 || string(page.Items[0]) != strings.TrimSpace(got.body) {
			t.Errorf("listed it is %s", list.body)
		}
	}
}

// logs is where an attempt's output is read.
func logs(id uuid.UUID, attempt int) string {
	return fmt.Sprintf("%s/executions/%s/logs?attempt=%d", base, id, attempt)
}

// A running execution does not wait for an attempt, and says whether its cancellation was
// requested.
func TestReadARunningExecution(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.makeJob(t, b.ours)
	run := b.makeExecution(t, b.ours, made.ID)
	worker := uuid.New()
	_, err := b.engine.Pool().Exec(t.Context(), `UPDATE active_executions SET status = 'running', attempt = 3, worker_id = $1, lease_token = $1,
		started_at = now(), attempt_started_at = now(), deadline_at = now(), cancel_requested_at = now() WHERE id = $2`, worker, run.ID)
	if err != nil {
		t.Fatal(err)
	}
	got := read[map[string]any](t, b.do(t, request{method: "GET", path: base + "/executions/" + run.ID.String(), token: b.token(t, b.ours, identity.Viewer)}), http.StatusOK)
	for name, want := range map[string]any{"status": "running", "retryCount": 2.0, "nextAttemptAt": nil, "cancelRequested": true, "workerId": worker.String(), "completedAt": nil} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	want := map[string]any{
		"number": 3.0, "status": "running", "startedAt": got["startedAt"], "endedAt": nil, "durationMs": nil, "workerId": worker.String(),
		"errorType": nil, "errorMessage": nil, "errorStack": nil, "logs": logs(run.ID, 3),
	}
	if diff := cmp.Diff([]any{want}, got["attempts"]); diff != "" {
		t.Errorf("attempts differ (-want +got):\n%s", diff)
	}
}

func TestExecutionsThatAreNotThere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Viewer)
	for _, id := range []string{uuid.NewString(), uuid.Must(uuid.NewV7()).String(), uuid.Nil.String(), uuid.Max.String(), b.makeJob(t, b.ours).ID.String()} {
		refused(t, b.do(t, request{method: "GET", path: base + "/executions/" + id, token: token}), http.StatusNotFound, "EXECUTION_NOT_FOUND")
	}
	refused(t, b.do(t, request{method: "GET", path: base + "/jobs/" + uuid.NewString() + "/executions", token: token}), http.StatusNotFound, "JOB_NOT_FOUND")
}

// The last runs of jobs, in the order in which they are asked for; another tenant's job has none.
func TestRecentRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second, theirs := b.wide(t, b.ours), b.makeJob(t, b.ours), b.makeJob(t, b.theirs)
	b.makeExecution(t, b.theirs, theirs.ID)
	var made []uuid.UUID
	for range 3 {
		made = append(made, b.makeExecution(t, b.ours, first.ID).ID)
	}
	got := read[api.RecentRuns](t, b.do(t, request{
		method: "GET", token: b.token(t, b.ours, identity.Viewer),
		path: fmt.Sprintf("%s/recent-runs?jobId=%s&jobId=%s&jobId=%s&limit=2", base, second.ID, first.ID, theirs.ID),
	}), http.StatusOK)
	if len(got.Items) != 3 || got.Items[0].JobID != second.ID || len(got.Items[0].Runs) != 0 || len(got.Items[2].Runs) != 0 {
		t.Fatalf("%+v", got)
	}
	runs := got.Items[1].Runs
	if len(runs) != 2 || runs[0].ID != made[2] || runs[1].ID != made[1] || runs[0].Status != api.ExecutionStatusPending || runs[0].DurationMs != nil {
		t.Errorf("%+v", runs)
	}
}
