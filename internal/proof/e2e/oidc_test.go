package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// A target that knows the address of the scheduler and its own name verifies who calls it.
func TestTargetVerifiesWhoCalls(t *testing.T) {
	t.Parallel()
	s := stores(t, hinted)
	s.env = []string{"OIDC_KEYS=" + keyring.Generate("k1")}
	s.up(1)
	type call struct {
		claims jwt.MapClaims
		err    error
	}
	calls := make(chan call, 100)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		claims, err := verify(s.url, "https://billing.example", strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		calls <- call{claims, err}
	}))
	t.Cleanup(target.Close)
	job := s.create(api.JobSpec{Name: "bill", JobType: api.JobTypeHTTP, Config: config(t, map[string]any{
		"url": target.URL, "auth": map[string]any{"type": "oidc", "audience": "https://billing.example"},
	})}).ID
	run := s.trigger(job).ID
	s.eventually("the target is called", func() bool { return len(calls) > 0 })
	got := <-calls
	if got.err != nil || got.claims["job_id"] != job.String() || got.claims["execution_id"] != run.String() {
		t.Errorf("the target verified %v, %v; want execution %s of job %s", got.claims, got.err, run, job)
	}
}

// verify is what a library for OpenID Connect does with a token.
func verify(issuer, audience, text string) (jwt.MapClaims, error) {
	var discovery struct {
		JWKSURI string `json:"jwks_uri"`
	}
	var set struct {
		Keys []struct{ Kid, X, Y string }
	}
	if err := fetch(issuer+"/.well-known/openid-configuration", &discovery); err != nil {
		return nil, err
	}
	if err := fetch(discovery.JWKSURI, &set); err != nil {
		return nil, err
	}
	claims := jwt.MapClaims{}
	_, err := jwt.ParseWithClaims(text, claims, func(token *jwt.Token) (any, error) {
		for _, k := range set.Keys {
			if k.Kid == token.Header["kid"] {
				x, _ := base64.RawURLEncoding.DecodeString(k.X)
				y, _ := base64.RawURLEncoding.DecodeString(k.Y)
				return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), append(append([]byte{4}, x...), y...))
			}
		}
		return nil, fmt.Errorf("no key %v", token.Header["kid"])
	}, jwt.WithValidMethods([]string{"ES256"}), jwt.WithIssuer(issuer), jwt.WithAudience(audience), jwt.WithExpirationRequired())
	return claims, err
}

func fetch(address string, into any) error {
	resp, err := http.Get(address)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}
