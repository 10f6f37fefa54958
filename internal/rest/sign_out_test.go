package rest_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

// patient carries requests to the issuer for as long as they take, unless the API's bounds are what
// a test is about: a busy machine may stand still for longer than those.
type patient struct {
	http.Transport
	bounded bool
}

func (p *patient) RoundTrip(r *http.Request) (*http.Response, error) {
	if !p.bounded {
		r = r.WithContext(context.WithoutCancel(r.Context()))
	}
	return p.Transport.RoundTrip(r)
}

// Signing out ends the refresh token at the issuer, so that a copy of the cookie is worth nothing.
func TestSignOutRevokesTheRefreshToken(t *testing.T) {
	t.Parallel()
	c := newVisit(t)
	c.finish(c.begin("/console/"))
	if !c.issuer.Good() {
		t.Fatal("the issuer gave no refresh token")
	}
	_, status, body, _ := c.goTo(http.MethodDelete, c.url+sessionPath)
	if status != http.StatusOK || !strings.Contains(body, "/logout?") {
		t.Errorf("signed out: %d %s", status, body)
	}
	if c.issuer.Good() {
		t.Error("the refresh token is good after the sign-out")
	}
}

// The browser is signed out, also where the issuer revokes nothing.
func TestSignOutWithoutRevocation(t *testing.T) {
	t.Parallel()
	answers := func(status int) func(*visit) {
		return func(c *visit) {
			c.issuer.AnswerRevocation = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
		}
	}
	for name, test := range map[string]struct {
		before func(*visit)
		logged bool
	}{
		"none named":  {func(c *visit) { c.issuer.Metadata = claim("revocation_endpoint", "") }, false},
		"a file":      {func(c *visit) { c.issuer.Metadata = claim("revocation_endpoint", "file:///etc/passwd") }, true},
		"refused":     {answers(http.StatusBadRequest), true},
		"broken":      {answers(http.StatusInternalServerError), true},
		"redirecting": {answers(http.StatusTemporaryRedirect), true},
		"silent": {func(c *visit) {
			c.way.bounded = true
			c.issuer.AnswerRevocation = func(_ http.ResponseWriter, r *http.Request) {
				_ = r.ParseForm() // the server hears that the client is gone once the body is read
				<-r.Context().Done()
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newVisit(t)
			test.before(c)
			c.finish(c.begin("/console/"))
			if _, status, body, _ := c.goTo(http.MethodDelete, c.url+sessionPath); status != http.StatusOK {
				t.Errorf("signed out: %d %s", status, body)
			}
			if _, status := c.session(); status != http.StatusNoContent {
				t.Errorf("after the sign-out: %d", status)
			}
			if got := strings.Contains(c.log.String(), "could not be revoked"); got != test.logged {
				t.Errorf("the log tells of it: %t\n%s", got, c.log.String())
			}
		})
	}
}
