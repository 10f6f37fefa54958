package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
)

const console, stranger = "https://console.example.com", "https://evil.example.com"

// cross are the headers by which browsers decide.
func cross(got answer) string {
	var found []string
	for _, name := range []string{"Allow-Origin", "Allow-Credentials", "Allow-Methods", "Max-Age"} {
		if value := got.header.Get("Access-Control-" + name); value != "" {
			found = append(found, name+"="+value)
		}
	}
	return strings.Join(found, " ")
}

func (b *bundle) fromPage(t *testing.T, method, path, origin string) answer {
	t.Helper()
	header := map[string]string{"Origin": origin}
	if method == http.MethodOptions {
		header["Access-Control-Request-Method"], header["Access-Control-Request-Headers"] = "PUT", strings.Repeat("x-a,", 1000)
	}
	return b.send(request{method: method, path: path, token: b.token(t, b.ours, identity.Admin), header: header})
}

func TestPagesOfNoOriginAreAdmittedByDefault(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, method := range []string{"GET", "OPTIONS"} {
		if got := b.fromPage(t, method, base+"/jobs", console); cross(got) != "" || got.header.Get("Vary") == "Origin" {
			t.Errorf("%s: %s", method, cross(got))
		}
	}
}

func TestPagesOfAdmittedOrigins(t *testing.T) {
	t.Parallel()
	b := setup(t, func(d *parts.Deps) { d.Origins = []string{console} })
	for _, test := range []struct {
		method, path, origin string
		status               int
		want                 string
	}{
		{"GET", base + "/jobs", console, 200, "Allow-Origin=" + console},
		{"GET", base + "/nothing", console, 404, "Allow-Origin=" + console},
		{"OPTIONS", base + "/jobs", console, 204, "Allow-Origin=" + console + " Allow-Methods=GET, HEAD, POST, PUT, PATCH, DELETE Max-Age=600"},
		{"GET", base + "/jobs", stranger, 200, ""},
		{"OPTIONS", base + "/jobs", stranger, 204, ""},
		{"GET", base + "/jobs", console + ".evil.example.com", 200, ""},
		{"GET", base + "/jobs", "null", 200, ""},
		{"OPTIONS", "/internal/jobs/create", console, 204, ""},
	} {
		got := b.fromPage(t, test.method, test.path, test.origin)
		if got.status != test.status || cross(got) != test.want {
			t.Errorf("%s %s from %s: %d %q, want %d %q", test.method, test.path, test.origin, got.status, cross(got), test.status, test.want)
		}
		if test.want != "" && (got.header.Get("Vary") == "" || strings.Contains(got.header.Get("Access-Control-Allow-Headers"), "x-a")) {
			t.Errorf("%s %s: Vary %q, headers %q", test.method, test.path, got.header.Get("Vary"), got.header.Get("Access-Control-Allow-Headers"))
		}
	}
}

// A tenant admits fewer origins than the installation, and a page of another gets
// nothing of it.
func TestTenantsAdmitOrigins(t *testing.T) {
	t.Parallel()
	b := setup(t, func(d *parts.Deps) { d.Origins = []string{"*"} })
	if got := b.fromPage(t, "GET", base+"/jobs", stranger); got.status != http.StatusOK || cross(got) != "Allow-Origin=*" {
		t.Errorf("before: %d %s", got.status, cross(got))
	}
	platform := b.token(t, b.theirs, identity.PlatformAdmin)
	put := request{method: "PUT", path: base + "/tenants/" + b.ours.TenantID.String(), token: platform, body: `{"name":"x","allowedOrigins":["` + console + `"]}`}
	if got := b.do(t, put); got.status != http.StatusOK || !strings.Contains(got.body, console) {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got := b.fromPage(t, "GET", base+"/jobs", stranger); got.status != http.StatusForbidden || cross(got) != "" {
		t.Errorf("a stranger: %d %s", got.status, cross(got))
	}
	if got := b.fromPage(t, "GET", base+"/jobs", console); got.status != http.StatusOK || cross(got) != "Allow-Origin=*" {
		t.Errorf("the console: %d %s", got.status, cross(got))
	}
	put.body = `{"name":"x","allowedOrigins":["*","https://a.example.com/","ftp://a"]}`
	refused(t, b.do(t, put), http.StatusBadRequest, "VALIDATION_FAILED")
}

func TestOriginsThatNoBrowserSendsAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, origin := range []string{"console.example.com", console + "/", "https://*.example.com", "https://Console.example.com", "null", ""} {
		d := b.deps
		d.Origins = []string{origin}
		if _, err := rest.New(d); err == nil {
			t.Errorf("%q is taken", origin)
		}
	}
}
