package rest_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/identity/jwks"
	"github.com/scheduler-service/scheduler/internal/identity/signin"
	"github.com/scheduler-service/scheduler/internal/identity/signin/signintest"
	"github.com/scheduler-service/scheduler/internal/rest/parts"
)

// visit is an API that an issuer signs people in to, and a browser in front of it.
type visit struct {
	*bundle

	t      *testing.T
	issuer *signintest.Issuer
	way    *patient // to the issuer
	set    *jwks.Set
	url    string
	http   *http.Client
}

func newVisit(t *testing.T) *visit {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	c := &visit{t: t, url: "http://" + server.Listener.Addr().String(), way: &patient{Transport: http.Transport{DisableKeepAlives: true}}}
	c.bundle = setup(t, func(d *parts.Deps) {
		c.issuer = signintest.New(t, func() time.Time { return c.clock() }, map[string]any{"tenant_id": "", "roles": []string{"admin"}})
		c.set = jwks.New(jwks.Config{URL: c.issuer.URL + "/keys", Log: slog.New(slog.DiscardHandler), Transport: c.way})
		tokens, err := identity.NewTokens(identity.Config{Keys: c.set.Key, Issuer: c.issuer.URL, Audience: "scheduler", Clock: d.Clock})
		if err != nil {
			t.Fatal(err)
		}
		d.Authenticate, d.SignInURL = tokens.Authenticate, c.url+"/console/sign-in"
		d.Issuer, err = signin.New(signin.Config{
			Issuer: c.issuer.URL, ClientID: signintest.ClientID, ClientSecret: signintest.ClientSecret, Scopes: "openid profile", RedirectURL: c.url + "/console/sign-in/callback",
			SignedOutURL: c.url + "/console/", Keys: c.set.Key, Secret: secret, Clock: d.Clock, Transport: c.way,
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	c.now = c.now.Truncate(time.Second) // as tokens say it
	c.issuer.Access = func(claims map[string]any) {
		claims["tenant_id"], claims["roles"] = c.ours.TenantID.String(), []string{"admin"}
	}
	server.Config.Handler = c.handler
	server.Start()
	t.Cleanup(server.Close)
	c.newBrowser()
	return c
}

// clock is that of the API, which a test moves.
func (c *visit) clock() time.Time { return c.now }

// newBrowser forgets all cookies. It follows no redirect.
func (c *visit) newBrowser() {
	c.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	c.http = &http.Client{Jar: jar, Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// goTo is where an address leads, and what stands there.
func (c *visit) goTo(method, address string) (to string, status int, body string, header http.Header) {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), method, address, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if strings.HasSuffix(address, sessionPath) {
		request.Header.Set("X-Scheduler-Console", "1")
	}
	response, err := c.http.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return response.Header.Get("Location"), response.StatusCode, string(text), response.Header
}

// begin goes to the issuer and answers where it sends the browser back to.
func (c *visit) begin(to string) (callback string) {
	c.t.Helper()
	address, status, _, _ := c.goTo(http.MethodGet, c.url+"/console/sign-in?to="+url.QueryEscape(to))
	if status != http.StatusSeeOther || !strings.HasPrefix(address, c.issuer.URL+"/authorize?") {
		c.t.Fatalf("a sign-in begins with %d, to %s", status, address)
	}
	callback, status, _, _ = c.goTo(http.MethodGet, address)
	if status != http.StatusFound {
		c.t.Fatalf("the issuer answers %d to %s", status, address)
	}
	return callback
}

// finish goes back to the console, and answers which page comes.
func (c *visit) finish(callback string) string {
	c.t.Helper()
	to, status, body, _ := c.goTo(http.MethodGet, callback)
	if status != http.StatusSeeOther {
		c.t.Fatalf("a sign-in ends with %d %s", status, body)
	}
	return to
}

type openSession struct {
	Token, Subject string
	Permissions    []string
	RenewSeconds   int
}

// session is that of the browser.
func (c *visit) session() (s openSession, status int) {
	c.t.Helper()
	_, status, body, _ := c.goTo(http.MethodGet, c.url+sessionPath)
	if status == http.StatusOK {
		if err := json.Unmarshal([]byte(body), &s); err != nil {
			c.t.Fatal(err)
		}
	}
	return s, status
}

func TestIssuerSignsIn(t *testing.T) {
	t.Parallel()
	c := newVisit(t)
	if _, status, _, header := c.goTo(http.MethodGet, c.url+sessionPath); status != http.StatusNoContent || header.Get("X-Scheduler-Sign-In") != c.url+"/console/sign-in" {
		t.Errorf("nobody is signed in: %d, sign in at %q", status, header.Get("X-Scheduler-Sign-In"))
	}
	if to := c.finish(c.begin("/console/jobs?status=active&q=a%2Fb")); to != "/console/jobs?status=active&q=a%2Fb" {
		t.Errorf("the sign-in leads to %s", to)
	}
	first, status := c.session()
	if status != http.StatusOK || first.Subject != "ada" || !slices.Contains(first.Permissions, "jobs:write") || first.RenewSeconds != 270 {
		t.Fatalf("%d, %+v", status, first)
	}
	if got := c.send(request{method: http.MethodGet, path: base + "/jobs", token: first.Token}); got.status != http.StatusOK {
		t.Errorf("the API answers %d to the token", got.status)
	}
	at, _ := url.Parse(c.url + sessionPath)
	for _, cookie := range c.http.Jar.Cookies(at) {
		if cookie.Name != "scheduler_ticket" {
			continue
		}
		if raw, err := base64.RawURLEncoding.DecodeString(cookie.Value); err != nil || bytes.Contains(raw, []byte(c.ours.TenantID.String())) {
			t.Errorf("the ticket can be read: %q, %v", raw, err)
		}
	}
	asked := c.issuer.Asked()
	if again, _ := c.session(); again.Token != first.Token || c.issuer.Asked() != asked {
		t.Error("a token is renewed that is good for long")
	}
	_, status, body, _ := c.goTo(http.MethodDelete, c.url+sessionPath)
	if status != http.StatusOK || !strings.Contains(body, c.issuer.URL+"/logout?client_id=console\\u0026post_logout_redirect_uri=") {
		t.Errorf("signed out: %d %s", status, body)
	}
	if _, status := c.session(); status != http.StatusNoContent {
		t.Errorf("after the sign-out: %d", status)
	}
}

// The issuer decides how long a session lasts, and whose it is.
func TestSessionIsRenewedAtTheIssuer(t *testing.T) {
	t.Parallel()
	c := newVisit(t)
	c.finish(c.begin("/console/"))
	first, _ := c.session()
	c.now = c.now.Add(4*time.Minute + 40*time.Second)
	second, status := c.session()
	if status != http.StatusOK || second.Token == first.Token || second.RenewSeconds != 270 {
		t.Fatalf("before the end of the token: %d, renew in %d s", status, second.RenewSeconds)
	}
	c.now = c.now.Add(time.Hour)
	if third, status := c.session(); status != http.StatusOK || third.Token == second.Token {
		t.Fatalf("an hour later: %d", status)
	}
	c.issuer.Answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
	c.now = c.now.Add(4*time.Minute + 40*time.Second)
	if _, status := c.session(); status != http.StatusOK {
		t.Errorf("while the issuer is away and the token is good: %d", status)
	}
	c.now = c.now.Add(time.Minute)
	if _, status := c.session(); status != http.StatusServiceUnavailable {
		t.Errorf("while the issuer is away and the token is not good: %d", status)
	}
	c.issuer.Answer = nil
	if _, status := c.session(); status != http.StatusOK {
		t.Errorf("when the issuer is back: %d", status)
	}
	c.issuer.Access = func(claims map[string]any) {
		claims["sub"], claims["tenant_id"], claims["roles"] = "eve", c.theirs.TenantID.String(), []string{"admin"}
	}
	c.now = c.now.Add(time.Hour)
	if s, status := c.session(); status != http.StatusUnauthorized {
		t.Errorf("the next token is of %q: %d", s.Subject, status)
	}
}

func TestSessionEndsAtTheIssuer(t *testing.T) {
	t.Parallel()
	c := newVisit(t)
	c.finish(c.begin("/console/"))
	c.issuer.Revoke()
	c.now = c.now.Add(time.Hour)
	if _, status := c.session(); status != http.StatusUnauthorized {
		t.Errorf("the issuer has ended the session: %d", status)
	}
	if _, status := c.session(); status != http.StatusNoContent {
		t.Errorf("and the cookies are kept: %d", status)
	}
}

// A key that is new signs people in; one that was withdrawn does not.
func TestKeysOfTheIssuerRotate(t *testing.T) {
	t.Parallel()
	c := newVisit(t)
	if to := c.finish(c.begin("/console/")); to != "/console/" {
		t.Fatal(to)
	}
	if err := c.issuer.Rotate("k2"); err != nil {
		t.Fatal(err)
	}
	if err := c.set.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if to := c.finish(c.begin("/console/")); to != "/console/" {
		t.Errorf("with the new key: %s", to)
	}
	c.issuer.Sign = func(_ string, key *ecdsa.PrivateKey, claims jwt.MapClaims) string {
		return signintest.Signed("k1", key, claims)
	}
	if to := c.finish(c.begin("/console/")); to != "/console/#sign-in-failed=refused" {
		t.Errorf("with the id of a key that was withdrawn: %s", to)
	}
}

// forged signs ID tokens as attackers do.
func forged(method jwt.SigningMethod, key func(*ecdsa.PrivateKey) any) func(string, *ecdsa.PrivateKey, jwt.MapClaims) string {
	return func(id string, private *ecdsa.PrivateKey, claims jwt.MapClaims) string {
		token := jwt.NewWithClaims(method, claims)
		token.Header["kid"] = id
		text, err := token.SignedString(key(private))
		if err != nil {
			return err.Error()
		}
		return text
	}
}

func claim(name string, value any) func(map[string]any) {
	return func(claims map[string]any) { claims[name] = value }
}

func TestSignInsThatAreRefused(t *testing.T) {
	t.Parallel()
	query := func(callback, name, value string) string {
		parsed, _ := url.Parse(callback)
		q := parsed.Query()
		if q.Del(name); value != "" {
			q.Set(name, value)
		}
		parsed.RawQuery = q.Encode()
		return parsed.String()
	}
	answers := func(status int, body string) func(*visit) {
		return func(c *visit) {
			c.issuer.Answer = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/keys")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, body)
			}
		}
	}
	for name, test := range map[string]struct {
		before func(*visit)                // the sign-in begins
		back   func(*visit, string) string // changes where the issuer sends the browser
		want   string
	}{
		"wrong state":    {nil, func(_ *visit, at string) string { return query(at, "state", "guessed") }, "stale"},
		"no state":       {nil, func(_ *visit, at string) string { return query(at, "state", "") }, "stale"},
		"two states":     {nil, func(_ *visit, at string) string { return at + "&state=x" }, "stale"},
		"other browser":  {nil, func(c *visit, at string) string { c.newBrowser(); return at }, "stale"},
		"too late":       {nil, func(c *visit, at string) string { c.now = c.now.Add(11 * time.Minute); return at }, "stale"},
		"another's code": {nil, func(c *visit, at string) string { return query(at, "code", codeOf(c)) }, "denied"},
		"invented code":  {nil, func(_ *visit, at string) string { return query(at, "code", "invented") }, "denied"},
		"no code":        {nil, func(_ *visit, at string) string { return query(at, "code", "") }, "refused"},
		"another issuer": {nil, func(_ *visit, at string) string { return query(at, "iss", "https://evil.example") }, "refused"},
		"nameless":       {nil, func(_ *visit, at string) string { return query(at, "iss", "") }, "refused"},
		"access denied":  {nil, func(_ *visit, at string) string { return query(at, "error", "access_denied") }, "denied"},
		"issuer's error": {nil, func(_ *visit, at string) string { return query(at, "error", "<script>") }, "refused"},
		"not now":        {nil, func(_ *visit, at string) string { return query(at, "error", "temporarily_unavailable") }, "unreachable"},

		"wrong nonce":          {func(c *visit) { c.issuer.ID = claim("nonce", "another") }, nil, "refused"},
		"no nonce":             {func(c *visit) { c.issuer.ID = claim("nonce", "") }, nil, "refused"},
		"ID token's audience":  {func(c *visit) { c.issuer.ID = claim("aud", "another") }, nil, "refused"},
		"two audiences":        {func(c *visit) { c.issuer.ID = claim("aud", []string{"console", "another"}) }, nil, "refused"},
		"of another client":    {func(c *visit) { c.issuer.ID = claim("azp", "another") }, nil, "refused"},
		"ID token's issuer":    {func(c *visit) { c.issuer.ID = claim("iss", "https://evil.example") }, nil, "refused"},
		"ID token has expired": {func(c *visit) { c.issuer.ID = claim("exp", c.now.Add(-time.Minute).Unix()) }, nil, "refused"},
		"ID token of tomorrow": {func(c *visit) { c.issuer.ID = claim("iat", c.now.Add(time.Minute).Unix()) }, nil, "refused"},
		"no subject":           {func(c *visit) { c.issuer.ID = claim("sub", "") }, nil, "refused"},
		"alg none": {func(c *visit) {
			c.issuer.Sign = forged(jwt.SigningMethodNone, func(*ecdsa.PrivateKey) any { return jwt.UnsafeAllowNoneSignatureType })
		}, nil, "refused"},
		"HS256 with the public key": {func(c *visit) {
			c.issuer.Sign = forged(jwt.SigningMethodHS256, func(key *ecdsa.PrivateKey) any {
				public, _ := x509.MarshalPKIXPublicKey(&key.PublicKey)
				return public
			})
		}, nil, "refused"},
		"the access token as ID token": {func(c *visit) { c.issuer.ID = claim("aud", "scheduler") }, nil, "refused"},

		"no tenant":               {func(c *visit) { c.issuer.Access = claim("roles", []string{"admin"}) }, nil, "access"},
		"access token's audience": {func(c *visit) { c.issuer.Access = claim("aud", "another") }, nil, "access"},
		"no role":                 {func(c *visit) { c.issuer.Access = claim("tenant_id", c.ours.TenantID.String()) }, nil, "rights"},
		"long access token": {func(c *visit) {
			fill := c.issuer.Access
			c.issuer.Access = func(claims map[string]any) { fill(claims); claims["groups"] = strings.Repeat("g", 3800) }
			c.issuer.NoRefresh = true
		}, nil, "long"},

		"metadata of another issuer": {func(c *visit) { c.issuer.Metadata = claim("issuer", "https://evil.example") }, nil, "refused"},
		"no S256":                    {func(c *visit) { c.issuer.Metadata = claim("code_challenge_methods_supported", []string{"plain"}) }, nil, "refused"},
		"token endpoint is a file":   {func(c *visit) { c.issuer.Metadata = claim("token_endpoint", "file:///etc/passwd") }, nil, "refused"},
		"issuer is away":             {func(c *visit) { c.issuer.Close() }, nil, "unreachable"},
		"token endpoint is broken":   {answers(http.StatusInternalServerError, "<html>"), nil, "unreachable"},
		"token endpoint redirects":   {answers(http.StatusTemporaryRedirect, ""), nil, "unreachable"},
		"no JSON":                    {answers(http.StatusOK, "<html>"), nil, "unreachable"},
		"endless":                    {answers(http.StatusOK, strings.Repeat(" ", 300<<10)), nil, "unreachable"},
		"no token":                   {answers(http.StatusOK, `{"token_type":"Bearer"}`), nil, "refused"},
		"wrong client":               {answers(http.StatusUnauthorized, `{"error":"invalid_client"}`), nil, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newVisit(t)
			if test.before != nil {
				test.before(c)
			}
			to, _, _, _ := c.goTo(http.MethodGet, c.url+"/console/sign-in")
			if strings.HasPrefix(to, c.issuer.URL) {
				at, _, _, _ := c.goTo(http.MethodGet, to)
				if test.back != nil {
					at = test.back(c, at)
				}
				to = c.finish(at)
			}
			if to != "/console/#sign-in-failed="+test.want {
				t.Errorf("the sign-in leads to %s, want %s", to, test.want)
			}
			if _, status := c.session(); status != http.StatusNoContent {
				t.Errorf("somebody is signed in: %d", status)
			}
		})
	}
}

// codeOf is a code of somebody else's sign-in.
func codeOf(c *visit) string {
	mine := c.http
	defer func() { c.http = mine }()
	c.newBrowser()
	parsed, _ := url.Parse(c.begin("/console/"))
	return parsed.Query().Get("code")
}

// An attacker who reads an address over somebody's shoulder cannot use it again, not even with the cookie.
func TestSignInIsGoodOnce(t *testing.T) {
	t.Parallel()
	c := newVisit(t)
	callback := c.begin("/console/")
	at, _ := url.Parse(callback)
	kept := c.http.Jar.Cookies(at)
	if to := c.finish(callback); to != "/console/" {
		t.Fatal(to)
	}
	asked := c.issuer.Asked()
	c.newBrowser()
	c.http.Jar.SetCookies(at, kept)
	if to := c.finish(callback); to != "/console/#sign-in-failed=stale" || c.issuer.Asked() != asked {
		t.Errorf("the second time leads to %s, and the issuer was asked %d times", to, c.issuer.Asked()-asked)
	}
}

func TestSignInLeadsToTheConsoleAlone(t *testing.T) {
	t.Parallel()
	c := newVisit(t)
	for to, want := range map[string]string{
		"/console/executions?since=1h": "/console/executions?since=1h", "/console/jobs/a%20b/": "/console/jobs/a%20b/", "": "/console/",
		"https://evil.example/console/": "/console/", "//evil.example/console/": "/console/", "/\\evil.example": "/console/", "/console/../docs": "/console/",
		"/console//evil.example": "/console/", "/console/%2e%2e/docs": "/console/", "/console/\r\nX: y": "/console/", "javascript:alert(1)": "/console/", "/console/#sign-in=x": "/console/",
		"/console/" + strings.Repeat("a", 1000): "/console/", "/api/v1/scheduler/jobs": "/console/",
	} {
		if got := c.finish(c.begin(to)); got != want {
			t.Errorf("%q leads to %q, want %q", to, got, want)
		}
	}
}
