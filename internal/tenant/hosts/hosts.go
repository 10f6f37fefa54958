// Package hosts says which hosts a tenant's jobs may call.
//
// It owns the patterns of a tenant's allowedHosts, what they admit, and the lists of all
// tenants that a process keeps, so that no call asks the database. It refuses to know
// what a call is: package egress asks it before each.
package hosts

import (
	"net/netip"
	"regexp"
	"strings"
)

// saneName is a host name in small letters, as DNS and URLs write it.
var saneName = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)

// Valid tells whether a text is a pattern: a host name in small letters (of another
// script in its xn-- form), one with *. before it, or an address.
func Valid(pattern string) bool {
	if addr, err := netip.ParseAddr(pattern); err == nil {
		return addr.String() == pattern && addr.Zone() == ""
	}
	return len(pattern) <= 253 && saneName.MatchString(strings.TrimPrefix(pattern, "*."))
}

// Admit tells whether patterns admit a host as a URL writes it; none admit any. *.example.com
// admits every name below example.com, and not example.com itself.
func Admit(patterns []string, host string) bool {
	if len(patterns) == 0 {
		return true
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if addr, err := netip.ParseAddr(host); err == nil {
		host = addr.String()
	}
	for _, pattern := range patterns {
		parent, below := strings.CutPrefix(pattern, "*")
		if host == pattern || below && len(host) > len(parent) && strings.HasSuffix(host, parent) {
			return true
		}
	}
	return false
}
