// Package signin signs people in at an OpenID Connect issuer, by an authorization code with PKCE
// (RFC 6749, RFC 7636, RFC 9207, OpenID Connect Core 1.0).
//
// It owns what the issuer is asked, what of its answers is believed, and how long they may take. It
// refuses to open sessions and to judge access tokens: package rest does, as with every other token.
package signin

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/identity"
)

const (
	// Lifetime is how long somebody may take to sign in at the issuer.
	Lifetime = 10 * time.Minute
	// maxCode bounds a code in bytes.
	maxCode = 4096
	// maxSpent bounds the sign-ins that are remembered as used. Where more end in ten minutes, the
	// issuer alone refuses a code that is sent again.
	maxSpent = 10_000
)

// Config says which issuer is asked.
type Config struct {
	// Issuer is compared with what the issuer calls itself, byte by byte.
	Issuer, ClientID string
	// ClientSecret is empty for a public client.
	ClientSecret string
	// Scopes are separated by spaces; openid is among them.
	Scopes string
	// RedirectURL is where the issuer sends the browser back to, and SignedOutURL where it does after
	// a sign-out.
	RedirectURL, SignedOutURL string
	// Keys finds the issuer's public keys.
	Keys func(ctx context.Context, id string) (crypto.PublicKey, error)
	// Secret seals what the browser keeps; the same in every process behind one address.
	Secret []byte
	Clock  clock.Clock
	// Transport carries the requests; nil means one of its own.
	Transport http.RoundTripper
}

// Client signs people in. Its methods may be called concurrently.
type Client struct {
	Config
	*seal

	tokens *identity.Tokens
	http   *http.Client
	found  discovery
	slots  chan struct{} // of requests for tokens

	mu    sync.Mutex
	spent map[string]time.Time // states that were used, until their sign-ins have expired
}

// New makes a client. The issuer is asked when somebody signs in.
func New(c Config) (*Client, error) {
	tokens, err := identity.NewTokens(identity.Config{Keys: c.Keys, Issuer: c.Issuer, Audience: c.ClientID, Clock: c.Clock})
	if err != nil {
		return nil, fmt.Errorf("verify ID tokens: %w", err)
	}
	sealing, err := newSeal(c.Secret)
	if err != nil {
		return nil, err
	}
	return &Client{
		Config: c, seal: sealing, tokens: tokens, http: newHTTP(c.Transport), found: discovery{asking: make(chan struct{}, 1)},
		slots: make(chan struct{}, maxRequests), spent: map[string]time.Time{},
	}, nil
}

// Problem is why a sign-in failed, for the page that says it.
type Problem string

// The problems.
const (
	Denied      Problem = "denied"      // the issuer let nobody in, or has ended the session
	Stale       Problem = "stale"       // it took too long, was used, or was begun in another browser
	Refused     Problem = "refused"     // the issuer's answer is not what it has to be
	Unreachable Problem = "unreachable" // the issuer does not answer, or not now
)

// Error is a sign-in that failed. Its text is for the log: it may repeat what the issuer says, and
// has no token, code or secret.
type Error struct {
	Problem Problem
	cause   error
}

// Error says what happened.
func (e *Error) Error() string { return e.cause.Error() }

// Unwrap is what it came of.
func (e *Error) Unwrap() error { return e.cause }

func failed(p Problem, format string, args ...any) error {
	return &Error{Problem: p, cause: fmt.Errorf(format, args...)}
}

// ProblemOf is the problem of an error: Refused where it names none.
func ProblemOf(err error) Problem {
	var known *Error
	if errors.As(err, &known) {
		return known.Problem
	}
	return Refused
}

// Attempt is one sign-in under way. The browser that began it keeps it sealed.
type Attempt struct {
	State, Nonce, Verifier string
	Return                 string // where the person wanted to go
	Expires                time.Time
}

// Begin makes an attempt, and the address of the issuer that the browser goes to.
func (c *Client) Begin(ctx context.Context, returnTo string) (Attempt, string, error) {
	p, err := c.provider(ctx)
	if err != nil {
		return Attempt{}, "", err
	}
	a := Attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: rand.Text() + rand.Text(), Return: returnTo, Expires: c.Clock().Add(Lifetime)}
	challenge := sha256.Sum256([]byte(a.Verifier))
	return a, withQuery(p.Authorization, url.Values{
		"response_type": {"code"}, "client_id": {c.ClientID}, "redirect_uri": {c.RedirectURL}, "scope": {c.Scopes}, "state": {a.State}, "nonce": {a.Nonce},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(challenge[:])}, "code_challenge_method": {"S256"},
	}), nil
}

