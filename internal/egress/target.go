package egress

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Check says, without resolving or connecting, whether a target can be called
// at all: http or https, no user or password in the URL, a port that is open,
// and, where the host is written as an address, one that is allowed. A name is
// decided on when it is connected to. The error is *Blocked.
func (c *Client) Check(target *url.URL) error {
	if target.Scheme != "http" && target.Scheme != "https" {
		return blocked("scheme")
	}
	if target.User != nil {
		return blocked("userinfo")
	}
	if target.Opaque != "" || len(target.Hostname()) > 255 {
		return blocked("host")
	}
	if exact, err := netip.ParseAddrPort(target.Host); err == nil && slices.Contains(c.guard.endpoints, exact) {
		return nil
	}
	if port := target.Port(); port != "" {
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil || !portOpen(uint16(number)) {
			return blocked("port")
		}
	}
	return c.guard.host(target.Hostname())
}

// host decides on a host as it is written in a URL.
func (g *guard) host(host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		return g.address(addr)
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if name == "" {
		return blocked("host")
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		if g.address(loopback6) == nil {
			return nil
		}
		return g.address(loopback4)
	}
	if endsInNumber(name) {
		return blocked("host-number")
	}
	return nil
}

// endsInNumber tells whether other programs would read a name as an IPv4
// address: the rule of the WHATWG URL standard. 0x7f000001, 2130706433 and
// 0177.0.0.1 are 127.0.0.1 to the C library.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if last == "" {
		return true // an empty last label is no name either
	}
	if hex, found := strings.CutPrefix(last, "0x"); found {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}
