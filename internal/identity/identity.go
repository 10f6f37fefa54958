// Package identity says who asks and what they may do.
//
// It owns the verification of tokens, the principal that comes of it, and the
// one table from role to permission. It refuses every source of identity but
// the verified token: no header, parameter or body names a tenant. It does not
// ask whether the tenant exists (package tenant) and writes no HTTP answer
// (package rest, which calls it for each request).
//
// A way in is a function from a request's header to a principal, as
// Tokens.Authenticate is, so API keys and tokens of a JWKS can stand beside it
// without a change here.
package identity

import (
	"context"
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
}

// Config says which tokens are believed.
type Config struct {
	// Secret is the key of HS256, at least 32 bytes.
	Secret []byte
	// Issuer and Audience are what iss and aud must name; empty ones are not
	// checked.
	Issuer, Audience string
	// Clock decides what has expired.
	Clock clock.Clock
}

// Tokens verifies JSON Web Tokens. It does not change once made and may be
// used by any number of goroutines.
type Tokens struct {
	parser *jwt.Parser
	secret []byte
}

// NewTokens makes a verifier. The algorithm is fixed to HS256 whatever a
// token's header says, so that no token chooses how it is checked.
func NewTokens(c Config) (*Tokens, error) {
	if len(c.Secret) < minSecret {
		return nil, fmt.Errorf("the secret of the tokens has %d bytes; at least %d are needed", len(c.Secret), minSecret)
	}
	options := []jwt.ParserOption{
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
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
	return &Tokens{parser: jwt.NewParser(options...), secret: c.Secret}, nil
}

// Authenticate reads the principal from a request's header. Every failure is
// Unauthenticated and says what is wrong with the token; none repeats a part
// of it. The context is for ways in that have to ask somebody.
func (t *Tokens) Authenticate(_ context.Context, h http.Header) (Principal, error) {
	token, err := bearer(h)
	if err != nil {
		return Principal{}, err
	}
	var claims wireClaims
	if _, err := t.parser.ParseWithClaims(token, &claims, t.key); err != nil {
		return Principal{}, refusal(err)
	}
	return claims.principal()
}

// bearer takes the token out of the one Authorization header.
func bearer(h http.Header) (string, error) {
	values := h.Values("Authorization")
	if len(values) == 0 {
		return "", unauthenticated("send a token: Authorization: Bearer <JWT>", nil)
	}
	scheme, token, found := strings.Cut(values[0], " ")
	switch {
	case len(values) > 1:
		return "", unauthenticated("the header Authorization stands more than once", nil)
	case len(values[0]) > maxHeader:
		return "", unauthenticated("the token is too long", nil)
	case !found || !strings.EqualFold(scheme, "Bearer") || token == "":
		return "", unauthenticated("the header Authorization is not of the form: Bearer <JWT>", nil)
	}
	return token, nil
}

// key hands out the secret for a token whose header asks for nothing else. A
// kid is ignored, since there is one key. What points to a key of the token's
// own, or must be understood and is not, is refused (RFC 7515, section 4.1).
func (t *Tokens) key(token *jwt.Token) (any, error) {
	for _, name := range []string{"crit", "jku", "jwk", "x5u", "x5c"} {
		if _, ok := token.Header[name]; ok {
			return nil, fmt.Errorf("header parameter %s", name)
		}
	}
	switch typ, _ := token.Header["typ"].(string); strings.ToLower(typ) {
	case "", "jwt", "at+jwt", "application/at+jwt":
		return t.secret, nil
	default:
		return nil, errors.New("header parameter typ")
	}
}

// refusal says which check a token failed, in a fixed sentence.
func refusal(err error) error {
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
	return fault.Wrap(fault.Unauthenticated, "UNAUTHORIZED", message, cause)
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
