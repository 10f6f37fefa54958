package oidc_test

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
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/identity/oidc"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// target knows the address of the issuer and its own name, and nothing else.
type target struct{ issuer, audience string }

func (v target) verify(text string, now time.Time) (jwt.MapClaims, error) {
	var discovery struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	if err := fetch(v.issuer+"/.well-known/openid-configuration", &discovery); err != nil {
		return nil, err
	}
	if discovery.Issuer != v.issuer {
		return nil, fmt.Errorf("the issuer is %q", discovery.Issuer)
	}
	var set struct {
		Keys []struct{ Kid, Kty, Crv, X, Y string }
	}
	if err := fetch(discovery.JWKSURI, &set); err != nil {
		return nil, err
	}
	claims := jwt.MapClaims{}
	_, err := jwt.ParseWithClaims(text, claims, func(token *jwt.Token) (any, error) {
		for _, k := range set.Keys {
			if k.Kid != token.Header["kid"] {
				continue
			}
			x, _ := base64.RawURLEncoding.DecodeString(k.X)
			y, _ := base64.RawURLEncoding.DecodeString(k.Y)
			return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), append(append([]byte{4}, x...), y...))
		}
		return nil, fmt.Errorf("no key %v", token.Header["kid"])
	}, jwt.WithValidMethods([]string{"ES256"}), jwt.WithIssuer(v.issuer), jwt.WithAudience(v.audience), jwt.WithExpirationRequired(),
		jwt.WithTimeFunc(func() time.Time { return now }))
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

// installation publishes the documents of the issuer that it has at the moment.
type installation struct {
	*httptest.Server
	issuer *oidc.Issuer
}

func install(t *testing.T) *installation {
	t.Helper()
	var in installation
	in.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		documents, err := in.issuer.Documents()
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(documents[r.URL.Path])
	}))
	t.Cleanup(in.Close)
	return &in
}

func (in *installation) configure(t *testing.T, keys ...string) {
	t.Helper()
	var err error
	if in.issuer, err = oidc.New(in.URL+"/", strings.Join(keys, ",")); err != nil {
		t.Fatal(err)
	}
}

func (in *installation) sign(t *testing.T, run oidc.Run) string {
	t.Helper()
	token, err := in.issuer.Sign(run, now)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestTargetsVerifyWithThePublishedDocumentsAlone(t *testing.T) {
	t.Parallel()
	in := install(t)
	in.configure(t, newKey("new"), newKey("old"))
	run := oidc.Run{Tenant: uuid.New(), Job: uuid.New(), Execution: uuid.New(), Attempt: 3, Audience: "https://billing.example"}
	token, billing := in.sign(t, run), target{in.URL, "https://billing.example"}
	claims, err := billing.verify(token, now)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"sub": "tenant:" + run.Tenant.String() + ":job:" + run.Job.String(), "tenant_id": run.Tenant.String(), "job_id": run.Job.String(),
		"execution_id": run.Execution.String(), "attempt": 3.0, "jti": run.Execution.String() + ":3",
		"iat": float64(now.Unix()), "nbf": float64(now.Unix() - 30), "exp": float64(now.Unix() + 300),
	} {
		if claims[name] != want {
			t.Errorf("%s is %v, want %v", name, claims[name], want)
		}
	}
	parts := strings.Split(token, ".")
	payload, _ := base64.RawURLEncoding.DecodeString(parts[1])
	changed := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(payload), `"attempt":3`, `"attempt":4`, 1)))
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"new"}`))
	for name, refused := range map[string]func() error{
		"another audience": func() error { _, err := target{in.URL, "https://other.example"}.verify(token, now); return err },
		"a later time":     func() error { _, err := billing.verify(token, now.Add(301*time.Second)); return err },
		"an earlier time":  func() error { _, err := billing.verify(token, now.Add(-31*time.Second)); return err },
		"a changed claim":  func() error { _, err := billing.verify(parts[0]+"."+changed+"."+parts[2], now); return err },
		"no signature":     func() error { _, err := billing.verify(none+"."+parts[1]+".", now); return err },
	} {
		if refused() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// While keys rotate, each token verifies from before the new key signs until the old one is
// taken out, and then no longer; no private key is published.
func TestTokensVerifyWhileKeysRotate(t *testing.T) {
	t.Parallel()
	in, older, newer := install(t), newKey("older"), newKey("newer")
	run := oidc.Run{Audience: "a"}
	in.configure(t, older, newer)
	byOlder := in.sign(t, run)
	in.configure(t, newer, older)
	byNewer := in.sign(t, run)
	for _, step := range []struct {
		name         string
		keys         []string
		older, newer bool
	}{
		{"before", []string{older}, true, false},
		{"the new key second", []string{older, newer}, true, true},
		{"the new key first", []string{newer, older}, true, true},
		{"the old key out", []string{newer}, false, true},
	} {
		in.configure(t, step.keys...)
		if _, err := (target{in.URL, "a"}).verify(byOlder, now); (err == nil) != step.older {
			t.Errorf("%s: a token of the old key: %v", step.name, err)
		}
		if _, err := (target{in.URL, "a"}).verify(byNewer, now); (err == nil) != step.newer {
			t.Errorf("%s: a token of the new key: %v", step.name, err)
		}
		documents, err := in.issuer.Documents()
		if err != nil || strings.Contains(string(documents["/.well-known/jwks.json"]), `"d"`) {
			t.Errorf("%s: a private key is published, or %v", step.name, err)
		}
	}
}
