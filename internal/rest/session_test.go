package rest_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
)

const sessionPath = "/console/session"

// fromConsole is a call of the console's session.
func fromConsole(method string, header map[string]string) request {
	all := map[string]string{"X-Scheduler-Console": "1"}
	maps.Copy(all, header)
	return request{method: method, path: sessionPath, header: all}
}

// signedIn is what the console learns, and the cookie that it gets.
func signedIn(t *testing.T, got answer) (token string, permissions []string, cookie string) {
	t.Helper()
	var session struct {
		Token       string
		Permissions []string
	}
	if err := json.Unmarshal([]byte(got.body), &session); err != nil || got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	}
	return session.Token, session.Permissions, got.header.Get("Set-Cookie")
}

func TestConsoleSignsInAndOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Viewer)
	got, may, cookie := signedIn(t, b.send(fromConsole(http.MethodPost, map[string]string{"Authorization": "Bearer " + token})))
	if want := []string{"executions:read", "jobs:read", "monitoring:read", "monitors:read", "workers:read"}; got != token || !slices.Equal(may, want) {
		t.Errorf("signed in with %v, want %v", may, want)
	}
	for _, part := range []string{"; Path=" + sessionPath, "; HttpOnly", "; SameSite=Strict"} {
		if !strings.Contains(cookie, part) {
			t.Errorf("the cookie lacks %q: %s", part, cookie)
		}
	}
	kept, _, _ := strings.Cut(cookie, ";")
	if again, _, _ := signedIn(t, b.send(fromConsole(http.MethodGet, map[string]string{"Cookie": kept}))); again != token {
		t.Error("a page that was loaded again has another token")
	}
	if none := b.send(fromConsole(http.MethodGet, nil)); none.status != http.StatusNoContent {
		t.Errorf("without a cookie: %d", none.status)
	}
	out := b.send(fromConsole(http.MethodDelete, nil))
	if out.status != http.StatusNoContent || !strings.Contains(out.header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("signed out: %d %s", out.status, out.header.Get("Set-Cookie"))
	}
	if encrypted := b.send(fromConsole(http.MethodPost, map[string]string{"Authorization": "Bearer " + token, "X-Forwarded-Proto": "https"})); !strings.Contains(encrypted.header.Get("Set-Cookie"), "; Secure") {
		t.Error("behind encryption the cookie is not kept to it")
	}
}

// The API takes no cookie, so that no other page makes a browser call it, and
// the session answers its own page alone.
func TestCookieOpensNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t, func(d *parts.Deps) { d.Origins = []string{"*"} })
	kept := map[string]string{"Cookie": "scheduler_session=" + b.token(t, b.ours, identity.Admin)}
	if got := b.send(request{method: http.MethodGet, path: base + "/jobs", header: kept}); got.status != http.StatusUnauthorized {
		t.Errorf("the API took the cookie: %d", got.status)
	}
	if got := b.send(request{method: http.MethodGet, path: sessionPath, header: kept}); got.status != http.StatusForbidden || strings.Contains(got.body, `"token"`) {
		t.Errorf("a call that any page can make: %d %s", got.status, got.body)
	}
	preflight := b.send(request{method: http.MethodOptions, path: sessionPath, header: map[string]string{
		"Origin": "https://evil.example", "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "x-scheduler-console",
	}})
	if strings.Contains(strings.ToLower(preflight.header.Get("Access-Control-Allow-Headers")), "x-scheduler-console") {
		t.Error("another origin may call the session")
	}
}

func TestSessionIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, func(d *parts.Deps) { d.SignIn = func(code string) (string, bool) { return "", false } })
	nobody := b.token(t, b.ours)
	for authorization, want := range map[string]int{
		"": http.StatusUnauthorized, "Bearer x": http.StatusUnauthorized, "Code x": http.StatusUnauthorized, "Bearer " + nobody: http.StatusForbidden,
	} {
		header := map[string]string{}
		if authorization != "" {
			header["Authorization"] = authorization
		}
		if got := b.send(fromConsole(http.MethodPost, header)); got.status != want || strings.Contains(got.body, "token\":") {
			t.Errorf("%q: %d %s, want %d", authorization, got.status, got.body, want)
		}
	}
	expired := b.send(fromConsole(http.MethodGet, map[string]string{"Cookie": "scheduler_session=bad"}))
	if expired.status != http.StatusUnauthorized || !strings.Contains(expired.header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("a cookie that is good no longer: %d, %s", expired.status, expired.header.Get("Set-Cookie"))
	}
}

// An API key signs in with its scopes, and a code with the token that it stands for.
func TestKeysAndCodesSignIn(t *testing.T) {
	t.Parallel()
	var admin string
	b := setup(t, func(d *parts.Deps) { d.SignIn = func(code string) (string, bool) { return admin, code == "good" } })
	admin = b.token(t, b.ours, identity.Admin)
	_, key := b.makeKey(t, b.ours, "jobs:read")
	if _, may, _ := signedIn(t, b.send(fromConsole(http.MethodPost, map[string]string{"Authorization": "Bearer " + key}))); !slices.Equal(may, []string{"jobs:read"}) {
		t.Errorf("the key may %v", may)
	}
	if got, may, _ := signedIn(t, b.send(fromConsole(http.MethodPost, map[string]string{"Authorization": "Code good"}))); got != admin || !slices.Contains(may, "secrets:use") {
		t.Errorf("the code may %v", may)
	}
}
