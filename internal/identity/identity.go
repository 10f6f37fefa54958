// Package identity says who asks and what they may do.
//
// It owns the verification of tokens, the principal that comes of it, and the
// one table from role to permission. It refuses every source of identity but
// the verified token: no header, parameter or body names a tenant. It does not
// ask whether the tenant exists (package tenant) and writes no HTTP answer
// (package rest, which calls it for each request).
//
// A way in is a function from a request's header to a principal, as
// Tokens.Authenticate is; API keys (package apikey) stand beside it.
package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

const (
	// maxHeader bounds the Authorization header in bytes; a longer one is
	// refused before anything of it is parsed.
	maxHeader = 8 << 10
	// leeway is how far the clocks of issuer and verifier may differ.
	leeway = 30 * time.Second
	// minSecret is the shortest key in bytes that HS256 is safe with (RFC 7518,
	// section 3.2).
	minSecret = 32
	// maxSubject bounds the sub claim in characters; it is stored with what the
	// bearer makes.
	maxSubject = 255
)

// Principal is who asks.
type Principal struct {
	Actor tenant.Actor
	Roles []Role
	// Scopes is what an API key may do; it has no roles.
	Scopes []Permission
	// Key is the API key that asks; the zero id where it is a token.
	Key uuid.UUID
	// Peer is the service that asks; nil where it is none.
	Peer *Peer
}

// Config says which tokens are believed: those of Secret or those of Keys, and
// never both, so that what one side publishes is not the other's secret.
type Config struct {
	// Secret is the key of HS256, at least 32 bytes.
	Secret []byte
	// Keys finds the public key with an id, which is empty for a token that
	// names none. The key's type decides the algorithm: RS256, ES256 (P-256) or
	// EdDSA. An error that is a fault is the answer.
	Keys func(ctx context.Context, id string) (crypto.PublicKey, error)
	// Issuer and Audience are what iss and aud must name; empty ones are not
	// checked.
	Issuer, Audience string
	// MaxLifetime is how long a token may be good for, from iat to exp, and
	// where it has no iat, from now to exp; zero: any time. So a thief of a
	// token, or signs one that should not be, has it for a while only.
	MaxLifetime time.Duration
	// Clock decides what has expired.
	Clock clock.Clock
}

// Tokens verifies JSON Web Tokens. Any number of goroutines may use it.
type Tokens struct {
	believed believed

	parser   *jwt.Parser
	secret   []byte
	keys     func(ctx context.Context, id string) (crypto.PublicKey, error)
	audience string
	longest  time.Duration
	clock    clock.Clock
}

// NewTokens makes a verifier. The algorithm is fixed by the configuration and
// by the key, whatever a token's header says, so that no token chooses how it
// is checked.
func NewTokens(c Config) (*Tokens, error) {
	methods := []string{jwt.SigningMethodHS256.Alg()}
	switch {
	case (len(c.Secret) > 0) == (c.Keys != nil):
		return nil, errors.New("tokens are verified either with a secret or with public keys")
	case c.Keys != nil:
		methods = []string{jwt.SigningMethodRS256.Alg(), jwt.SigningMethodES256.Alg(), jwt.SigningMethodEdDSA.Alg()}
	case len(c.Secret) < minSecret:
		return nil, fmt.Errorf("the secret of the tokens has %d bytes; at least %d are needed", len(c.Secret), minSecret)
	}
	options := []jwt.ParserOption{
		jwt.WithValidMethods(methods),
		jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(),
		jwt.WithLeeway(leeway),
		jwt.WithStrictDecoding(),
		jwt.WithTimeFunc(c.Clock),
	}
	if c.Issuer != "" {
		options = append(options, jwt.WithIssuer(c.Issuer))
	}
	if c.Audience != "" {
		options = append(options, jwt.WithAudience(c.Audience))
	}
	return &Tokens{parser: jwt.NewParser(options...), secret: c.Secret, keys: c.Keys, audience: c.Audience, longest: c.MaxLifetime, clock: c.Clock}, nil
}

// Authenticate reads the principal from a request's header. Every failure is
// Unauthenticated and says what is wrong with the token; none repeats a part
// of it. With the failure of a token that has only expired comes whose it was, for
// the audit log. Where the keys cannot be read, the error is Unavailable.
func (t *Tokens) Authenticate(ctx context.Context, h http.Header) (Principal, error) {
	token, err := Bearer(h)
	if err != nil {
		return Principal{}, err
	}
	sum, asked := sha256.Sum256([]byte(token)), clock.Start() // what is found is at least as new as this
	if who, ok := t.believed.find(sum, t.clock()); ok {
		return who, nil
	}
	var claims wireClaims
	find := func(token *jwt.Token) (any, error) { return t.key(ctx, token) }
	if _, err := t.parser.ParseWithClaims(token, &claims, find); err != nil {
		return bearerOf(claims, err), refusal(err)
	}
	if err := checkStrict(token); err != nil {
		return Principal{}, err
	}
	if err := t.checkLifetime(claims); err != nil {
		return Principal{}, err
	}
	who, err := claims.principal()
	if err == nil {
		t.believed.keep(sum, belief{who: who, expires: claims.ExpiresAt.Add(leeway), at: asked})
	}
	return who, err
}

// bearerOf is whose token failed, if all that is wrong with it is that it has
// expired. A peer has no role.
func bearerOf(claims wireClaims, err error) Principal {
	for _, other := range []error{
		jwt.ErrTokenUnverifiable, jwt.ErrTokenSignatureInvalid, jwt.ErrTokenInvalidIssuer, jwt.ErrTokenInvalidAudience,
		jwt.ErrTokenUsedBeforeIssued, jwt.ErrTokenNotValidYet, jwt.ErrTokenRequiredClaimMissing,
	} {
		if errors.Is(err, other) {
			return Principal{}
		}
	}
	if !errors.Is(err, jwt.ErrTokenExpired) {
		return Principal{}
	}
	who, _ := claims.principal()
	who.Roles = nil
	return who
}

