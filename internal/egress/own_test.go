package egress

import (
	"errors"
	"net/netip"
	"testing"
)

// A public address of this host cannot be had in a test, so this one looks
// inside.
func TestOwnPublicAddressIsRefused(t *testing.T) {
	t.Parallel()
	own := netip.MustParseAddr("8.8.4.4")
	for _, test := range []struct {
		name  string
		allow []netip.Prefix
		addr  string
		want  string
	}{
		{"own", nil, "8.8.4.4", "own-address"},
		{"own, mapped", nil, "::ffff:8.8.4.4", "own-address"},
		{"own, through NAT64", nil, "64:ff9b::808:404", "own-address"},
		{"another", nil, "8.8.8.8", ""},
		{"own and allowed", []netip.Prefix{netip.MustParsePrefix("8.8.4.0/24")}, "8.8.4.4", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := newGuard(test.allow, nil, []netip.Addr{own}).address(netip.MustParseAddr(test.addr))
			var got string
			if refused := (*Blocked)(nil); errors.As(err, &refused) {
				got = refused.Rule
			}
			if got != test.want {
				t.Errorf("rule = %q, want %q", got, test.want)
			}
		})
	}
}

func TestControlRefusesWhatIsNotTCP(t *testing.T) {
	t.Parallel()
	g := newGuard([]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, nil, nil)
	for _, test := range []struct{ network, address, want string }{
		{"unix", "/var/run/docker.sock", "network"},
		{"udp4", "8.8.8.8:53", "network"},
		{"tcp4", "name.test:80", "network"},
		{"tcp4", "8.8.8.8:22", "port"},
	} {
		t.Run(test.network+" "+test.address, func(t *testing.T) {
			t.Parallel()
			refused := (*Blocked)(nil)
			if err := g.control(test.network, test.address, nil); !errors.As(err, &refused) || refused.Rule != test.want {
				t.Errorf("error = %v, want rule %q", err, test.want)
			}
		})
	}
}

func TestOwnAddressesHoldLoopback(t *testing.T) {
	t.Parallel()
	own, err := ownAddresses()
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range own {
		if addr.IsLoopback() {
			return
		}
	}
	t.Errorf("no loopback among %v", own)
}
