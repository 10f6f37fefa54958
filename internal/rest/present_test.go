package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// A read that names what it knows already is answered without a body, and
// every change of what is shown gives another tag.
func TestReadsOfWhatIsKnown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Admin)
	made, calendar := b.makeJob(t, b.ours), b.makeCalendar(t, b.ours)
	b.makeSecret(t, b.ours, "key", "value")
	run := b.makeExecution(t, b.ours, made.ID)
	job := "/jobs/" + made.ID.String()
	for _, path := range []string{
		"/jobs", job, job + "/versions", job + "/versions/1", job + "/executions", "/executions/" + run.ID.String(), "/executions",
		"/calendars", "/calendars/" + calendar.ID.String(), "/secrets/key", "/secrets", "/api-keys", "/tenant", "/audit?action=createJob",
	} {
		get := request{method: "GET", path: base + path, token: token, header: map[string]string{}}
		first := b.do(t, get)
		tag := first.header.Get("ETag")
		if first.status != http.StatusOK || tag == "" {
			t.Fatalf("%s: %d, ETag %q", path, first.status, tag)
		}
		for _, known := range []string{tag, "W/" + strings.TrimPrefix(tag, "W/"), "*", `"x", ` + tag + `, "y"`} {
			get.header["If-None-Match"] = known
			got := b.do(t, get)
			if got.status != http.StatusNotModified || got.body != "" || got.header.Get("ETag") != tag || got.header.Get("Content-Type") != "" {
				t.Errorf("%s with If-None-Match %s: %d %s, %v", path, known, got.status, got.body, got.header)
			}
		}
		get.header["If-None-Match"] = `"1", W/"9f2c5b1e7d3a4f60"`
		if got := b.do(t, get); got.status != http.StatusOK || got.body != first.body {
			t.Errorf("%s with another tag: %d", path, got.status)
		}
		delete(get.header, "If-None-Match")
		get.method = "HEAD"
		if head := b.send(get); head.status != http.StatusOK || head.body != "" || head.header.Get("ETag") != tag {
			t.Errorf("HEAD %s: %d %s, %v", path, head.status, head.body, head.header)
		}
	}
	before := b.do(t, request{method: "GET", path: base + job, token: token})
	read[api.Job](t, b.do(t, request{method: "POST", path: base + job + "/pause", token: token}), http.StatusOK)
	paused := b.do(t, request{method: "GET", path: base + job, token: token, header: map[string]string{"If-None-Match": before.header.Get("ETag")}})
	if paused.status != http.StatusOK || !tagged(paused, 1) {
		t.Errorf("of the paused job: %d, ETag %s", paused.status, paused.header.Get("ETag"))
	}
	// To change it, what was known before the pause is enough.
	patch := request{
		method: "PATCH", path: base + job, token: token, body: `{"name":"b"}`,
		header: map[string]string{"Content-Type": "application/merge-patch+json", "If-Match": before.header.Get("ETag")},
	}
	if got := b.do(t, patch); got.status != http.StatusOK || !tagged(got, 2) {
		t.Errorf("patched: %d %s", got.status, got.body)
	}
	patch.body = `{"name":"c"}`
	refused(t, b.do(t, patch), http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	if got := b.do(t, request{method: "GET", path: "/health", header: map[string]string{"If-None-Match": "*"}}); got.status != http.StatusOK || got.header.Get("ETag") != "" {
		t.Errorf("the health check: %d, %v", got.status, got.header)
	}
}

// Texts are answered as they are, with nothing escaped for pages.
func TestTextsAreNotEscapedForPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	const name = `<b>&\\u003c"\u2028` // in JSON: a backslash and u003c, not an escape
	got := b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: `{"name":"` + strings.ReplaceAll(name, `"`, `\"`) + `","trigger":"manual","jobType":"http","config":{"url":"https://example.com/?a=1&b=<c>"}}`})
	made := read[api.Job](t, got, http.StatusCreated)
	if made.Name != "<b>&\\u003c\"\u2028" || !strings.Contains(got.body, `"<b>&\\u003c\"`) || !strings.Contains(got.body, `?a=1&b=<c>`) {
		t.Errorf("answered %s", got.body)
	}
	e := b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: `{"<x>&":1}`})
	if e.status != http.StatusBadRequest || !strings.Contains(e.body, `"<x>&"`) {
		t.Errorf("answered %s", e.body)
	}
}

