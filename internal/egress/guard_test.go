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
)

// hostile are targets that a tenant may try. The rule is the one that must
// name the refusal; "name" stands for a host that need not exist at all.
var hostile = []struct{ url, rule string }{
	// This host, in every spelling.
	{"http://127.0.0.1/", "loopback"},
	{"http://127.0.0.1:8080/", "loopback"},
	{"http://127.255.255.254/", "loopback"},
	{"http://127.0.0.1./", "host-number"},
	{"http://127.1/", "host-number"},
	{"http://2130706433/", "host-number"},
	{"http://017700000001/", "host-number"},
	{"http://0x7f000001/", "host-number"},
	{"http://0x7f.0.0.1/", "host-number"},
	{"http://0177.0.0.1/", "host-number"},
	{"http://0X7F.1/", "host-number"},
	{"http://127.0.0.0x1/", "host-number"},
	{"http://localhost/", "loopback"},
	{"http://LOCALHOST:3009/", "loopback"},
	{"http://localhost./", "loopback"},
	{"http://localhost../", "host-number"},
	{"http://anything.localhost/", "loopback"},
	{"http://[::1]/", "loopback"},
	{"http://[0:0:0:0:0:0:0:1]/", "loopback"},
	{"http://[::]/", "special-purpose"},
	{"http://0.0.0.0/", "special-purpose"},
	{"http://0.1.2.3/", "special-purpose"},
	{"http://0/", "host-number"},
	{"http://[::ffff:127.0.0.1]/", "loopback"},
	{"http://[::ffff:7f00:1]/", "loopback"},
	{"http://[::127.0.0.1]/", "special-purpose"},
	{"http://[64:ff9b::7f00:1]/", "loopback"},
	// Private networks.
	{"http://10.0.0.1/", "private"},
	{"http://172.16.0.1/", "private"},
	{"http://172.31.255.255/", "private"},
	{"http://192.168.0.1/", "private"},
	{"http://100.64.0.1/", "special-purpose"},
	{"http://198.18.0.1/", "special-purpose"},
	{"http://[fc00::1]/", "private"},
	{"http://[fd12:3456::1]/", "private"},
	{"http://[fec0::1]/", "special-purpose"},
	{"http://[::ffff:10.0.0.1]/", "private"},
	{"http://[64:ff9b::a00:1]/", "private"},
	// Metadata of the clouds.
	{"http://169.254.169.254/latest/meta-data/", "link-local"},
	{"http://169.254.170.2/", "link-local"},
	{"http://2852039166/", "host-number"},
	{"http://0xa9fea9fe/", "host-number"},
	{"http://[::ffff:169.254.169.254]/", "link-local"},
	{"http://[::ffff:a9fe:a9fe]/", "link-local"},
	{"http://[::169.254.169.254]/", "special-purpose"},
	{"http://[64:ff9b::a9fe:a9fe]/", "link-local"},
	{"http://[64:ff9b::169.254.169.254]/", "link-local"},
	{"http://[64:ff9b:1::a9fe:a9fe]/", "special-purpose"},
	{"http://[2002:a9fe:a9fe::]/", "6to4"},
	{"http://[2001:0:a9fe:a9fe::1]/", "special-purpose"},
	{"http://[fe80::a9fe:a9fe]/", "link-local"},
	{"http://[fe80::1%25eth0]/", "link-local"},
	{"http://[fd00:ec2::254]/", "private"},
	{"http://[fd20:ce::254]/", "private"},
	{"http://100.100.100.200/", "special-purpose"},
	{"http://192.0.0.192/", "special-purpose"},
	{"http://168.63.129.16/", "metadata"},
	{"http://[::ffff:168.63.129.16]/", "metadata"},
	{"http://[64:ff9b::a83f:8110]/", "metadata"},
	// Addresses that nobody serves from.
	{"http://224.0.0.1/", "multicast"},
	{"http://[ff02::1]/", "multicast"},
	{"http://255.255.255.255/", "special-purpose"},
	{"http://240.0.0.1/", "special-purpose"},
	{"http://192.0.2.1/", "special-purpose"},
	{"http://192.88.99.1/", "special-purpose"},
	{"http://[2001:db8::1]/", "special-purpose"},
	{"http://[3fff::1]/", "special-purpose"},
	{"http://[100::1]/", "special-purpose"},
	// Tricks with the URL.
	{"http://example.com@127.0.0.1/", "userinfo"},
	{"http://127.0.0.1@name.test/", "userinfo"},
	{"http://user:pass@name.test/", "userinfo"},
	{"http://@name.test/", "userinfo"},
	{"http://127.0.0.1?@name.test/", "loopback"},
	{"http://127.0.0.1#@name.test/", "loopback"},
	{"http:127.0.0.1/", "host"},
	{"http:///etc/passwd", "host"},
	{"http://:80/", "host"},
	{"http://" + strings.Repeat("a.", 200) + "test/", "host"},
	{"//name.test/", "scheme"},
	{"file:///etc/passwd", "scheme"},
	{"ftp://name.test/", "scheme"},
	{"gopher://name.test:6379/_FLUSHALL", "scheme"},
	{"unix:///var/run/docker.sock", "scheme"},
	{"http+unix://socket/", "scheme"},
	{"javascript:alert(1)", "scheme"},
	// Ports of other protocols.
	{"http://name.test:22/", "port"},
	{"http://name.test:25/", "port"},
	{"http://name.test:0/", "port"},
	{"http://name.test:65536/", "port"},
	{"http://name.test:6379/", "port"},
	{"http://name.test:11211/", "port"},
}

func TestHostileTargetsAreRefused(t *testing.T) {
	t.Parallel()
	asked := func(name string) []netip.Addr {
		t.Errorf("%q was resolved; it must be refused before", name)
		return nil
	}
	c := client(t, egress.Config{Resolver: resolver(asked)})
	for _, test := range hostile {
		t.Run(test.url, func(t *testing.T) {
			t.Parallel()
			target, err := url.Parse(test.url)
			if err != nil {
				t.Fatalf("not even a URL: %v", err)
			}
			checkBlocked(t, c.Check(target), test.rule)
			req := &http.Request{Method: http.MethodGet, URL: target, Header: http.Header{}}
			_, err = do(c, req.WithContext(t.Context()))
			checkBlocked(t, err, test.rule)
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