// Grant is what the issuer gives for a code or for a refresh token.
type Grant struct {
	Access  string
	Refresh string // empty where there is none
}

// Finish exchanges the code that the issuer sent the browser back with, once.
func (c *Client) Finish(ctx context.Context, a Attempt, answer url.Values) (Grant, error) {
	if subtle.ConstantTimeCompare([]byte(single(answer, "state")), []byte(a.State)) != 1 {
		return Grant{}, failed(Stale, "the state is not that of the browser's sign-in")
	}
	if !c.spend(a) {
		return Grant{}, failed(Stale, "the sign-in has expired or was used already")
	}
	p, err := c.provider(ctx)
	if err != nil {
		return Grant{}, err
	}
	if _, says := answer["iss"]; (says || p.NamesItself) && single(answer, "iss") != c.Issuer {
		return Grant{}, failed(Refused, "the answer is of another issuer")
	}
	if answer.Has("error") {
		return Grant{}, refusalOf(single(answer, "error"), single(answer, "error_description"))
	}
	code := single(answer, "code")
	if code == "" || len(code) > maxCode {
		return Grant{}, failed(Refused, "the answer has no code of at most %d bytes", maxCode)
	}
	got, err := c.request(ctx, p, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {c.RedirectURL}, "code_verifier": {a.Verifier},
	})
	if err != nil {
		return Grant{}, err
	}
	if err := c.tokens.IDToken(ctx, got.ID, a.Nonce); err != nil {
		problem := Refused
		if fault.KindOf(err) == fault.Unavailable {
			problem = Unreachable
		}
		return Grant{}, failed(problem, "verify the ID token: %w", err)
	}
	return Grant{Access: got.Access, Refresh: got.Refresh}, nil
}

// Renew exchanges a refresh token. The caller compares the next access token's subject with the last one's.
func (c *Client) Renew(ctx context.Context, refresh string) (Grant, error) {
	p, err := c.provider(ctx)
	if err != nil {
		return Grant{}, err
	}
	got, err := c.request(ctx, p, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {refresh}})
	if err != nil {
		return Grant{}, err
	}
	if got.Refresh == "" {
		got.Refresh = refresh
	}
	return Grant{Access: got.Access, Refresh: got.Refresh}, nil
}

// SignOutURL is where a browser goes to sign out at the issuer, too; empty where the issuer has no
// such address or does not answer.
func (c *Client) SignOutURL(ctx context.Context) string {
	p, err := c.provider(ctx)
	if err != nil || p.EndSession == "" {
		return ""
	}
	return withQuery(p.EndSession, url.Values{"client_id": {c.ClientID}, "post_logout_redirect_uri": {c.SignedOutURL}})
}

// spend says whether an attempt is good still, and makes it good no longer.
func (c *Client) spend(a Attempt) bool {
	now := c.Clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, used := c.spent[a.State]; used || !now.Before(a.Expires) {
		return false
	}
	if len(c.spent) >= maxSpent {
		for state, expires := range c.spent {
			if !now.Before(expires) {
				delete(c.spent, state)
			}
		}
	}
	if len(c.spent) < maxSpent {
		c.spent[a.State] = a.Expires
	}
	return true
}

// saneCode is what an error code of OAuth 2.0 looks like.
var saneCode = regexp.MustCompile(`^[a-z_]{1,64}$`)

// refusalOf is what an error of the issuer means.
func refusalOf(code, description string) error {
	if !saneCode.MatchString(code) {
		code = "an error"
	}
	if len(description) > 200 {
		description = description[:200]
	}
	problem := Refused
	switch code {
	case "access_denied", "login_required", "interaction_required", "consent_required", "account_selection_required", "invalid_grant":
		problem = Denied
	case "server_error", "temporarily_unavailable":
		problem = Unreachable
	}
	return failed(problem, "the issuer answers %s: %q", code, description)
}

// single is a parameter that stands once; empty otherwise.
func single(answer url.Values, name string) string {
	if len(answer[name]) != 1 {
		return ""
	}
	return answer[name][0]
}

func withQuery(address string, values url.Values) string {
	if strings.Contains(address, "?") {
		return address + "&" + values.Encode()
	}
	return address + "?" + values.Encode()
}
