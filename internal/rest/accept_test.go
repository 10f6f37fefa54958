package rest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest/contract"
)

// Which headers Accept admit JSON, asked of the handler as a client would.
func TestAcceptIsNegotiated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, test := range []struct {
		lines []string
		ok    bool
	}{
		{nil, true},
		{[]string{""}, true},
		{[]string{" , ,"}, true},
		{[]string{"*/*"}, true},
		{[]string{"application/*"}, true},
		{[]string{"application/json"}, true},
		{[]string{"Application/JSON; charset=utf-8"}, true},
		{[]string{"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"}, true}, // a browser
		{[]string{"text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"}, true},                       // Java's own client
		{[]string{"text/html", "application/json"}, true},
		{[]string{"application/json;q=0.001"}, true},
		{[]string{"*/*;q=0, application/*;q=0, application/json"}, true},
		{[]string{"application/*;q=0, application/json;q=1.000"}, true},
		{[]string{`text/html;x="a,b;q=0", application/json`}, true},
		{[]string{"application/json;q=0, application/json;q=1"}, true},
		{[]string{"nonsense"}, true},
		{[]string{"*/json"}, true},
		{[]string{"text/html;q=2"}, true},
		{[]string{"text/html;q=-1"}, true},
		{[]string{"text/html;q"}, true},
		{[]string{"text/html;level=1;level=2"}, true},
		{[]string{"text/html, /"}, true},

		{[]string{"text/html"}, false},
		{[]string{"text/*"}, false},
		{[]string{"application/xml"}, false},
		{[]string{"application/problem+json"}, false},
		{[]string{"application/jsonx"}, false},
		{[]string{"text/html;q=0.9, application/xml"}, false},
		{[]string{"text/html", "text/calendar"}, false},
		{[]string{"*/*;q=0"}, false},
		{[]string{"*/*;Q=0.000"}, false},
		{[]string{"application/*; q=0, */*"}, false},
		{[]string{"application/json;q=0, */*, application/*"}, false},
		{[]string{"*/*, application/json;q=0."}, false},
		{[]string{`text/html;x="a, application/json"`}, false},
		{[]string{`text/html;x="\", application/json, */*"`}, false},
	} {
		sent := httptest.NewRequest(http.MethodGet, "/health/live", nil)
		if test.lines != nil {
			sent.Header["Accept"] = test.lines
		}
		recorder := httptest.NewRecorder()
		b.handler.ServeHTTP(recorder, sent)
		got := answer{status: recorder.Code, header: recorder.Result().Header, body: recorder.Body.String()}
		if test.ok && got.status != http.StatusOK {
			t.Errorf("%q: answered %d %s, want 200", test.lines, got.status, got.body)
		}
		if !test.ok {
			refused(t, got, http.StatusNotAcceptable, "NOT_ACCEPTABLE")
		}
		if got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%q: answered as %s", test.lines, got.header.Get("Content-Type"))
		}
	}
}

// Every operation refuses who cannot read its answer, in the form that the
// contract describes, and does nothing.
func TestEveryOperationNegotiates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.PlatformAdmin)
	for name, operation := range operations(t) {
		if operation.Permission == contract.Ping {
			continue // TestPings
		}
		sample, _ := b.sampleOf(t, operation, b.ours)
		sample.token = token
		sample.header = b.asService(operation, b.ours, map[string]string{"Accept": "text/html, application/json;q=0"})
		before := b.stored(t)
		got := b.do(t, sample)
		if got.status != http.StatusNotAcceptable || !strings.Contains(got.body, `"NOT_ACCEPTABLE"`) || got.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if diff := cmp.Diff(before, b.stored(t)); diff != "" {
			t.Errorf("%s wrote although it was refused:\n%s", name, diff)
		}
	}
}

// The caller is checked before Accept, and an unknown path still answers 404.
func TestNegotiationComesAfterTheCaller(t *testing.T) {
	t.Parallel()
	b := setup(t)
	html, viewer := map[string]string{"Accept": "text/html"}, b.token(t, b.ours, identity.Viewer)
	refused(t, b.do(t, request{method: "GET", path: base + "/jobs", header: html}), http.StatusUnauthorized, "UNAUTHORIZED")
	refused(t, b.do(t, request{method: "POST", path: base + "/jobs", token: viewer, body: webhook, header: html}), http.StatusForbidden, "FORBIDDEN")
	refused(t, b.do(t, request{method: "GET", path: base + "/nothing", token: viewer, header: html}), http.StatusNotFound, "NOT_FOUND")
	refused(t, b.do(t, request{method: "DELETE", path: base + "/jobs", token: viewer, header: html}), http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
	refused(t, b.do(t, request{method: "GET", path: base + "/jobs?limit=x", token: viewer, header: html}), http.StatusNotAcceptable, "NOT_ACCEPTABLE")
}

// Every operation describes the refusal.
func TestTheContractDescribesNotAcceptable(t *testing.T) {
	t.Parallel()
	spec := described(t)
	for path, item := range spec.Paths.Map() {
		for method, operation := range item.Operations() {
			want := "#/components/responses/NotAcceptable"
			if strings.HasPrefix(path, "/internal/") {
				want = "#/components/responses/ServiceNotAcceptable"
			}
			if got := operation.Responses.Status(http.StatusNotAcceptable); got == nil || got.Ref != want {
				t.Errorf("%s %s does not describe 406 as %s", method, path, want)
			}
		}
	}
}
