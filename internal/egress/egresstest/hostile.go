// Package egresstest lists targets that a tenant may try, for the tests of everything that
// calls out.
package egresstest

import (
	"slices"
	"strings"
)

// Target is an address that nothing may call. The rule is the one that must name the
// refusal.
type Target struct{ URL, Rule string }

// Hostile are targets on the inside, addresses that nobody serves from, and tricks with
// the URL; "name" stands for a host that need not exist at all.
func Hostile() []Target { return slices.Clone(hostile) }

var hostile = []Target{
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
