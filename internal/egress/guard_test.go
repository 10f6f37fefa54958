package egress_test

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/scheduler-service/scheduler/internal/egress"
	"github.com/scheduler-service/scheduler/internal/egress/egresstest"
)

func TestHostileTargetsAreRefused(t *testing.T) {
	t.Parallel()
	asked := func(name string) []netip.Addr {
		t.Errorf("%q was resolved; it must be refused before", name)
		return nil
	}
	c := client(t, egress.Config{Resolver: resolver(asked)})
	for _, test := range egresstest.Hostile() {
		t.Run(test.URL, func(t *testing.T) {
			t.Parallel()
			target, err := url.Parse(test.URL)
			if err != nil {
				t.Fatalf("not even a URL: %v", err)
			}
			checkBlocked(t, c.Check(target), test.Rule)
			req := &http.Request{Method: http.MethodGet, URL: target, Header: http.Header{}}
			_, err = do(c, req.WithContext(t.Context()))
			checkBlocked(t, err, test.Rule)
		})
	}
}

func checkBlocked(t *testing.T, err error, rule string) {
	t.Helper()
	var blocked *egress.Blocked
	if !errors.As(err, &blocked) {
		t.Fatalf("error = %v, want it blocked by %q", err, rule)
	}
	if blocked.Rule != rule {
		t.Errorf("blocked by %q, want %q", blocked.Rule, rule)
	}
	if strings.HasSuffix(blocked.Error(), ": ") {
		t.Errorf("rule %q has no sentence", blocked.Rule)
	}
}

// Names are decided on by what they resolve to when the connection is made.
func TestNamesOfHostileAddressesAreRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ address, rule string }{
		{"127.0.0.1", "loopback"},
		{"::1", "loopback"},
		{"10.1.2.3", "private"},
		{"169.254.169.254", "link-local"},
		{"::ffff:169.254.169.254", "link-local"},
		{"64:ff9b::a9fe:a9fe", "link-local"},
		{"2002:7f00:1::", "6to4"},
		{"fd00:ec2::254", "private"},
		{"fe80::1", "link-local"},
		{"100.64.1.1", "special-purpose"},
		{"168.63.129.16", "metadata"},
		{"0.0.0.0", "special-purpose"},
		{"255.255.255.255", "special-purpose"},
		{"224.0.0.251", "multicast"},
	} {
		t.Run(test.address, func(t *testing.T) {
			t.Parallel()
			addr := netip.MustParseAddr(test.address)
			c := client(t, egress.Config{Resolver: resolver(func(string) []netip.Addr { return []netip.Addr{addr} })})
			_, err := get(t, c, "http://metadata.test/")
			checkBlocked(t, err, test.rule)
			if strings.Contains(err.Error(), test.address) {
				t.Errorf("%q tells what the name resolved to", err)
			}
		})
	}
}

// A name that turned out well once must not be trusted the second time.
func TestRebindingIsRefused(t *testing.T) {
	t.Parallel()
	var secrets atomic.Int32
	outside := serveOn(t, "127.0.0.2:0", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") })
	_, port, _ := net.SplitHostPort(outside.Listener.Addr().String())
	serveOn(t, "127.0.0.3:"+port, func(http.ResponseWriter, *http.Request) { secrets.Add(1) })
	var flipped atomic.Bool
	c := client(t, egress.Config{
		Allow: prefixes(t, "127.0.0.2/32"), // stands for a public address
		Resolver: resolver(func(string) []netip.Addr {
			if flipped.Load() {
				return []netip.Addr{netip.MustParseAddr("127.0.0.3")}
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.2")}
		}),
	})
	target := "http://rebind.test:" + port
	if _, err := get(t, c, target); err != nil {
		t.Fatalf("the first call failed: %v", err)
	}
	flipped.Store(true)
	_, err := get(t, c, target)
	checkBlocked(t, err, "loopback")
	if secrets.Load() != 0 {
		t.Error("the inside server was called")
	}
}

func TestAllowList(t *testing.T) {
	t.Parallel()
	server := serveOn(t, "127.0.0.5:0", func(http.ResponseWriter, *http.Request) {})
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for _, test := range []struct {
		name  string
		allow []netip.Prefix
		host  string
		rule  string // empty: reached
	}{
		{"allowed network", prefixes(t, "127.0.0.0/8"), "127.0.0.5", ""},
		{"allowed address", prefixes(t, "127.0.0.5/32"), "127.0.0.5", ""},
		{"mapped form of an allowed address", prefixes(t, "127.0.0.5/32"), "[::ffff:127.0.0.5]", ""},
		{"a neighbour", prefixes(t, "127.0.0.4/32"), "127.0.0.5", "loopback"},
		{"another family", prefixes(t, "::1/128"), "127.0.0.5", "loopback"},
		{"nothing allowed", nil, "127.0.0.5", "loopback"},
		{"a name inside", prefixes(t, "127.0.0.5/32"), "inside.test", ""},
		{"a name of both, one refused", prefixes(t, "127.0.0.5/32"), "both.test", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := client(t, egress.Config{Allow: test.allow, Resolver: resolver(func(name string) []netip.Addr {
				inside := []netip.Addr{netip.MustParseAddr("127.0.0.5")}
				if name == "both.test" {
					return append([]netip.Addr{netip.MustParseAddr("127.0.0.6")}, inside...)
				}
				return inside
			})})
			_, err := get(t, c, "http://"+test.host+":"+port)
			if test.rule != "" {
				checkBlocked(t, err, test.rule)
			} else if err != nil {
				t.Errorf("error = %v, want it reached", err)
			}
		})
	}
}

func TestCheckLetsPublicTargetsPass(t *testing.T) {
	t.Parallel()
	c := client(t, egress.Config{})
	for _, target := range []string{
		"https://example.com/", "http://example.com:80", "https://example.com:8443/a?b=c#d", "HTTP://EXAMPLE.COM/",
		"http://8.8.8.8/", "http://[2606:4700:4700::1111]/", "http://[64:ff9b::808:808]/",
		"http://x1.example.com/", "http://1.example.com", "http://localhost.example.com/", "http://xn--fsq.com/", "http://münchen.example/",
		"http://0x.example.com/", "http://example.0x7g/",
	} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(target)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Check(u); err != nil {
				t.Errorf("error = %v, want it to pass", err)
			}
		})
	}
}

func TestZoneDoesNotHideAnAllowedAddress(t *testing.T) {
	t.Parallel()
	c := client(t, egress.Config{Allow: prefixes(t, "fe80::/10")})
	if err := c.Check(&url.URL{Scheme: "http", Host: "[fe80::1%eth0]"}); err != nil {
		t.Errorf("error = %v, want it allowed", err)
	}
}

// net/http maps wide digits and odd full stops to ASCII when it connects, so
// the address is what must be refused there.
func TestInternationalSpellingsOfAddressesAreRefused(t *testing.T) {
	t.Parallel()
	c := client(t, egress.Config{Resolver: resolver(func(string) []netip.Addr { return nil })})
	for _, host := range []string{"１２７.０.０.１", "①②⑦.⓪.⓪.①", "127。0。0。1", "ⓛocalhost", "ｌｏｃａｌｈｏｓｔ"} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			_, err := get(t, c, "http://"+host+"/")
			checkBlocked(t, err, "loopback")
		})
	}
}