// checkLifetime refuses a token that is good for longer than one may be. The
// times of a token are whole seconds and so is the bound. Without iat the
// clock of the issuer may be ahead of ours.
func (t *Tokens) checkLifetime(claims wireClaims) error {
	if t.longest == 0 {
		return nil
	}
	issued := t.clock().Add(leeway)
	if claims.IssuedAt != nil {
		issued = claims.IssuedAt.Time
	}
	if claims.ExpiresAt.Sub(issued) > t.longest {
		return unauthenticated(fmt.Sprintf("the token is good for longer than the %g hours that are allowed", t.longest.Hours()), nil)
	}
	return nil
}

// Bearer takes the token out of the one Authorization header, of at most 8 kB.
// The error is Unauthenticated.
func Bearer(h http.Header) (string, error) {
	values := h.Values("Authorization")
	if len(values) == 0 {
		return "", unauthenticated("send a token or an API key: Authorization: Bearer <token>", nil)
	}
	scheme, token, found := strings.Cut(values[0], " ")
	switch {
	case len(values) > 1:
		return "", unauthenticated("the header Authorization stands more than once", nil)
	case len(values[0]) > maxHeader:
		return "", unauthenticated("the token is too long", nil)
	case !found || !strings.EqualFold(scheme, "Bearer") || token == "":
		return "", unauthenticated("the header Authorization is not of the form: Bearer <token>", nil)
	}
	return token, nil
}

// key hands out the key for a token whose header asks for nothing else. What
// points to a key of the token's own, or must be understood and is not, is
// refused (RFC 7515, section 4.1). Of one secret, a kid is ignored.
func (t *Tokens) key(ctx context.Context, token *jwt.Token) (any, error) {
	for _, name := range []string{"crit", "b64", "zip", "jku", "jwk", "x5u", "x5c"} {
		if _, ok := token.Header[name]; ok {
			return nil, fmt.Errorf("header parameter %s", name)
		}
	}
	switch typ, _ := token.Header["typ"].(string); strings.ToLower(typ) {
	case "", "jwt", "at+jwt", "application/at+jwt":
	default:
		return nil, errors.New("header parameter typ")
	}
	if t.keys == nil {
		return t.secret, nil
	}
	id, text := token.Header["kid"].(string)
	if _, ok := token.Header["kid"]; ok && (!text || id == "") {
		return nil, errors.New("header parameter kid")
	}
	key, err := t.keys(ctx, id)
	if err != nil {
		return nil, err
	}
	if methodOf(key) != token.Method.Alg() {
		return nil, errors.New("the key is one of another algorithm")
	}
	return key, nil
}

// methodOf is the one algorithm that a key verifies.
func methodOf(key crypto.PublicKey) string {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return jwt.SigningMethodRS256.Alg()
	case *ecdsa.PublicKey:
		if key.Curve.Params().BitSize == jwt.SigningMethodES256.CurveBits {
			return jwt.SigningMethodES256.Alg()
		}
	case ed25519.PublicKey:
		return jwt.SigningMethodEdDSA.Alg()
	}
	return ""
}

// refusal says which check a token failed, in a fixed sentence.
func refusal(err error) error {
	var known *fault.Error
	if errors.As(err, &known) {
		return known
	}
	for _, known := range []struct {
		is   error
		says string
	}{
		{jwt.ErrTokenMalformed, "the token is not a well-formed JWT"},
		{jwt.ErrTokenUnverifiable, "the token asks for a verification that is not supported here"},
		{jwt.ErrTokenSignatureInvalid, "the token's signature is not valid"},
		{jwt.ErrTokenExpired, "the token has expired"},
		{jwt.ErrTokenNotValidYet, "the token is not valid yet"},
		{jwt.ErrTokenUsedBeforeIssued, "the token says it was issued in the future"},
		{jwt.ErrTokenInvalidIssuer, "the token was issued by somebody who is not believed here"},
		{jwt.ErrTokenInvalidAudience, "the token is meant for somebody else"},
		{jwt.ErrTokenRequiredClaimMissing, "the token lacks a claim that is required: exp, and iss and aud where they are checked"},
	} {
		if errors.Is(err, known.is) {
			return unauthenticated(known.says, err)
		}
	}
	return unauthenticated("the token is not valid", err)
}

func unauthenticated(message string, cause error) error {
	return fault.Wrap(fault.Unauthenticated, fault.CodeUnauthorized, message, cause)
}

// wireClaims is what a token says.
type wireClaims struct {
	jwt.RegisteredClaims
	Tenant string `json:"tenant_id"`
	Roles  []Role `json:"roles"`
}

// principal reads the claims that are ours.
func (c wireClaims) principal() (Principal, error) {
	id, err := uuid.Parse(c.Tenant)
	// uuid.Parse also reads forms with braces and prefixes; one form is enough.
	if err != nil || len(c.Tenant) != 36 || id == uuid.Nil {
		return Principal{}, unauthenticated("the token's claim tenant_id is not a UUID", err)
	}
	if n := utf8.RuneCountInString(c.Subject); n < 1 || n > maxSubject || strings.ContainsFunc(c.Subject, unicode.IsControl) {
		return Principal{}, unauthenticated("the token's claim sub must have 1 to 255 characters, none of them a control character", nil)
	}
	return Principal{Actor: tenant.Actor{TenantID: id, Subject: c.Subject}, Roles: c.Roles}, nil
}
