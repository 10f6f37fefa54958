// Package oidc makes tokens by which a target verifies who calls it, without a secret of
// its own (OpenID Connect Discovery 1.0, RFC 7519).
//
// It owns the signing keys of the installation, what a token says of the attempt that it is
// for, and the two documents from which anybody verifies one. It refuses to verify tokens:
// package identity verifies those that callers of the API present.
package oidc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
)

const (
	discoveryPath = "/.well-known/openid-configuration"
	keysPath      = "/.well-known/jwks.json"
)

const (
	keySize = 32 // a scalar of P-256
	maxKeys = 4
	// lifetime bounds how long a token serves a reader that it is not for. A target verifies it when
	// the call arrives, so it need not last as long as the attempt.
	lifetime = 5 * time.Minute
	// early is for targets whose clock is behind.
	early = 30 * time.Second
)

var saneID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// Issuer signs tokens. A nil one signs none and publishes nothing. It does not change once
// made.
type Issuer struct {
	url  string
	keys []key
}

type key struct {
	id      string
	private *ecdsa.PrivateKey
}

// New makes the issuer of an installation, nil where there are no keys. Its documents are
// found below the address, such as https://scheduler.example.com. Keys are "id:base64"
// separated by commas, each 32 random bytes; the first one signs, and all are published.
// Errors repeat ids, never keys.
func New(address, keys string) (*Issuer, error) {
	if keys == "" {
		return nil, nil
	}
	if err := checkAddress(address); err != nil {
		return nil, err
	}
	i := &Issuer{url: strings.TrimSuffix(address, "/")}
	for part := range strings.SplitSeq(keys, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		one, err := parseKey(part)
		if err != nil {
			return nil, fmt.Errorf("key %d %w", len(i.keys)+1, err)
		}
		if slices.ContainsFunc(i.keys, func(k key) bool { return k.id == one.id }) {
			return nil, fmt.Errorf("key %q stands twice", one.id)
		}
		i.keys = append(i.keys, one)
	}
	if len(i.keys) < 1 || len(i.keys) > maxKeys {
		return nil, fmt.Errorf("there are %d keys and not 1 to %d", len(i.keys), maxKeys)
	}
	return i, nil
}

func checkAddress(address string) error {
	if address == "" {
		return errors.New("need PUBLIC_URL, the address at which targets find the keys")
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "https" && parsed.Scheme != "http" || parsed.Host == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		return errors.New("need a PUBLIC_URL such as https://scheduler.example.com, without a user, query and fragment")
	}
	return nil
}

func parseKey(text string) (key, error) {
	id, encoded, found := strings.Cut(text, ":")
	if !found || !saneID.MatchString(id) {
		return key{}, errors.New("is not of the form id:base64, with an id of 1 to 32 letters, digits, _ and -")
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(raw) != keySize {
		return key{}, errors.New("is not the base64 of 32 bytes")
	}
	if len(slices.Compact(slices.Sorted(slices.Values(raw)))) < 16 { // of 32 random bytes about never
		return key{}, errors.New("is not random")
	}
	private, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw)
	if err != nil { // one in 2^32
		return key{}, errors.New("is no key of P-256: make another")
	}
	return key{id: id, private: private}, nil
}

// Run is the attempt that a token is for.
type Run struct {
	Tenant, Job, Execution uuid.UUID
	Attempt                int
	Audience               string
}

// claims is what a token says.
type claims struct {
	jwt.RegisteredClaims
	Tenant    string `json:"tenant_id"`
	Job       string `json:"job_id"`
	Execution string `json:"execution_id"`
	Attempt   int    `json:"attempt"`
}

// Sign makes the token of a call that is made now. It is good for five minutes.
func (i *Issuer) Sign(run Run, now time.Time) (string, error) {
	if i == nil {
		return "", errors.New("there are no keys to sign with")
	}
	token := jwt.NewWithClaims(jwt.SigningMethodES256, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: i.url, Subject: "tenant:" + run.Tenant.String() + ":job:" + run.Job.String(), Audience: jwt.ClaimStrings{run.Audience},
			IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now.Add(-early)), ExpiresAt: jwt.NewNumericDate(now.Add(lifetime)),
			ID: fmt.Sprintf("%s:%d", run.Execution, run.Attempt),
		},
		Tenant: run.Tenant.String(), Job: run.Job.String(), Execution: run.Execution.String(), Attempt: run.Attempt,
	})
	token.Header["kid"] = i.keys[0].id
	signed, err := token.SignedString(i.keys[0].private)
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return signed, nil
}

// Documents are what the issuer publishes, as JSON by path: its metadata (OpenID Connect
// Discovery 1.0) and its public keys (RFC 7517).
func (i *Issuer) Documents() (map[string]json.RawMessage, error) {
	if i == nil {
		return nil, nil
	}
	published, err := i.published()
	if err != nil {
		return nil, err
	}
	documents := map[string]json.RawMessage{}
	for path, content := range map[string]any{
		keysPath: map[string]any{"keys": published},
		discoveryPath: map[string]any{
			"issuer": i.url, "jwks_uri": i.url + keysPath,
			"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
			"id_token_signing_alg_values_supported": []string{jwt.SigningMethodES256.Alg()},
			"claims_supported":                      []string{"iss", "sub", "aud", "exp", "iat", "nbf", "jti", "tenant_id", "job_id", "execution_id", "attempt"},
		},
	} {
		if documents[path], err = json.Marshal(content); err != nil {
			return nil, fmt.Errorf("publish %s: %w", path, err)
		}
	}
	return documents, nil
}

// published are the public keys.
func (i *Issuer) published() ([]map[string]string, error) {
	text := base64.RawURLEncoding.EncodeToString
	var keys []map[string]string
	for _, k := range i.keys {
		point, err := k.private.PublicKey.Bytes() // 4, x and y
		if err != nil {
			return nil, fmt.Errorf("publish key %q: %w", k.id, err)
		}
		keys = append(keys, map[string]string{
			"kty": "EC", "crv": "P-256", "use": "sig", "alg": jwt.SigningMethodES256.Alg(), "kid": k.id, "x": text(point[1 : 1+keySize]), "y": text(point[1+keySize:]),
		})
	}
	return keys, nil
}
