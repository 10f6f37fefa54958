package identity

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// idClaims is what an ID token says beside what every token says.
type idClaims struct {
	jwt.RegisteredClaims
	Nonce      string `json:"nonce"`
	Authorized string `json:"azp"`
}

// IDToken verifies an ID token (OpenID Connect Core 1.0, section 3.1.3.7): it has to be of the
// issuer, for the audience, which is the client, and of the sign-in that the nonce was made for. The
// verifier needs an issuer and an audience. Failures are those of Authenticate.
func (t *Tokens) IDToken(ctx context.Context, token, nonce string) error {
	if len(token) > maxHeader {
		return unauthenticated("the ID token is too long", nil)
	}
	var claims idClaims
	find := func(token *jwt.Token) (any, error) { return t.key(ctx, token) }
	if _, err := t.parser.ParseWithClaims(token, &claims, find); err != nil {
		return refusal(err)
	}
	if err := checkStrict(token); err != nil {
		return err
	}
	switch {
	case claims.Subject == "":
		return unauthenticated("the ID token lacks the claim sub", nil)
	case len(claims.Audience) > 1 && claims.Authorized == "", claims.Authorized != "" && claims.Authorized != t.audience:
		return unauthenticated("the ID token was made for another client", nil)
	case nonce == "" || subtle.ConstantTimeCompare([]byte(claims.Nonce), []byte(nonce)) != 1:
		return unauthenticated("the ID token is of another sign-in", nil)
	}
	return nil
}

// Expiry is when a token says that it expires; the zero time where it does not, as an API key. It
// verifies nothing.
func Expiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	var claims struct {
		Expires float64 `json:"exp"`
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &claims) != nil || !(claims.Expires > 0 && claims.Expires < 1<<40) {
		return time.Time{}
	}
	return time.Unix(int64(claims.Expires), 0).UTC()
}
