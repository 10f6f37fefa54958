package identity

import (
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
)

// Claims is what a minted token says.
type Claims struct {
	Subject string
	Tenant  uuid.UUID
	Roles   []Role
	// Issuer and Audience are left out where they are empty.
	Issuer, Audience string
}

// Mint signs a token that is valid from now for ttl. It is for development
// (standalone prints such a token) and tests; in production the auth service
// signs, with the same secret.
func Mint(secret []byte, c Claims, now time.Time, ttl time.Duration) (string, error) {
	claims := wireClaims{
		RegisteredClaims: jwt.RegisteredClaims{
			Subject: c.Subject, Issuer: c.Issuer,
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(ttl)),
		},
		Tenant: c.Tenant.String(), Roles: c.Roles,
	}
	if c.Audience != "" {
		claims.Audience = jwt.ClaimStrings{c.Audience}
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
	if err != nil {
		return "", fmt.Errorf("sign the token: %w", err)
	}
	return token, nil
}
