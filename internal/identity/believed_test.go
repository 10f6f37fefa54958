package identity_test

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// A token that was verified is not verified again for two seconds: a key that is taken
// back counts as long. Its expiry is asked each time, and a token that differs in one
// letter is another.
func TestAVerifiedTokenIsRememberedForAMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		public, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		asked, withdrawn := 0, false
		tokens, err := identity.NewTokens(identity.Config{
			Issuer: issuer, Audience: "scheduler", Clock: clock.Now,
			Keys: func(context.Context, string) (crypto.PublicKey, error) {
				if asked++; withdrawn {
					return nil, errAway
				}
				return public, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		p := pairs{}
		token := func(life time.Duration) string {
			return p.sign(t, jwt.SigningMethodEdDSA, private, map[string]any{"kid": "ed"}, func(c map[string]any) {
				c["iat"], c["nbf"], c["exp"] = clock.Now().Unix(), clock.Now().Unix(), clock.Now().Add(life).Unix()
			})
		}
		long, short := token(time.Hour), token(time.Second)
		first, err := tokens.Authenticate(t.Context(), bearer(long))
		if err != nil {
			t.Fatal(err)
		}
		withdrawn = true
		again, err := tokens.Authenticate(t.Context(), bearer(long))
		if diff := cmp.Diff(first, again); diff != "" || err != nil || asked != 1 {
			t.Errorf("a moment later: %v, the keys were asked for %d times (-first +again)\n%s", err, asked, diff)
		}
		if _, err := tokens.Authenticate(t.Context(), bearer(withOtherSignature(long))); err == nil {
			t.Error("a token with another signature is believed")
		}
		<-time.After(2 * time.Second)
		if _, err := tokens.Authenticate(t.Context(), bearer(long)); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("after two seconds: %v", err)
		}
		withdrawn = false
		<-time.After(28500 * time.Millisecond) // with the leeway of 30 s the short one is good for half a second more
		if _, err := tokens.Authenticate(t.Context(), bearer(short)); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		if _, err := tokens.Authenticate(t.Context(), bearer(short)); fault.KindOf(err) != fault.Unauthenticated {
			t.Errorf("an expired token: %v", err)
		}
	})
}

// withOtherSignature changes the signature's first letter. The last one would not do:
// four of its six bits are padding, so two letters of it can mean the same signature.
func withOtherSignature(token string) string {
	at := strings.LastIndex(token, ".") + 1
	other := "A"
	if token[at] == 'A' {
		other = "B"
	}
	return token[:at] + other + token[at+1:]
}
