package signin

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// revokePatience bounds a revocation: somebody waits for the sign-out.
const revokePatience = 2 * time.Second

// Revoke ends a refresh token at the issuer's revocation endpoint (RFC 7009). It does nothing where the
// issuer names none. It takes at most two seconds and goes on where the caller hangs up. The token is
// forgotten here in any case, so an error is only for the log.
func (c *Client) Revoke(ctx context.Context, refresh string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokePatience)
	defer cancel()
	p, err := c.provider(ctx)
	if err != nil || p.Revocation == "" {
		return err
	}
	if !mayAsk(c.Issuer, p.Revocation) {
		return failed(Refused, "the metadata's revocation_endpoint is no address that a sign-out may use")
	}
	give, err := c.turn(ctx)
	if err != nil {
		return err
	}
	defer give()
	methods := p.RevocationMethods
	if methods == nil {
		methods = p.Methods
	}
	request, err := c.form(ctx, p.Revocation, methods, url.Values{"token": {refresh}, "token_type_hint": {"refresh_token"}})
	if err != nil {
		return err
	}
	switch status, err := c.do(request, nil); {
	case err != nil:
		return failed(Unreachable, "ask the issuer to revoke a token: %w", err)
	case status != http.StatusOK:
		return failed(Refused, "the issuer answers %d where it should revoke a token", status)
	}
	return nil
}

// turn waits until the issuer may be asked, and returns what ends the turn.
func (c *Client) turn(ctx context.Context) (give func(), err error) {
	select {
	case c.slots <- struct{}{}:
		return func() { <-c.slots }, nil
	case <-ctx.Done():
		return nil, failed(Unreachable, "wait for other sign-ins: %w", ctx.Err())
	}
}

// form is a request in which the client says who it is, in a way that the endpoint takes; nil methods mean
// HTTP Basic (RFC 8414).
func (c *Client) form(ctx context.Context, address string, methods []string, form url.Values) (*http.Request, error) {
	basic := c.ClientSecret != "" && (methods == nil || slices.Contains(methods, "client_secret_basic"))
	if !basic {
		form.Set("client_id", c.ClientID)
	}
	if !basic && c.ClientSecret != "" {
		form.Set("client_secret", c.ClientSecret)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, failed(Refused, "the issuer's endpoint does not parse")
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if basic {
		request.SetBasicAuth(url.QueryEscape(c.ClientID), url.QueryEscape(c.ClientSecret))
	}
	return request, nil
}

// mayAsk says whether an address of the metadata may be used: encrypted if the issuer's own is.
func mayAsk(issuer, address string) bool {
	parsed, err := url.Parse(address)
	return err == nil && parsed.Host != "" && parsed.User == nil && parsed.Fragment == "" &&
		(parsed.Scheme == "https" || parsed.Scheme == "http" && !strings.HasPrefix(issuer, "https://"))
}
