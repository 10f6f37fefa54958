package rest_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// A PUT takes back what a GET answered. It may not change read-only fields, but
// for those that change by themselves.
func TestPutTakesBackWhatGetAnswered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	made := b.makeJob(t, b.ours)
	path := base + "/jobs/" + made.ID.String()
	got := b.do(t, request{method: "GET", path: path, token: token})
	if read[api.Job](t, got, http.StatusOK).Version != 1 {
		t.Fatal("the job is not as it was made")
	}
	put := func(path, method string, change map[string]any) answer {
		t.Helper()
		var body map[string]any
		if err := json.Unmarshal([]byte(got.body), &body); err != nil {
			t.Fatal(err)
		}
		maps.Copy(body, change)
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		return b.do(t, request{method: method, path: path, token: token, body: string(raw)})
	}
	if seen := put(path+"/validate", "POST", nil); seen.status != http.StatusOK {
		t.Errorf("as it is, it is refused: %s", seen.body)
	}
	for name, value := range map[string]any{"id": b.theirs.TenantID.String(), "status": "paused", "createdAt": "2020-01-01T00:00:00Z", "statusReason": "x"} {
		e := refused(t, put(path, "PUT", map[string]any{name: value}), http.StatusBadRequest, "VALIDATION_FAILED")
		if len(e.Error.Details) != 1 || e.Error.Details[0].Field != name || e.Error.Details[0].Rule != "readOnly" || !strings.HasPrefix(e.Error.Message, name+" is only read") {
			t.Errorf("%s: %+v", name, e.Error)
		}
	}
	changed := read[api.Job](t, put(path, "PUT", map[string]any{"name": "renamed", "executionCount": 99, "nextExecutionAt": nil}), http.StatusOK)
	if changed.Name != "renamed" || changed.Version != 2 || changed.ExecutionCount != made.ExecutionCount {
		t.Errorf("changed, it is %+v", changed)
	}
	// The GET answered version 1, and never a version 7.
	for _, version := range []int{1, 7} {
		e := refused(t, put(path, "PUT", map[string]any{"name": "again", "version": version}), http.StatusPreconditionFailed, "PRECONDITION_FAILED")
		if !strings.Contains(e.Error.Message, "at version 2 now") {
			t.Errorf("version %d: %s", version, e.Error.Message)
		}
	}
	refused(t, put(base+"/jobs", "POST", nil), http.StatusBadRequest, "VALIDATION_FAILED")
	if e := refused(t, put(path, "PUT", map[string]any{"colour": "red", "version": 2}), http.StatusBadRequest, "VALIDATION_FAILED"); e.Error.Details[0].Field != "colour" {
		t.Errorf("an unknown field is answered %+v", e.Error)
	}
}

func TestPutTakesBackACalendarAndATenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.PlatformAdmin)
	made := read[api.Calendar](t, b.do(t, request{method: "POST", path: base + "/calendars", token: token, body: `{"name":"a","days":[{"start":"2026-12-24"}]}`}), http.StatusCreated)
	for _, path := range []string{base + "/calendars/" + made.ID.String(), base + "/tenants/" + b.ours.TenantID.String()} {
		got := b.do(t, request{method: "GET", path: path, token: token})
		if back := b.do(t, request{method: "PUT", path: path, token: token, body: got.body}); back.status != http.StatusOK {
			t.Errorf("%s takes %s and answers %s", path, got.body, back.body)
		}
		got = b.do(t, request{method: "GET", path: path, token: token})
		other := strings.Replace(got.body, `"id":"`, `"id":"f`, 1)
		if back := b.do(t, request{method: "PUT", path: path, token: token, body: strings.Replace(other, `"id":"f0`, `"id":"f1`, 1)}); back.status != http.StatusBadRequest {
			t.Errorf("%s takes another id and answers %s", path, back.body)
		}
	}
}

// A job without a schedule says so: one that was forgotten would never run.
func TestAJobSaysWhenItRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	const rest = `"name":"a","jobType":"http","config":{"url":"https://example.com/"}}`
	for _, test := range []struct{ given, field string }{
		{`{`, "trigger"},
		{`{"trigger":null,`, "trigger"},
		{`{"trigger":"manual","interval":"PT30S",`, "trigger"},
		{`{"trigger":"schedule","interval":"PT30S",`, "trigger"},
		{`{"interval":5,`, "interval"},
		{`{"interval":"often",`, "interval"},
	} {
		e := refused(t, b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: test.given + rest}), http.StatusBadRequest, "VALIDATION_FAILED")
		if len(e.Error.Details) != 1 || e.Error.Details[0].Field != test.field {
			t.Errorf("%s: %+v", test.given, e.Error)
		}
	}
	made := read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: `{"trigger":"manual",` + rest}), http.StatusCreated)
	path := base + "/jobs/" + made.ID.String()
	if made.Trigger.MustGet() != api.JobTriggerManual || !made.NextExecutionAt.IsNull() {
		t.Errorf("the job is %+v", made)
	}
	patch := request{method: "PATCH", path: path, token: token, body: `{"interval":"PT30S"}`, header: map[string]string{"Content-Type": "application/merge-patch+json"}}
	refused(t, b.do(t, patch), http.StatusBadRequest, "VALIDATION_FAILED")
	patch.body = `{"interval":"PT30S","trigger":null}`
	if changed := read[api.Job](t, b.do(t, patch), http.StatusOK); !changed.Trigger.IsNull() || changed.NextExecutionAt.IsNull() {
		t.Errorf("patched, the job is %+v", changed)
	}
}
