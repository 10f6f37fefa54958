// Package egress is the only way out: the HTTP client for every call that a
// tenant chose the target of.
//
// It owns the guard between tenants and the inside network, and the bounds on
// what a target may do to us. The guard looks at the address of each
// connection just before it is made, so a name that resolves differently the
// second time, a redirect, or an odd spelling of an address changes nothing.
// It refuses the environment's proxies (behind one, the guard sees the proxy's address
// only; see Config.Proxy), unix sockets, plaintext after TLS, and targets that are not public
// unless the operator allows their network, and hosts that the tenant may not call. It
// knows nothing of jobs. Everything that calls out for a tenant uses it.
package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
)

const (
	maxRedirects   = 3
	maxHeaderBytes = 64 << 10 // Go's default of 10 MiB is a memory bomb at 1,000 calls at once
	dialTimeout    = 10 * time.Second
)

// Config says what the operator decided. The zero value is safe: public
// targets only.
type Config struct {
	// Allow lists networks that may be reached although they are not public
	// (EGRESS_ALLOW). It goes before every refusal of an address, and does not
	// widen the ports.
	Allow []netip.Prefix
	// Endpoints lists single addresses, with their port, that may be reached
	// although they are not public: the standalone program's own echo.
	Endpoints []netip.AddrPort
	// Admit tells whether a tenant may call a host; nil: any. It is asked before each
	// call and each redirect, and must not block.
	Admit func(tenant uuid.UUID, host string) bool
	// Proxy is what every call goes through (EGRESS_PROXY); nil: none. The guard then
	// checks what a URL says, and the addresses of a name that resolves here; which
	// addresses are connected to is the proxy's to decide. Endpoints are called directly.
	Proxy *url.URL
	// DialTimeout bounds resolving a name and connecting, together; 0 is 10 s.
	// The TLS handshake after it has the same bound of its own.
	DialTimeout time.Duration
	// Roots are the certificate authorities that are trusted; nil is the
	// system's.
	Roots *x509.CertPool
	// Resolver resolves names; nil is Go's own resolver with the system's
	// configuration.
	Resolver *net.Resolver
}

// Client makes guarded HTTP calls. Any number of goroutines may use one, and
// should share it for its connections.
type Client struct {
	guard     *guard
	transport *http.Transport
	admit     func(tenant uuid.UUID, host string) bool
	resolver  *net.Resolver // of names that a proxy connects to; nil without one
}

// Caller makes calls for one tenant.
type Caller struct {
	client *Client
	tenant uuid.UUID
}

// For is the caller for a tenant.
func (c *Client) For(tenant uuid.UUID) Caller { return Caller{client: c, tenant: tenant} }

// New makes a client. It fails where the host's own addresses cannot be listed, which it
// needs to refuse them, and where the proxy's address names no host.
func New(config Config) (*Client, error) {
	own, err := ownAddresses()
	if err != nil {
		return nil, fmt.Errorf("list own addresses: %w", err)
	}
	if config.Proxy != nil && config.Proxy.Hostname() == "" {
		return nil, errors.New("the address of the egress proxy names no host")
	}
	if config.DialTimeout <= 0 {
		config.DialTimeout = dialTimeout
	}
	if config.Resolver == nil {
		// The C library's resolver cannot be cancelled and holds a thread.
		config.Resolver = &net.Resolver{PreferGo: true}
	}
	g := newGuard(config.Allow, config.Endpoints, own)
	transport := &http.Transport{
		Proxy:               nil, // not even from the environment
		DialContext:         g.dial(config),
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: config.Roots},
		TLSHandshakeTimeout: config.DialTimeout,
		ForceAttemptHTTP2:   true,
		// A dead HTTP/2 connection would otherwise swallow call after call.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
		// Bodies are kept as received: a small compressed one cannot unfold.
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderBytes,
		MaxIdleConns:           1024,
		MaxIdleConnsPerHost:    64, // 2, the default, means a handshake for nearly every call in a burst
		IdleConnTimeout:        60 * time.Second,
	}
	c := &Client{guard: g, transport: transport, admit: config.Admit}
	if config.Proxy != nil {
		c.resolver = config.Resolver
		transport.Proxy, transport.OnProxyConnectResponse = g.proxy(config.Proxy), refusedByProxy
	}
	return c, nil
}

// Close closes the connections that are idle.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Do makes a call and follows up to 3 redirects, each under the same rules.
// A redirect whose status is final is returned instead of followed; final
// may be nil. On a redirect to another host the headers of the request are
// dropped, except User-Agent, and a body is not sent on.
//
// The error is *Blocked where a rule refused the target, and otherwise
// *Failure; the text of either may be shown to a tenant. The caller closes the
// response's body. A request with the header Idempotency-Key and a body that
// can be read again is sent a second time by net/http where a kept connection
// turned out to be closed before any answer.
func (c Caller) Do(req *http.Request, final func(status int) bool) (*http.Response, error) {
	if err := c.check(req.Context(), req.URL); err != nil {
		return nil, err
	}
	client := http.Client{
		Transport: c.client.transport,
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if final != nil && final(next.Response.StatusCode) {
				return http.ErrUseLastResponse
			}
			return c.follow(next, via)
		},
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, explain(err)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// net/http gives the connection away, and ctx no longer ends it.
		_ = resp.Body.Close()
		return nil, &Failure{Reason: "the target switched to another protocol"}
	}
	return resp, nil
}

// check decides on a call before it is made.
func (c Caller) check(ctx context.Context, target *url.URL) error {
	if err := c.client.Check(target); err != nil {
		return err
	}
	if c.client.admit != nil && !c.client.admit(c.tenant, target.Hostname()) {
		return blocked("allowed-host")
	}
	if c.client.resolver != nil {
		return c.client.guard.name(ctx, c.client.resolver, target)
	}
	return nil
}

// follow decides on a redirect and strips what must not travel with it.
func (c Caller) follow(next *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return blocked("redirect-limit")
	}
	if via[len(via)-1].URL.Scheme == "https" && next.URL.Scheme != "https" {
		return blocked("redirect-downgrade")
	}
	if err := c.check(next.Context(), next.URL); err != nil {
		return err
	}
	next.Header.Del("Referer") // net/http adds the URL we come from, query and all
	if !leftHome(next, via) {
		return nil
	}
	if next.Body != nil && next.Body != http.NoBody {
		return blocked("redirect-body")
	}
	// net/http drops Authorization and cookies only; a secret X-Api-Key would
	// travel.
	agent := next.Header.Get("User-Agent")
	clear(next.Header)
	next.Header.Set("User-Agent", agent)
	return nil
}

// leftHome tells whether any hop so far went to another host than the first
// one: what the job wrote is for that one only, and net/http copies the first
// request's headers anew for each hop.
func leftHome(next *http.Request, via []*http.Request) bool {
	home := via[0].URL
	for _, hop := range via[1:] {
		if !sameHost(home, hop.URL) {
			return true
		}
	}
	return !sameHost(home, next.URL)
}

// sameHost compares host and port. The step from http on port 80 to https on
// port 443 of the same host counts as staying.
func sameHost(home, to *url.URL) bool {
	if !strings.EqualFold(home.Hostname(), to.Hostname()) {
		return false
	}
	upgraded := home.Scheme == "http" && to.Scheme == "https" && portOf(home) == "80" && portOf(to) == "443"
	return upgraded || portOf(home) == portOf(to)
}

func portOf(u *url.URL) string {
	switch port := u.Port(); {
	case port != "":
		return port
	case u.Scheme == "https":
		return "443"
	default:
		return "80"
	}
}
