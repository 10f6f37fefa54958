package egress

import (
	"net"
	"net/netip"
	"slices"
	"syscall"

	"code.dny.dev/ssrf"
)

var (
	// azureWire is a public address that Azure's virtual machines reach their
	// host at: metadata, DNS, health. No registry of special addresses has it.
	azureWire = netip.MustParsePrefix("168.63.129.16/32")
	// sixToFour carries an IPv4 address in its second to fifth byte.
	sixToFour = netip.MustParsePrefix("2002::/16")

	loopback4 = netip.MustParseAddr("127.0.0.1")
	loopback6 = netip.IPv6Loopback()
)

// closedPorts are the ports from 1024 up that nothing speaks HTTP on and that
// a line of HTTP may be mistaken for a command on: the Fetch standard's list
// of bad ports, with Redis and memcached added.
var closedPorts = []uint16{
	1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6379, 6566,
	6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080, 11211,
}

// guard decides on addresses and ports.
type guard struct {
	allow     []netip.Prefix
	endpoints []netip.AddrPort
	own       []netip.Addr
	// registry knows the special-purpose registries of IANA.
	registry *ssrf.Guardian
}

func newGuard(allow []netip.Prefix, endpoints []netip.AddrPort, own []netip.Addr) *guard {
	return &guard{
		allow: slices.Clone(allow), endpoints: slices.Clone(endpoints), own: own,
		registry: ssrf.New(ssrf.WithDeniedV4Prefixes(azureWire), ssrf.WithAnyPort()),
	}
}

// control is called by the dialer for each connection, with the address that
// it is about to connect to.
func (g *guard) control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return blocked("network")
	}
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return blocked("network")
	}
	if slices.Contains(g.endpoints, target) {
		return nil
	}
	if !portOpen(target.Port()) {
		return blocked("port")
	}
	return g.address(target.Addr())
}

// address decides on an address, in whatever form it is written. An IPv4
// address inside an IPv6 one is what counts where something translates it
// (v4-mapped by the kernel, 64:ff9b::/96 by a NAT64 gateway).
func (g *guard) address(addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	for _, network := range g.allow {
		if network.Contains(addr) {
			return nil
		}
	}
	if ssrf.IPv6NAT64Prefix.Contains(addr) {
		bytes := addr.As16()
		return g.address(netip.AddrFrom4([4]byte(bytes[12:])))
	}
	if g.registry.SafeAddr(addr) != nil {
		return blocked(ruleOf(addr))
	}
	if slices.Contains(g.own, addr) {
		return blocked("own-address")
	}
	return nil
}

// ruleOf names the reason why a refused address is refused.
func ruleOf(addr netip.Addr) string {
	switch {
	case addr.IsLoopback():
		return "loopback"
	case addr.IsPrivate():
		return "private"
	case addr.IsLinkLocalUnicast():
		return "link-local"
	case addr.IsMulticast():
		return "multicast"
	case azureWire.Contains(addr):
		return "metadata"
	case sixToFour.Contains(addr):
		return "6to4"
	default:
		return "special-purpose"
	}
}

func portOpen(port uint16) bool {
	if port < 1024 {
		return port == 80 || port == 443
	}
	return !slices.Contains(closedPorts, port)
}

// ownAddresses are the addresses of this host's interfaces. A public one among
// them is as good as loopback: it reaches what listens here.
func ownAddresses() ([]netip.Addr, error) {
	networks, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var own []netip.Addr
	for _, network := range networks {
		if prefix, err := netip.ParsePrefix(network.String()); err == nil {
			own = append(own, prefix.Addr().Unmap())
		}
	}
	return own, nil
}
