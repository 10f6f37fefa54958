package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest"
	page "github.com/scheduler-service/scheduler/internal/rest/console"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
	"github.com/scheduler-service/scheduler/internal/rest/reference"
)

func newHandler(t *testing.T, deps parts.Deps) http.Handler {
	t.Helper()
	handler, err := rest.New(deps)
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// The router serves what the contract says, and nothing else.
func TestTheRouterIsTheContract(t *testing.T) {
	t.Parallel()
	routes, ok := newHandler(t, parts.Deps{CursorSecret: secret}).(chi.Routes)
	if !ok {
		t.Fatal("the handler cannot be walked")
	}
	var served []string
	err := chi.Walk(routes, func(method, path string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if !strings.HasPrefix(path, reference.Path) && !strings.HasPrefix(path, page.Path) { // pages
			served = append(served, method+" "+path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var described []string
	for name := range operations(t) {
		described = append(described, name)
	}
	slices.Sort(served)
	slices.Sort(described)
	if diff := cmp.Diff(described, served); diff != "" {
		t.Errorf("routes differ (-contract +router):\n%s", diff)
	}
}

// The roles' permissions stand in the contract as they are.
func TestTheContractDescribesTheRoles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, role := range []identity.Role{identity.Viewer, identity.Operator, identity.Developer, identity.Admin, identity.PlatformAdmin} {
		if !strings.Contains(b.spec.Info.Description, "`"+string(role)+"`") {
			t.Errorf("the contract does not name the role %s", role)
		}
	}
	for name, operation := range operations(t) {
		if operation.Permission != "public" && !operation.HasSecretPath() && !strings.Contains(b.spec.Info.Description, "`"+operation.Permission+"`") {
			t.Errorf("%s: no role of the description has %s", name, operation.Permission)
		}
	}
}

// Every operation that needs a token may answer 429.
func TestTheContractDescribesTooManyRequests(t *testing.T) {
	t.Parallel()
	spec := described(t)
	for path, item := range spec.Paths.Map() {
		for method, operation := range item.Operations() {
			limited := operation.Responses.Status(http.StatusTooManyRequests) != nil
			if open := operation.Extensions["x-permission"] == "public"; open == limited {
				t.Errorf("%s %s: describes 429: %v", method, path, limited)
			}
		}
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	t.Parallel()
	b := setup(t)
	admin := b.token(t, b.ours, identity.PlatformAdmin)
	id := b.makeJob(t, b.ours).ID.String()
	for _, path := range []string{
		"/", "/api", base, base + "/", base + "/jobs/", base + "/jobs/" + id + "/", base + "/jobs/" + id + "/halt", base + "/jobs//executions", "/metrics", "/debug/pprof/",
		"//api/v1/scheduler/jobs", base + "//jobs", base + "/jobs/../jobs", base + "/./jobs", base + "/jobs;a=b", base + "/JOBS", "/health/", "/HEALTH",
		"/health/live/../../api/v1/scheduler/jobs", "/health%2f..%2fapi/v1/scheduler/jobs", base + "%2fjobs", base + "/job%73%00",
	} {
		for _, token := range []string{"", admin} {
			got := b.send(request{method: "GET", path: path, token: token})
			e := refused(t, got, http.StatusNotFound, "NOT_FOUND")
			if len(e.Error.Details) != 0 || got.header.Get("Content-Type") != "application/json" || !strings.Contains(e.Error.Message, "/docs/openapi.json") ||
				got.header.Get("Link") != `</docs/openapi.json>; rel="service-desc", </docs/>; rel="service-doc"` {
				t.Errorf("%s: %s", path, got.body)
			}
		}
	}
	// An escaped slash stays inside its part of the path.
	refused(t, b.do(t, request{method: "GET", path: base + "/jobs/" + id + "%2fexecutions", token: admin}), http.StatusBadRequest, "VALIDATION_FAILED")
	for _, test := range []struct{ method, path, allow string }{
		{"PATCH", "/jobs", "GET, HEAD, POST, OPTIONS"},
		{"DELETE", "/jobs", "GET, HEAD, POST, OPTIONS"},
		{"POST", "/jobs/" + id, "GET, HEAD, PUT, PATCH, DELETE, OPTIONS"},
		{"GET", "/jobs/" + id + "/trigger", "POST, OPTIONS"},
		{"HEAD", "/jobs/" + id + "/trigger", "POST, OPTIONS"},
		{"TRACE", "/jobs", "GET, HEAD, POST, OPTIONS"},
		{"PROPFIND", "/jobs", "GET, HEAD, POST, OPTIONS"},
		{"get", "/jobs", "GET, HEAD, POST, OPTIONS"},
	} {
		got := b.send(request{method: test.method, path: base + test.path, token: admin, header: map[string]string{"X-HTTP-Method-Override": "GET"}})
		if got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != test.allow {
			t.Errorf("%s %s: %d, Allow %q", test.method, test.path, got.status, got.header.Get("Allow"))
		}
		if test.method != "HEAD" {
			refused(t, got, http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
		}
	}
	for _, method := range []string{"OPTIONS", "PROPFIND"} { // of what is not there
		refused(t, b.send(request{method: method, path: base + "/nothing", token: admin}), http.StatusNotFound, "NOT_FOUND")
	}
}

func TestEveryAnswerIsHardened(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"/health/live", base + "/jobs", "/nothing"} {
		got := b.send(request{method: "GET", path: path, header: map[string]string{"Origin": "https://evil.example", "Host": "evil.example"}})
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Content-Type": "application/json", "Access-Control-Allow-Origin": "", "Server": "",
		} {
			if got.header.Get(name) != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got.header.Get(name), want)
			}
		}
		if strings.Contains(fmt.Sprint(got.header, got.body), "evil") {
			t.Errorf("%s: the answer repeats the caller's host: %v %s", path, got.header, got.body)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	seen := map[string]bool{}
	for _, test := range []struct {
		sent string
		kept bool
	}{
		{"abc-1.2_3", true},
		{strings.Repeat("a", 64), true},
		{"", false},
		{strings.Repeat("a", 65), false},
		{"a b", false},
		{"a\n{\"level\":\"error\"}", false},
		{"é", false},
		{"a;b", false},
		{`"`, false},
	} {
		sent := httptest.NewRequest(http.MethodGet, "/health/live", nil)
		sent.Header["X-Request-Id"] = []string{test.sent}
		recorder := httptest.NewRecorder()
		b.handler.ServeHTTP(recorder, sent)
		got := recorder.Header().Get("X-Request-Id")
		if (got == test.sent) != test.kept || got == "" || seen[got] {
			t.Errorf("sent %q, got %q", test.sent, got)
		}
		seen[got] = true
		if !strings.Contains(b.log.String(), `"request_id":"`+got+`"`) {
			t.Errorf("the log does not name request %s", got)
		}
	}
}

// The documents of the issuer are everybody's, and /internal has none.
func TestWellKnownDocuments(t *testing.T) {
	t.Parallel()
	b := setup(t, func(d *parts.Deps) {
		d.WellKnown = map[string]json.RawMessage{"/.well-known/jwks.json": json.RawMessage(`{"keys":[]}`)}
	})
	got := b.send(request{method: "GET", path: "/.well-known/jwks.json"})
	if got.status != http.StatusOK || got.body != `{"keys":[]}` || got.header.Get("Content-Type") != "application/json" || got.header.Get("Cache-Control") != "public, max-age=300" {
		t.Errorf("%d %s %v", got.status, got.body, got.header)
	}
	refused(t, b.send(request{method: "GET", path: "/.well-known/openid-configuration"}), http.StatusNotFound, "NOT_FOUND")
	refused(t, b.send(request{method: "POST", path: "/.well-known/jwks.json"}), http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
	d := b.deps
	d.Side = parts.Internal
	answer := httptest.NewRecorder()
	newHandler(t, d).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/.well-known/jwks.json", nil))
	if answer.Code != http.StatusNotFound {
		t.Errorf("/internal answers %d", answer.Code)
	}
}
