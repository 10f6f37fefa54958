package rest

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// capped is a listener with at most n connections open at once.
func capped(l net.Listener, n int) net.Listener {
	return &cappedListener{Listener: l, free: make(chan struct{}, n), closed: make(chan struct{})}
}

type cappedListener struct {
	net.Listener
	free   chan struct{} // holds one for each open connection
	once   sync.Once
	closed chan struct{}
}

// Accept waits until fewer than the bound are open.
func (l *cappedListener) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &cappedConn{Conn: conn, end: sync.OnceFunc(func() { <-l.free })}, nil
}

// Close also ends an Accept that waits.
func (l *cappedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type cappedConn struct {
	net.Conn
	end func()
}

// Close makes room for another connection.
func (c *cappedConn) Close() error {
	err := c.Conn.Close()
	c.end()
	return err
}

// clientOf is the address that a request comes from: the peer's, or where that
// is a trusted proxy, the last one in X-Forwarded-For that is not. Anybody could
// have written the addresses before it.
func clientOf(r *http.Request, trusted []netip.Prefix) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	from := peer.Addr().Unmap().WithZone("")
	proxy := func(a netip.Addr) bool {
		return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && proxy(from); i-- {
		hop, ok := hopOf(strings.TrimSpace(hops[i]))
		if !ok {
			break // no proxy writes that: the nearest one is all that is known
		}
		from = hop
	}
	return from
}

// hopOf reads an address as proxies write it: alone, in brackets, or with a port,
// as Azure's application gateway does. The port says nothing.
func hopOf(text string) (netip.Addr, bool) {
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return withPort.Addr().Unmap().WithZone(""), true
	}
	if inner, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(inner, "]") {
		text = inner[:len(inner)-1]
	}
	hop, err := netip.ParseAddr(text)
	return hop.Unmap().WithZone(""), err == nil
}

// guesser names whom failures are counted for. Of IPv6 a subscriber has a
// network of 64 bits at least, and would have a new address for each guess.
func guesser(from netip.Addr) string {
	if from.Is6() {
		if network, err := from.Prefix(64); err == nil {
			return network.String()
		}
	}
	return from.String()
}
