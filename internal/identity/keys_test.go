package identity_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// pairs are the private keys of an auth service, by id.
type pairs map[string]crypto.Signer

func newPairs(t *testing.T) pairs {
	t.Helper()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return pairs{"rsa": rsaKey, "ec": ecKey, "ed": edKey, "p384": p384}
}

var errAway = fault.New(fault.Unavailable, "", "the keys cannot be read")

// tokens verifies with the public keys of p; the id "away" cannot be read.
func (p pairs) tokens(t *testing.T) *identity.Tokens {
	t.Helper()
	tokens, err := identity.NewTokens(identity.Config{
		Issuer: issuer, Audience: "scheduler", Clock: func() time.Time { return now },
		Keys: func(_ context.Context, id string) (crypto.PublicKey, error) {
			if id == "away" {
				return nil, errAway
			}
			signer, ok := p[id]
			if !ok {
				return nil, fault.New(fault.Unauthenticated, "UNAUTHORIZED", "no such key")
			}
			return signer.Public(), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func (p pairs) sign(t *testing.T, method jwt.SigningMethod, key any, header map[string]any, change func(map[string]any)) string {
	t.Helper()
	token := jwt.NewWithClaims(method, jwt.MapClaims(claims(change)))
	for name, value := range header {
		token.Header[name] = value
	}
	signed, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func TestTokensOfPublicKeys(t *testing.T) {
	t.Parallel()
	p := newPairs(t)
	tokens := p.tokens(t)
	for name, token := range map[string]string{
		"RS256": p.sign(t, jwt.SigningMethodRS256, p["rsa"], map[string]any{"kid": "rsa"}, nil),
		"ES256": p.sign(t, jwt.SigningMethodES256, p["ec"], map[string]any{"kid": "ec"}, nil),
		"EdDSA": p.sign(t, jwt.SigningMethodEdDSA, p["ed"], map[string]any{"kid": "ed"}, nil),
	} {
		got, err := tokens.Authenticate(t.Context(), bearer(token))
		if err != nil || got.Actor.TenantID != tenid {
			t.Errorf("%s: Authenticate = %+v, %v", name, got, err)
		}
	}
}

func TestForgedTokensOfPublicKeys(t *testing.T) {
	t.Parallel()
	p := newPairs(t)
	tokens := p.tokens(t)
	der, err := x509.MarshalPKIXPublicKey(p["rsa"].Public())
	if err != nil {
		t.Fatal(err)
	}
	asPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	edPublic := []byte(p["ed"].Public().(ed25519.PublicKey))
	stranger := newPairs(t)
	kid := func(id any) map[string]any { return map[string]any{"kid": id} }
	for name, token := range map[string]string{
		"HS256 with the RSA key as PEM":       sign(t, asPEM, hs256("kid", "rsa"), claims(nil)),
		"HS256 with the RSA key as DER":       sign(t, der, hs256("kid", "rsa"), claims(nil)),
		"HS256 with the RSA modulus":          sign(t, p["rsa"].Public().(*rsa.PublicKey).N.Bytes(), hs256("kid", "rsa"), claims(nil)),
		"HS256 with the Ed25519 key":          sign(t, edPublic, hs256("kid", "ed"), claims(nil)),
		"HS256 with nothing":                  sign(t, nil, hs256("kid", "rsa"), claims(nil)),
		"none":                                sign(t, nil, map[string]any{"alg": "none", "kid": "rsa"}, claims(nil)),
		"RS384":                               p.sign(t, jwt.SigningMethodRS384, p["rsa"], kid("rsa"), nil),
		"RS512":                               p.sign(t, jwt.SigningMethodRS512, p["rsa"], kid("rsa"), nil),
		"PS256":                               p.sign(t, jwt.SigningMethodPS256, p["rsa"], kid("rsa"), nil),
		"ES384":                               p.sign(t, jwt.SigningMethodES384, p["p384"], kid("p384"), nil),
		"RS256 under the id of an EC key":     p.sign(t, jwt.SigningMethodRS256, p["rsa"], kid("ec"), nil),
		"ES256 under the id of an RSA key":    p.sign(t, jwt.SigningMethodES256, p["ec"], kid("rsa"), nil),
		"EdDSA under the id of an RSA key":    p.sign(t, jwt.SigningMethodEdDSA, p["ed"], kid("rsa"), nil),
		"a key of somebody else":              p.sign(t, jwt.SigningMethodRS256, stranger["rsa"], kid("rsa"), nil),
		"an EC key of somebody else":          p.sign(t, jwt.SigningMethodES256, stranger["ec"], kid("ec"), nil),
		"an id that is not there":             p.sign(t, jwt.SigningMethodRS256, p["rsa"], kid("unknown"), nil),
		"no id":                               p.sign(t, jwt.SigningMethodRS256, p["rsa"], nil, nil),
		"an empty id":                         p.sign(t, jwt.SigningMethodRS256, p["rsa"], kid(""), nil),
		"an id that is a number":              p.sign(t, jwt.SigningMethodRS256, p["rsa"], kid(1), nil),
		"an id that is a list":                p.sign(t, jwt.SigningMethodRS256, p["rsa"], kid([]string{"rsa"}), nil),
		"a path as id":                        p.sign(t, jwt.SigningMethodRS256, p["rsa"], kid("../../dev/null"), nil),
		"SQL as id":                           p.sign(t, jwt.SigningMethodRS256, p["rsa"], kid("' OR 1=1"), nil),
		"a key of its own":                    p.sign(t, jwt.SigningMethodRS256, stranger["rsa"], map[string]any{"kid": "rsa", "jwk": map[string]string{"kty": "RSA"}}, nil),
		"an address of its own":               p.sign(t, jwt.SigningMethodRS256, p["rsa"], map[string]any{"kid": "rsa", "jku": "https://evil.example"}, nil),
		"a certificate":                       p.sign(t, jwt.SigningMethodRS256, p["rsa"], map[string]any{"kid": "rsa", "x5c": []string{"x"}}, nil),
		"something critical":                  p.sign(t, jwt.SigningMethodRS256, p["rsa"], map[string]any{"kid": "rsa", "crit": []string{"exp"}}, nil),
		"expired":                             p.sign(t, jwt.SigningMethodRS256, p["rsa"], kid("rsa"), func(c map[string]any) { c["exp"] = now.Add(-time.Minute).Unix() }),
		"for somebody else":                   p.sign(t, jwt.SigningMethodRS256, p["rsa"], kid("rsa"), func(c map[string]any) { c["aud"] = "billing" }),
		"a secret's token, well signed":       sign(t, key, hs256(), claims(nil)),
		"a secret's token with a known kid":   sign(t, key, hs256("kid", "ed"), claims(nil)),
		"EdDSA of the empty key's signature":  sign(t, nil, map[string]any{"alg": "EdDSA", "kid": "ed"}, claims(nil)),
		"ES256 with a signature of no length": sign(t, nil, map[string]any{"alg": "ES256", "kid": "ec"}, claims(nil)),
	} {
		got, err := tokens.Authenticate(t.Context(), bearer(token))
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Unauthenticated || f.Code != "UNAUTHORIZED" {
			t.Errorf("%s: Authenticate = %+v, %v", name, got, err)
		}
		if f != nil && strings.Contains(f.Message, "expired") {
			got.Actor = tenant.Actor{} // whose it was, who may do nothing
		}
		if !cmp.Equal(got, identity.Principal{}) {
			t.Errorf("%s: a refusal comes with the principal %+v", name, got)
		}
	}
}

// An unreachable key server is not the caller's fault.
func TestKeysThatCannotBeRead(t *testing.T) {
	t.Parallel()
	p := newPairs(t)
	token := p.sign(t, jwt.SigningMethodRS256, p["rsa"], map[string]any{"kid": "away"}, nil)
	if _, err := p.tokens(t).Authenticate(t.Context(), bearer(token)); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("Authenticate = %v", err)
	}
	_, err := identity.NewTokens(identity.Config{Secret: key, Keys: func(context.Context, string) (crypto.PublicKey, error) { return nil, errAway }, Clock: func() time.Time { return now }})
	if err == nil {
		t.Error("a secret and public keys at once were accepted")
	}
	if _, err := identity.NewTokens(identity.Config{Clock: func() time.Time { return now }}); err == nil {
		t.Error("neither a secret nor public keys was accepted")
	}
}
