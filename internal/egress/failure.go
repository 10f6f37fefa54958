package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
)

// Blocked is a target that a rule refuses. Its text is for the tenant and does
// not say what a name resolved to.
type Blocked struct {
	// Rule is the rule's name, one word: the keys of the table below.
	Rule string
}

// reasons says each rule in a sentence.
var reasons = map[string]string{
	"scheme":             "only http and https can be called",
	"userinfo":           "the URL holds a user or a password; use the header Authorization",
	"host":               "the URL has no host that can be called",
	"host-number":        "the host looks like a number; write an IPv4 address as four decimal numbers",
	"port":               "only the ports 80, 443 and those from 1024 up can be called, without those of other protocols",
	"network":            "only TCP connections can be made",
	"loopback":           "the target is a loopback address; the operator can allow it with EGRESS_ALLOW",
	"private":            "the target is in a private network; the operator can allow it with EGRESS_ALLOW",
	"link-local":         "the target is a link-local address",
	"metadata":           "the target is a cloud provider's metadata address",
	"multicast":          "the target is a multicast address",
	"6to4":               "the target is a 6to4 address",
	"own-address":        "the target is the scheduler itself; the operator can allow it with EGRESS_ALLOW",
	"special-purpose":    "the target is an address that is not public",
	"allowed-host":       "the host is not among allowedHosts of the tenant",
	"redirect-limit":     "the target redirected more than 3 times",
	"redirect-downgrade": "the target redirected from https to http",
	"redirect-body":      "the target asked to send the body on to another host",
}

func blocked(rule string) error { return &Blocked{Rule: rule} }

// Error is the rule's name and its sentence.
func (b *Blocked) Error() string { return "not allowed (" + b.Rule + "): " + reasons[b.Rule] }

// Failure is a call that did not come to an answer. Its text is for the tenant
// and names no address, URL or inside name; the cause has all of it.
type Failure struct {
	Reason string
	Cause  error
}

// Error is the reason alone.
func (f *Failure) Error() string { return f.Reason }

// Unwrap gives the cause to errors.Is and errors.As.
func (f *Failure) Unwrap() error { return f.Cause }

// explain makes an error that may be shown. net/http's own texts hold the URL
// with its query, the address that was connected to, or the DNS server's.
func explain(err error) error {
	var refused *Blocked
	if errors.As(err, &refused) {
		return refused
	}
	return &Failure{Reason: reason(err), Cause: err}
}

func reason(err error) string {
	var (
		dns         *net.DNSError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		operation   *net.OpError
		timeout     net.Error
		refused     proxyRefusal
	)
	switch {
	case errors.As(err, &refused):
		return refused.Error()
	case errors.As(err, &dns):
		return dnsReason(dns)
	case errors.As(err, &certificate):
		return "the target's certificate is not accepted: " + certificate.Err.Error()
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "the target does not speak TLS on this port"
	case errors.As(err, &operation) && operation.Op == "proxyconnect":
		return "the egress proxy could not be reached"
	case errors.As(err, &operation) && (operation.Op == "remote error" || operation.Op == "local error"):
		return "the TLS handshake failed" // so crypto/tls marks an alert, sent or received
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the target refused the connection"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the target reset the connection"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EADDRNOTAVAIL):
		return "the target is not reachable"
	case errors.Is(err, context.Canceled):
		return "the call was cancelled"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "the target did not answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the target closed the connection without an answer"
	default:
		return "the target's answer is not HTTP, or its headers are too large"
	}
}

func dnsReason(err *net.DNSError) string {
	switch {
	case err.IsNotFound:
		return "the host name does not resolve"
	case err.IsTimeout:
		return "resolving the host name timed out"
	default:
		return "the host name could not be resolved"
	}
}
