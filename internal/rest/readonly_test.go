package rest_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/tenant"
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
		if len(e.Error.Details) != 1 || e.Error.Details[0].Field != name || e.Error.Details[0].Rule != "readOnly" || !strings.HasPrefix(e.Error.Message, name+" is read-only") {
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

// A PUT that changes nothing makes no version, in whatever words, as a PATCH; nor does
// it start a job that was stopped.
func TestPutOfWhatIsThereChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	const config = `"config":{"url":"https://example.com/","body":{"password":"open sesame"}}`
	made := read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: `{"name":"a","jobType":"http","interval":"90s",` + config + `}`}), http.StatusCreated)
	path := base + "/jobs/" + made.ID.String()
	put := func(body string) api.Job {
		t.Helper()
		return read[api.Job](t, b.do(t, request{method: "PUT", path: path, token: token, body: body}), http.StatusOK)
	}
	get := func() string { return b.do(t, request{method: "GET", path: path, token: token}).body }
	masked := strings.Replace(config, "open sesame", "***", 1)
	for _, body := range []string{
		get(), `{"name":"a","jobType":"http","interval":"PT1M30S",` + masked + `}`,
		`{"jobType":"http",` + masked + `,"interval":"90s","name":"a","priority":0,"tags":[],"endDate":null,"retryConfig":{"maxRetries":3}}`,
	} {
		if same := put(body); same.Version != 1 || !same.UpdatedAt.Equal(made.UpdatedAt) {
			t.Errorf("%s makes version %d of %v", body, same.Version, same.UpdatedAt)
		}
	}
	// Whether a credential is the stored one, nobody is told.
	if same := put(`{"name":"a","jobType":"http","interval":"90s",` + config + `}`); same.Version != 2 {
		t.Errorf("a credential that is given makes version %d, want 2", same.Version)
	}
	if _, err := b.jobs.Stop(t.Context(), b.ours, made.ID, "gone"); err != nil {
		t.Fatal(err)
	}
	if same := put(get()); same.Version != 2 || same.Status != api.JobStatusInactive {
		t.Errorf("stopped, it becomes %s in version %d", same.Status, same.Version)
	}
	if changed := put(strings.Replace(get(), `"name":"a"`, `"name":"b"`, 1)); changed.Version != 3 || changed.Status != api.JobStatusActive {
		t.Errorf("changed, it becomes %s in version %d", changed.Status, changed.Version)
	}
}

// A caller that changes the definition need not know that somebody paused the job
// meanwhile, and pauses none by writing so.
func TestPutIgnoresAStateFromBefore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.PlatformAdmin)
	made := b.makeJob(t, b.ours)
	path := base + "/jobs/" + made.ID.String()
	before := b.do(t, request{method: "GET", path: path, token: token})
	if _, err := b.jobs.Pause(t.Context(), b.ours, made.ID, "moving", nil); err != nil {
		t.Fatal(err)
	}
	body := strings.Replace(before.body, `"name":"`, `"name":"new `, 1)
	changed := read[api.Job](t, b.do(t, request{method: "PUT", path: path, token: token, body: body, header: map[string]string{"If-Match": before.header.Get("ETag")}}), http.StatusOK)
	if changed.Version != 2 || changed.Status != api.JobStatusPaused || *changed.StatusReason != "moving" || !strings.HasPrefix(changed.Name, "new ") {
		t.Errorf("the job is %+v", changed)
	}
	refused(t, b.do(t, request{method: "PUT", path: path, token: token, body: body}), http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	now := b.do(t, request{method: "GET", path: path, token: token}).body
	for _, body := range []string{
		strings.Replace(now, `"status":"paused"`, `"status":"active"`, 1),
		`{"name":"a","jobType":"http","trigger":"manual","config":{"url":"https://example.com/"},"status":"active"}`,
	} {
		e := refused(t, b.do(t, request{method: "PUT", path: path, token: token, body: body}), http.StatusBadRequest, "VALIDATION_FAILED")
		if len(e.Error.Details) != 1 || e.Error.Details[0].Field != "status" || e.Error.Details[0].Rule != "readOnly" {
			t.Errorf("%s: %+v", body, e.Error)
		}
	}
	// A tenant that was suspended meanwhile likewise.
	if err := tenant.NewStore(b.db, true).Admit(t.Context(), b.theirs.TenantID); err != nil {
		t.Fatal(err)
	}
	path = base + "/tenants/" + b.theirs.TenantID.String()
	got := b.do(t, request{method: "GET", path: path, token: token}).body
	read[api.Tenant](t, b.do(t, request{method: "POST", path: path + "/suspend", token: token, body: `{"reason":"unpaid"}`}), http.StatusOK)
	if kept := read[api.Tenant](t, b.do(t, request{method: "PUT", path: path, token: token, body: got}), http.StatusOK); kept.Status != "suspended" {
		t.Errorf("the tenant is %s", kept.Status)
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
		{`{"cron":"0 9 * * *",`, "cron"},
		{`{"every":"PT30S",`, "every"},
	} {
		e := refused(t, b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: test.given + rest}), http.StatusBadRequest, "VALIDATION_FAILED")
		if len(e.Error.Details) != 1 || e.Error.Details[0].Field != test.field {
			t.Errorf("%s: %+v", test.given, e.Error)
		}
	}
	made := read[api.Job](t, b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: `{"trigger":"manual",` + rest}), http.StatusCreated)
	path := base + "/jobs/" + made.ID.String()
	if *made.Trigger != api.JobTriggerManual || made.NextExecutionAt != nil {
		t.Errorf("the job is %+v", made)
	}
	patch := request{method: "PATCH", path: path, token: token, body: `{"interval":"PT30S"}`, header: map[string]string{"Content-Type": "application/merge-patch+json"}}
	refused(t, b.do(t, patch), http.StatusBadRequest, "VALIDATION_FAILED")
	patch.body = `{"interval":"PT30S","trigger":null}`
	if changed := read[api.Job](t, b.do(t, patch), http.StatusOK); changed.Trigger != nil || changed.NextExecutionAt == nil {
		t.Errorf("patched, the job is %+v", changed)
	}
}
