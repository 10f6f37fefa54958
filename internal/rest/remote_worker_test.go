package rest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/remote"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// registerWorker registers a worker of a tenant that has a function.
func (b *bundle) registerWorker(t testing.TB, who tenant.Actor, function string) remote.Worker {
	t.Helper()
	if err := b.deps.Tenants.Admit(t.Context(), who.TenantID); err != nil {
		t.Fatal(err)
	}
	w, err := b.deps.Remote.Register(t.Context(), who, remote.Spec{
		Name: "w", Slots: 2, Lease: 30 * time.Second, Functions: []remote.Function{{Name: function, Parameters: json.RawMessage(`{}`)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// makeRemoteJob makes a job that calls a function of a tenant's workers.
func (b *bundle) makeRemoteJob(t testing.TB, who tenant.Actor, function string) job.Job {
	t.Helper()
	spec := job.Spec{Name: "report", Type: "remote", Config: json.RawMessage(`{"functionName":"` + function + `","parameters":{"month":"2026-03"}}`)}.WithDefaults()
	made, _, err := b.jobs.Create(t.Context(), who, spec, idempotency.Key{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// A worker needs a key that may work and nothing else, and to report not even that.
func TestRemoteWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, key := b.makeKey(t, b.ours, "workers:run")
	call := func(method, path, body string) answer {
		t.Helper()
		return b.do(t, request{method: method, path: path, body: body, token: key})
	}
	refused(t, call("GET", base+"/jobs", ""), http.StatusForbidden, "FORBIDDEN")
	registered := call("POST", base+"/remote-workers", `{"name":"w","protocol":1,"slots":3,"functions":[
		{"name":"invoice","description":"Sends it.","parameters":{"type":"object","properties":{"month":{"type":"string"}},"required":["month"]}}]}`)
	var w struct {
		ID                             uuid.UUID
		LeaseSeconds, HeartbeatSeconds int
	}
	if err := json.Unmarshal([]byte(registered.body), &w); err != nil || registered.status != http.StatusCreated || w.LeaseSeconds != 30 || w.HeartbeatSeconds != 10 {
		t.Fatalf("registered: %d %s", registered.status, registered.body)
	}
	e := b.makeExecution(t, b.ours, b.makeRemoteJob(t, b.ours, "invoice").ID)
	path := base + "/remote-workers/" + w.ID.String()
	var got struct {
		Executions []struct {
			ExecutionID uuid.UUID
			Token       string
			Parameters  map[string]string
		}
	}
	claimed := call("POST", path+"/claim", `{"most":2}`)
	if err := json.Unmarshal([]byte(claimed.body), &got); err != nil || len(got.Executions) != 1 || got.Executions[0].ExecutionID != e.ID || got.Executions[0].Parameters["month"] != "2026-03" {
		t.Fatalf("claimed: %d %s", claimed.status, claimed.body)
	}
	token := got.Executions[0].Token
	if empty := call("POST", path+"/claim", `{"waitSeconds":0}`); empty.status != http.StatusOK || empty.body != `{"executions":[]}`+"\n" {
		t.Errorf("claimed again: %d %s", empty.status, empty.body)
	}
	if beat := call("POST", path+"/heartbeat", `{"tokens":["`+token+`"]}`); beat.body != `{"attempts":["running"]}`+"\n" {
		t.Errorf("heartbeat: %d %s", beat.status, beat.body)
	}
	for _, step := range []struct {
		path, body string
		status     int
	}{
		{"/progress", `{"progress":40}`, 200},
		{"/output", `{"firstLine":1,"lines":[{"text":"begins","at":"2026-03-01T09:00:00Z"},{"stream":"stderr","text":"a warning"}]}`, 200},
		{"/output", `{"firstLine":1,"lines":[{"text":"begins"}]}`, 200},
		{"/output", `{"firstLine":0,"lines":[]}`, 400},
		{"/complete", `{"result":"` + strings.Repeat("x", executor.MaxResult) + `"}`, 400},
		{"/complete", `{"result":{"sent":1}}`, 200},
		{"/complete", `{"error":{"message":"late"}}`, 409},
	} {
		if got := b.do(t, request{method: "POST", path: "/callbacks/" + token + step.path, body: step.body}); got.status != step.status {
			t.Errorf("%s %.40s: %d %.200s, want %d", step.path, step.body, got.status, got.body, step.status)
		}
	}
	if stored, err := b.executions.Get(t.Context(), b.ours, e.ID); err != nil || stored.Status != execution.Completed || string(stored.Result) != `{"sent": 1}` {
		t.Errorf("stored %+v, %v", stored, err)
	}
	logs := b.do(t, request{method: "GET", path: base + "/executions/" + e.ID.String() + "/logs", token: b.token(t, b.ours, identity.Viewer)})
	for _, want := range []string{`"number":1,"stream":"stdout","text":"begins"`, `"number":2,"stream":"stderr","text":"a warning"`, `"at":"2026-03-01T09:00:00Z"`} {
		if !strings.Contains(logs.body, want) || strings.Count(logs.body, "begins") != 1 {
			t.Errorf("the output has not %s: %d %s", want, logs.status, logs.body)
		}
	}
	if beat := call("POST", path+"/heartbeat", `{"tokens":["`+token+`"]}`); beat.body != `{"attempts":["ended"]}`+"\n" {
		t.Errorf("heartbeat: %d %s", beat.status, beat.body)
	}
	if list := b.do(t, request{method: "GET", path: base + "/remote-workers", token: b.token(t, b.ours, identity.Viewer)}); !strings.Contains(list.body, w.ID.String()) {
		t.Errorf("list: %d %s", list.status, list.body)
	}
	if gone := call("DELETE", path, ""); gone.status != http.StatusNoContent {
		t.Errorf("deregistered: %d %s", gone.status, gone.body)
	}
	for _, step := range []string{"/claim", "/heartbeat"} {
		refused(t, call("POST", path+step, `{}`), http.StatusNotFound, "WORKER_NOT_FOUND")
	}
	if strings.Contains(b.log.String(), token) {
		t.Error("a line of the log holds the token")
	}
}

func TestBadRemoteWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.registerWorker(t, b.ours, "invoice")
	token := b.token(t, b.ours, identity.Developer)
	for _, test := range []struct{ path, body, want string }{
		{"", `{"name":"w","protocol":2,"functions":[{"name":"f"}]}`, "protocol"},
		{"", `{"name":"w","protocol":1,"functions":[]}`, "functions"},
		{"", `{"name":"w","protocol":1,"functions":[{"name":"a b"}]}`, "functions[0].name"},
		{"", `{"name":"w","protocol":1,"functions":[{"name":"f"},{"name":"f"}]}`, "functions[1].name"},
		{"", `{"name":"w","protocol":1,"functions":[{"name":"f","parameters":{"type":1}}]}`, "functions[0].parameters"},
		{"", `{"name":"w","protocol":1,"functions":[{"name":"f"}],"slots":0}`, "slots"},
		{"", `{"name":"w","protocol":1,"functions":[{"name":"f"}],"leaseSeconds":9}`, "leaseSeconds"},
		{"", `{"name":"w","protocol":1,"functions":[{"name":"f"}],"tenantId":"x"}`, "tenantId"},
		{"/" + w.ID.String() + "/claim", `{"most":33}`, "most"},
		{"/" + w.ID.String() + "/claim", `{"waitSeconds":11}`, "waitSeconds"},
		{"/" + w.ID.String() + "/heartbeat", `{"tokens":["short"]}`, "tokens"},
	} {
		got := b.do(t, request{method: "POST", path: base + "/remote-workers" + test.path, body: test.body, token: token})
		if got.status != http.StatusBadRequest || !strings.Contains(got.body, test.want) {
			t.Errorf("%s %s: %d %s, want 400 %s", test.path, test.body, got.status, got.body, test.want)
		}
	}
}
