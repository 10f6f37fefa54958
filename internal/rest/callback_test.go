package rest_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/callback"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/queue"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// unsent takes hints that nobody waits for.
type unsent struct{}

func (unsent) Publish(context.Context, queue.Lane, []uuid.UUID) error { return nil }

func (unsent) PublishTogether(context.Context, queue.Lane, []uuid.UUID) error { return nil }

// awaits has an execution await a callback, as a worker would, and answers its token.
func (b *bundle) awaits(t *testing.T, e execution.Execution) string {
	t.Helper()
	lease := uuid.New()
	_, err := b.engine.Pool().Exec(t.Context(), `UPDATE active_executions SET status = 'running', pooled = false, attempt = 1, lease_token = $2, worker_id = gen_random_uuid(),
		started_at = now(), attempt_started_at = now(), awaited_until = now() + interval '1 hour', sweep_at = 'infinity' WHERE id = $1`, e.ID, lease)
	if err != nil {
		t.Fatal(err)
	}
	token, err := callback.Token(b.keys, callback.Attempt{Tenant: e.TenantID, Fence: dispatch.Fence{ID: e.ID, Attempt: 1, Token: lease}})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// A target reports with the address alone: no token of a tenant, no header.
func TestCallbacks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := b.makeExecution(t, b.ours, b.makeJob(t, b.ours).ID)
	path := "/callbacks/" + b.awaits(t, e)
	stored := func() execution.Execution {
		t.Helper()
		got, err := b.executions.Get(t.Context(), b.ours, e.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	post := func(step, body string) answer {
		t.Helper()
		return b.do(t, request{method: "POST", path: path + step, body: body})
	}
	for _, step := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/heartbeat", "", 200, `"running"`},
		{"/progress", `{"progress":40,"message":"copied ` + strings.Repeat("é", 190) + `"}`, 200, `"running"`}, // of 387 bytes some are kept
		{"/progress", `{"progress":40,"message":""}`, 200, `"running"`},
		{"/progress", `{"progress":40,"message":"` + strings.Repeat("x", 201) + `"}`, 400, "message"},
		{"/progress", `{"progress":101}`, 400, "progress"},
		{"/progress", "", 400, "body"},
		{"/complete", `{"result":1,"error":{"message":"x"}}`, 400, "result"},
		{"/complete", `{"error":{}}`, 400, "error.message"},
		{"/complete", `{"error":{"message":"x","type":"BAD_LUCK"}}`, 400, "error.type"},
		{"/complete", `{"result":"\u0000"}`, 400, "cannot be stored"},
		{"/complete", `{"result":"` + strings.Repeat("x", executor.MaxResult) + `"}`, 400, "262144"},
		{"/complete", `{"result":"` + strings.Repeat("x", 2<<20) + `"}`, 413, ""},
		{"/complete", `{"done":true}`, 400, "done"},
	} {
		if got := post(step.path, step.body); got.status != step.status || !strings.Contains(got.body, step.want) {
			t.Errorf("%s %.60s: %d %.300s, want %d %s", step.path, step.body, got.status, got.body, step.status, step.want)
		}
	}
	if got := stored(); got.Progress != 40 || got.Doing != "copied "+strings.Repeat("é", 96) {
		t.Errorf("progress %d %q", got.Progress, got.Doing)
	}
	for range 2 {
		if got := post("/complete", `{"result":{"rows":7}}`); got.status != http.StatusOK || !strings.Contains(got.body, `"completed"`) {
			t.Errorf("completed: %d %s", got.status, got.body)
		}
	}
	if got := stored(); got.Status != execution.Completed || string(got.Result) != `{"rows": 7}` {
		t.Errorf("stored %+v", got)
	}
	for step, body := range map[string]string{"/complete": `{"error":{"message":"no"}}`, "/heartbeat": "", "/progress": `{"progress":1}`} {
		refused(t, post(step, body), http.StatusConflict, "ATTEMPT_ENDED")
	}
	if strings.Contains(b.log.String(), path) {
		t.Error("a line of the log holds the token")
	}
}

// A token that is none of ours is not found, whatever it is, and counted for its address.
func TestForeignCallbackTokens(t *testing.T) {
	t.Parallel()
	b := setup(t, func(d *parts.Deps) { d.FailuresPerMinute = func() int { return 8 } })
	e := b.makeExecution(t, b.ours, b.makeJob(t, b.ours).ID)
	good := b.awaits(t, e)
	raw, err := base64.RawURLEncoding.DecodeString(good)
	if err != nil {
		t.Fatal(err)
	}
	other := uuid.New()
	tokens := map[string]string{"random": strings.Repeat("Ab3_", 30), "short": strings.Repeat("A", 20), "cut": good[:len(good)-8]}
	for what, at := range map[string]int{"another tenant": 0, "another execution": 16, "another envelope": len(raw) - 16} {
		changed := append([]byte{}, raw...)
		copy(changed[at:], other[:])
		tokens[what] = base64.RawURLEncoding.EncodeToString(changed)
	}
	for what, token := range tokens {
		if got := b.do(t, request{method: "POST", path: "/callbacks/" + token + "/complete"}); got.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", what, got.status, got.body)
		}
	}
	for range 1000 { // on a busy machine some are forgiven meanwhile
		if got := b.do(t, request{method: "POST", path: "/callbacks/" + tokens["random"] + "/heartbeat"}); got.status == http.StatusTooManyRequests {
			if got = b.do(t, request{method: "POST", path: "/callbacks/" + good + "/heartbeat"}); got.status != http.StatusOK {
				t.Errorf("a good token beside them: %d %s", got.status, got.body)
			}
			return
		}
	}
	t.Error("bad tokens are never refused")
}

// The targets of a tenant report so often a second, apart from its other requests.
func TestCallbacksAreLimited(t *testing.T) {
	t.Parallel()
	b := setup(t, func(d *parts.Deps) {
		d.Limits = func() tenant.Limits { return tenant.Limits{RequestsPerSecond: ptr(2)} }
	})
	e := b.makeExecution(t, b.ours, b.makeJob(t, b.ours).ID)
	path := "/callbacks/" + b.awaits(t, e) + "/heartbeat"
	for range 50 {
		if got := b.do(t, request{method: "POST", path: path}); got.status == http.StatusTooManyRequests {
			refused(t, got, http.StatusTooManyRequests, "RATE_LIMITED")
			return
		}
	}
	t.Error("50 reports at once are admitted")
}