// A creation that says nothing is told all that is missing, under one code.
func TestCreationsNameAllThatIsMissing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token, job := b.token(t, b.ours, identity.PlatformAdmin), b.makeJob(t, b.ours)
	for _, test := range []struct {
		method, path string
		want         []string
	}{
		{"POST", "/jobs", []string{"config", "jobType", "name", "trigger"}},
		{"POST", "/jobs/validate", []string{"config", "jobType", "name", "trigger"}},
		{"PUT", "/jobs/" + job.ID.String(), []string{"config", "jobType", "name", "trigger"}},
		{"POST", "/jobs/" + job.ID.String() + "/backfills", []string{"from", "to"}},
		{"POST", "/calendars", []string{"days", "name"}},
		{"POST", "/api-keys", []string{"name", "scopes"}},
		{"POST", "/tenants", []string{"name"}},
		{"PUT", "/secrets/key", []string{"value"}},
	} {
		e := refused(t, b.do(t, request{method: test.method, path: base + test.path, token: token, body: `{}`}), http.StatusBadRequest, "VALIDATION_FAILED")
		var missing []string
		for _, d := range e.Error.Details {
			if d.Rule == "required" && strings.HasPrefix(d.Message, "is missing") {
				missing = append(missing, d.Field)
			}
		}
		if diff := cmp.Diff(test.want, missing); diff != "" || len(e.Error.Details) != len(missing) {
			t.Errorf("%s %s (-want +got):\n%s%+v", test.method, test.path, diff, e.Error.Details)
		}
	}
}

// OPTIONS tells what a path has, without a token.
func TestOptionsOfAPath(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for path, allow := range map[string]string{
		base + "/executions": "GET, HEAD, OPTIONS", base + "/jobs/" + uuid.NewString() + "/trigger": "POST, OPTIONS", "/health": "GET, HEAD, OPTIONS", "/docs": "GET, HEAD, OPTIONS",
		"/internal/jobs/create": "POST, OPTIONS",
	} {
		if got := b.send(request{method: "OPTIONS", path: path}); got.status != http.StatusNoContent || got.header.Get("Allow") != allow || got.body != "" {
			t.Errorf("%s: %d, Allow %q, %s", path, got.status, got.header.Get("Allow"), got.body)
		}
	}
}

// A change of a tenant or a secret may state the version that the caller knows.
func TestChangesOfWhatIsKnown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	platform, developer := b.token(t, b.ours, identity.PlatformAdmin), b.token(t, b.ours, identity.Developer)
	theirs := tenant.Actor{TenantID: uuid.New()}
	created := b.do(t, request{method: "POST", path: base + "/tenants", token: platform, body: `{"id":"` + theirs.TenantID.String() + `","name":"theirs"}`})
	if made := read[api.Tenant](t, created, http.StatusCreated); made.Version != 1 || !tagged(created, 1) {
		t.Errorf("created %s, ETag %s", created.body, created.header.Get("ETag"))
	}
	secret := func(n string) string { return `{"value":"` + n + `"}` }
	b.makeSecret(t, b.ours, "key", "value")
	for _, thing := range []struct {
		path, token string
		body        func(n string) string
	}{
		{"/tenants/" + theirs.TenantID.String(), platform, func(n string) string { return `{"name":"` + n + `"}` }},
		{"/secrets/key", developer, secret},
	} {
		put := func(match, n string) answer {
			r := request{method: "PUT", path: base + thing.path, token: thing.token, body: thing.body(n), header: map[string]string{}}
			if match != "" {
				r.header["If-Match"] = match
			}
			return b.do(t, r)
		}
		known := b.do(t, request{method: "GET", path: base + thing.path, token: thing.token}).header.Get("ETag")
		second := put(known, "two")
		if second.status != http.StatusOK || !tagged(second, 2) {
			t.Fatalf("%s: %d %s, ETag %s", thing.path, second.status, second.body, second.header.Get("ETag"))
		}
		for _, stale := range []string{known, `"1"`, `W/"2"`, `"02"`, `"x"`} {
			refused(t, put(stale, "three"), http.StatusPreconditionFailed, "PRECONDITION_FAILED")
		}
		for i, match := range []string{"", "*", `"4"`} {
			if got := put(match, "four"); got.status != http.StatusOK || !tagged(got, 3+i) {
				t.Errorf("%s with If-Match %s: %d %s", thing.path, match, got.status, got.body)
			}
		}
	}
	for _, match := range []string{"*", `"1"`} { // of what is not there
		refused(t, b.do(t, request{method: "PUT", path: base + "/secrets/new", token: developer, body: secret("a"), header: map[string]string{"If-Match": match}}),
			http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	}
}
