package httpcall

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/scheduler-service/scheduler/internal/executor"
)

const (
	maxHeaders     = 64
	maxHeaderBytes = 16 << 10 // of all names and values; many servers refuse more
)

// reserved are headers that a job may not set: those of the connection, which
// net/http writes or which a target and a proxy may read differently; those
// that say where a request came from; and ours.
var reserved = []string{
	"connection", "content-length", "expect", "forwarded", "host", "http2-settings", "keep-alive", "te", "trailer",
	"transfer-encoding", "upgrade", "via", "x-real-ip",
	"idempotency-key", "x-attempt", "x-callback-url", "x-execution-id", "x-scheduled-at", "x-service-token", "x-tenant-id",
}

var reservedPrefixes = []string{"proxy-", "x-forwarded-", "x-job-"}

// readHeaders reads the member headers into a header, over what is there.
func readHeaders(object *executor.Object, into http.Header) {
	var given map[string]string
	if !object.Read("headers", &given, "an object of texts") {
		return
	}
	if len(given) > maxHeaders {
		object.Fault("headers", "length", fmt.Sprintf("must be at most %d", maxHeaders))
		return
	}
	size := 0
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given[name]
		size += len(name) + len(value)
		path := "headers." + name
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !isToken(name):
			object.Fault("headers", "characters", fmt.Sprintf("%.60q is not the name of a header", name))
			continue
		case isReserved(name):
			object.Fault(path, "reserved", "is set by the scheduler or belongs to the connection")
		case !isValue(value):
			object.Fault(path, "characters", "must not hold control characters")
		case seen[canonical]:
			object.Fault(path, "duplicate", "stands more than once; case does not count")
		}
		seen[canonical] = true
		into[canonical] = []string{value}
	}
	if size > maxHeaderBytes {
		object.Fault("headers", "length", fmt.Sprintf("must have at most %d bytes together", maxHeaderBytes))
	}
}

// Sendable reports whether a call may carry a header that a tenant chose.
func Sendable(name, value string) bool { return isToken(name) && !isReserved(name) && isValue(value) }

// isReserved compares names as CGI and its heirs do, to which X_Service_Token
// and X-Service-Token are one.
func isReserved(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	return slices.Contains(reserved, name) ||
		slices.ContainsFunc(reservedPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// isToken tells whether a name is a token of RFC 9110, section 5.6.2.
func isToken(name string) bool {
	if name == "" {
		return false
	}
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return true
}

// isValue tells whether a value is free of control characters; a tab is fine.
func isValue(value string) bool {
	for i := range len(value) {
		if c := value[i]; (c < ' ' && c != '\t') || c == 0x7F {
			return false
		}
	}
	return true
}
