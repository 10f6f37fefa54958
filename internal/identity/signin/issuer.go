package signin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

const (
	discoveryPath = "/.well-known/openid-configuration"
	// patience bounds one request to the issuer, and maxAnswer an answer in bytes. A sign-in makes two.
	patience  = 5 * time.Second
	maxAnswer = 256 << 10
	// fresh is how long the issuer's metadata is believed, and stale how long while it is away.
	fresh, stale = time.Hour, 24 * time.Hour
	// minDistance keeps sign-ins from asking an issuer again and again that is away.
	minDistance = 5 * time.Second
	// maxRequests is how many requests for tokens are under way in this process.
	maxRequests = 32
)

func newHTTP(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = &http.Transport{
			TLSHandshakeTimeout: patience, ResponseHeaderTimeout: patience, MaxResponseHeaderBytes: 64 << 10,
			DisableKeepAlives: true, // sign-ins are rare
		}
	}
	return &http.Client{
		Timeout: patience, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("the issuer redirects") },
	}
}

// provider is what the issuer says of itself (OpenID Connect Discovery 1.0, RFC 8414).
type provider struct {
	Issuer        string   `json:"issuer"`
	Authorization string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	EndSession    string   `json:"end_session_endpoint"`
	Challenges    []string `json:"code_challenge_methods_supported"`
	Methods       []string `json:"token_endpoint_auth_methods_supported"`
	NamesItself   bool     `json:"authorization_response_iss_parameter_supported"`
	// Revocation may be empty. RevocationMethods is nil if the issuer does not say.
	Revocation        string   `json:"revocation_endpoint"`
	RevocationMethods []string `json:"revocation_endpoint_auth_methods_supported"`
}

// discovery keeps the metadata of the issuer.
type discovery struct {
	asking chan struct{} // held by who asks the issuer

	mu    sync.Mutex
	known *provider
	read  clock.Mark
	tried clock.Mark
	away  error // why the last try failed
}

// kept is what is known: good as long as it is believed, and otherwise why the issuer need not be
// asked yet.
func (d *discovery) kept() (p *provider, wait error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	limit := fresh
	if d.away != nil && d.tried.Elapsed() < minDistance {
		limit, wait = stale, d.away
	}
	if d.known != nil && d.read.Elapsed() < limit {
		return d.known, nil
	}
	return nil, wait
}

func (d *discovery) learn(p *provider, err error) (*provider, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tried, d.away = clock.Start(), err
	if err == nil {
		d.known, d.read = p, clock.Start()
	}
	if d.known != nil && d.read.Elapsed() < stale {
		return d.known, nil
	}
	return nil, err
}

// provider is the metadata of the issuer, asked once by all who wait for it.
func (c *Client) provider(ctx context.Context) (*provider, error) {
	d := &c.found
	if p, wait := d.kept(); p != nil || wait != nil {
		return p, wait
	}
	select {
	case d.asking <- struct{}{}:
		defer func() { <-d.asking }()
	case <-ctx.Done():
		return nil, failed(Unreachable, "wait for the issuer: %w", ctx.Err())
	}
	if p, wait := d.kept(); p != nil || wait != nil { // somebody asked while this one waited
		return p, wait
	}
	return d.learn(c.discover(context.WithoutCancel(ctx)))
}

func (c *Client) discover(ctx context.Context) (*provider, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.Issuer, "/")+discoveryPath, nil)
	if err != nil {
		return nil, failed(Refused, "the issuer's address does not parse")
	}
	var p provider
	status, err := c.do(request, &p)
	switch {
	case err != nil:
		return nil, failed(Unreachable, "ask the issuer for its metadata: %w", err)
	case status != http.StatusOK:
		return nil, failed(Unreachable, "the issuer answers %d where its metadata should stand", status)
	}
	return &p, p.check(c.Issuer)
}

// check refuses metadata of another issuer, and what no sign-in can be made with.
func (p *provider) check(issuer string) error {
	if p.Issuer != issuer {
		return failed(Refused, "the metadata names the issuer %.200q and not CONSOLE_OIDC_ISSUER", p.Issuer)
	}
	if p.Challenges != nil && !slices.Contains(p.Challenges, "S256") {
		return failed(Refused, "the issuer does not support PKCE with S256")
	}
	for name, address := range map[string]string{"authorization_endpoint": p.Authorization, "token_endpoint": p.Token, "end_session_endpoint": p.EndSession} {
		if address == "" && name == "end_session_endpoint" {
			continue
		}
		if !mayAsk(issuer, address) {
			return failed(Refused, "the metadata's %s is no address that a sign-in may use", name)
		}
	}
	return nil
}

// answer is what the token endpoint answers.
type answer struct {
	Access      string `json:"access_token"`
	Refresh     string `json:"refresh_token"`
	ID          string `json:"id_token"`
	Type        string `json:"token_type"`
	Code        string `json:"error"`
	Description string `json:"error_description"`
}

// request asks the token endpoint.
func (c *Client) request(ctx context.Context, p *provider, form url.Values) (got answer, err error) {
	give, err := c.turn(ctx)
	if err != nil {
		return got, err
	}
	defer give()
	request, err := c.form(ctx, p.Token, p.Methods, form)
	if err != nil {
		return got, err
	}
	status, err := c.do(request, &got)
	switch {
	case err != nil:
		return got, failed(Unreachable, "ask the issuer for a token: %w", err)
	case status >= http.StatusInternalServerError || status == http.StatusTooManyRequests:
		return got, failed(Unreachable, "the issuer answers %d where it should give a token", status)
	case status != http.StatusOK:
		return got, refusalOf(got.Code, got.Description)
	case got.Access == "" || !strings.EqualFold(got.Type, "Bearer"):
		return got, failed(Refused, "the issuer's answer has no access token of type Bearer")
	}
	return got, nil
}

// do makes a request and reads the answer, which is JSON of a bounded size. Of an answer that is no
// success, the status is enough; with nowhere to read it into, of every answer.
func (c *Client) do(request *http.Request, into any) (status int, err error) {
	request.Header.Set("Accept", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close() // read only
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return response.StatusCode, fmt.Errorf("read the answer: %w", err)
	case len(text) > maxAnswer:
		return response.StatusCode, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	if into == nil {
		return response.StatusCode, nil
	}
	if err := json.Unmarshal(text, into); err != nil && response.StatusCode == http.StatusOK {
		return response.StatusCode, errors.New("the answer is no JSON")
	}
	return response.StatusCode, nil
}
