package httpcall_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/httpcall"
	"github.com/scheduler-service/scheduler/internal/identity/oidc"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

func withIssuer(t *testing.T, allow ...string) *httpcall.Executor {
	t.Helper()
	issuer, err := oidc.New("https://scheduler.example.com", keyring.Generate("k1"))
	if err != nil {
		t.Fatal(err)
	}
	return newExecutor(t, allow...).WithIssuer(issuer)
}

// A call with auth carries a token of its attempt. A trigger's overrides do not change that.
// A target that repeats the token does not bring it into the result.
func TestCallsSayWhoMakesThem(t *testing.T) {
	t.Parallel()
	var token string
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		token = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		w.Header().Set("X-Echo", token)
		_, _ = io.WriteString(w, `{"got":"`+token+`"}`)
	})
	r := run(server, `{"url":"$URL","auth":{"type":"oidc","audience":"https://billing.example"}}`)
	r.Parameters = json.RawMessage(`{"headers":{"Authorization":"Bearer another"}}`)
	out := withIssuer(t, "127.0.0.0/8").Execute(t.Context(), r)
	if out.Err != nil {
		t.Fatal(out.Err)
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("the call carried %q", token)
	}
	var claims struct {
		Issuer    string   `json:"iss"`
		Audience  []string `json:"aud"`
		Execution string   `json:"execution_id"`
		Attempt   int      `json:"attempt"`
	}
	payload, _ := base64.RawURLEncoding.DecodeString(parts[1])
	if err := json.Unmarshal(payload, &claims); err != nil || claims.Issuer != "https://scheduler.example.com" || len(claims.Audience) != 1 ||
		claims.Audience[0] != "https://billing.example" || claims.Execution != r.ExecutionID.String() || claims.Attempt != r.Attempt {
		t.Errorf("the token says %s, %v", payload, err)
	}
	kept := result(t, out)
	if strings.Contains(string(out.Result), token) || kept.Body != `{"got":"***"}` || kept.Headers["X-Echo"] != "***" {
		t.Errorf("result %s", out.Result)
	}
}

func TestAuthOfADefinition(t *testing.T) {
	t.Parallel()
	e := withIssuer(t)
	for members, want := range map[string]string{
		`"auth":{"type":"oidc","audience":"a"}`:                                 "",
		`"auth":null`:                                                           "",
		`"auth":{"type":"basic","audience":"a"}`:                                "config.auth.type enum",
		`"auth":{"type":"oidc"}`:                                                "config.auth.audience required",
		`"auth":{"type":"oidc","audience":""}`:                                  "config.auth.audience length",
		`"auth":{"type":"oidc","audience":"a\nb"}`:                              "config.auth.audience length",
		`"auth":{"type":"oidc","audience":"a","issuer":"x"}`:                    "config.auth.issuer unknown",
		`"headers":{"authorization":"x"},"auth":{"type":"oidc","audience":"a"}`: "config.auth conflict",
		`"auth":{"type":"oidc","audience":"` + strings.Repeat("a", 256) + `"}`:  "config.auth.audience length",
	} {
		got := strings.Join(rules(e.Validate(json.RawMessage(`{"url":"https://example.com",`+members+`}`))), ", ")
		if got != want {
			t.Errorf("%s: %q, want %q", members, got, want)
		}
	}
}

// Without an issuer a job with auth is refused, and one that was stored before fails before
// the call.
func TestAuthWithoutAnIssuer(t *testing.T) {
	t.Parallel()
	server := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the call was made") })
	r := run(server, `{"url":"$URL","auth":{"type":"oidc","audience":"a"}}`)
	e := newExecutor(t, "127.0.0.0/8")
	faults := e.Validate(r.Config)
	if len(faults) != 1 || faults[0].Path != "config.auth" || !strings.Contains(faults[0].Message, "PUBLIC_URL and OIDC_KEYS") {
		t.Errorf("faults %v", faults)
	}
	if out := e.Execute(t.Context(), r); out.Err == nil || out.Err.Type != executor.ValidationError || !strings.Contains(out.Err.Message, "OIDC_KEYS") {
		t.Errorf("outcome %+v", out.Err)
	}
}
