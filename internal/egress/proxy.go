package egress

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
)

// proxyRefusal is the status with which the proxy answered instead of connecting.
type proxyRefusal int

func (p proxyRefusal) Error() string {
	return fmt.Sprintf("the egress proxy does not connect to the target: status %d", int(p))
}

func refusedByProxy(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return proxyRefusal(resp.StatusCode)
}

// dial makes connections: to the proxy as it is, to anything else under the guard.
func (g *guard) dial(config Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	guarded := &net.Dialer{Timeout: config.DialTimeout, Resolver: config.Resolver, Control: g.control}
	if config.Proxy == nil {
		return guarded.DialContext
	}
	plain := &net.Dialer{Timeout: config.DialTimeout, Resolver: config.Resolver}
	home := net.JoinHostPort(config.Proxy.Hostname(), portOf(config.Proxy))
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == home {
			return plain.DialContext(ctx, network, address)
		}
		return guarded.DialContext(ctx, network, address)
	}
}

// proxy sends everything through a proxy but calls of endpoints, which are of this host.
func (g *guard) proxy(to *url.URL) func(req *http.Request) (*url.URL, error) {
	return func(req *http.Request) (*url.URL, error) {
		if exact, err := netip.ParseAddrPort(req.URL.Host); err == nil && slices.Contains(g.endpoints, exact) {
			return nil, nil // net/http calls directly
		}
		return to, nil
	}
}

// name refuses a name that resolves here to an address that is refused. A name that does
// not resolve here is the proxy's to resolve.
func (g *guard) name(ctx context.Context, resolver *net.Resolver, target *url.URL) error {
	host := target.Hostname()
	if _, err := netip.ParseAddr(host); err == nil {
		return nil // it was decided on as it is written
	}
	addrs, err := resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil
	}
	for _, addr := range addrs {
		if err := g.address(addr); err != nil {
			return err
		}
	}
	return nil
}
