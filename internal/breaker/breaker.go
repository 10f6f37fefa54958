// Package breaker keeps the calls of a tenant away from a host that fails.
//
// It owns the rule by which a circuit breaker opens and closes, what workers tell one
// another of it through the database, and the list of a tenant's breakers. A breaker is a
// tenant's own: no other tenant's calls count for it or wait for it. It refuses to know what
// a call is and how an execution that is held back waits: package worker does.
package breaker

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"
)

// The rule: mostFailures calls in a row that fail within the window open a breaker. The
// first probe goes out after firstPause. After each that fails the pause doubles, up to
// longestPause. One that succeeds closes the breaker.
const (
	mostFailures = 10
	window       = time.Minute
	firstPause   = 30 * time.Second
	longestPause = 10 * time.Minute
)

// The bounds: a tenant's calls to further hosts go out without a breaker.
const (
	mostHosts = 100    // breakers of a tenant
	mostKnown = 10_000 // breakers that a worker knows, and hosts whose failures it counts between two syncs
)

// A held execution asks again after shortestHold to longestHold and up to half as long more,
// so that a breaker that was closed is noticed, and not by all at once. Each time costs a
// claim: of 100,000 that are held back, 700 a second.
const (
	shortestHold = time.Second
	longestHold  = 2 * time.Minute
)

// probeMargin is how much longer than a probe may run others wait for its end.
const probeMargin = 10 * time.Second

const (
	maxReason = 500 // bytes of an error that a breaker keeps
	maxHost   = 253 // bytes of a name in DNS
)

// Target is whom a tenant calls.
type Target struct {
	Tenant uuid.UUID
	Host   string
}

// TargetOf is a tenant's target, by the host of a URL; false for a text that is no host, of
// which nobody keeps track.
func TargetOf(tenant uuid.UUID, host string) (Target, bool) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	strange := func(r rune) bool { return r <= ' ' || r > '~' }
	return Target{tenant, host}, host != "" && len(host) <= maxHost && !strings.ContainsFunc(host, strange)
}

// Admission says whether a call may be made.
type Admission struct {
	// Hold is how long the call has to wait before it asks again; zero: it may be made.
	Hold time.Duration
	// probe is set where the call decides whether the breaker closes.
	probe uuid.UUID
}

// Verdict is what a call says of its host.
type Verdict struct {
	// Failed says that the host did not answer, or is unwell, and Reason why.
	Failed bool
	Reason string
	// Void says that the call tells nothing: somebody ended it.
	Void bool
}

// reason is as much of the reason as is kept.
func (v Verdict) reason() string {
	return strings.ToValidUTF8(v.Reason[:min(len(v.Reason), maxReason)], "")
}

// holdFor is how long an execution waits whose breaker lets a probe out after so long.
func holdFor(left time.Duration, random float64) time.Duration {
	hold := min(max(left, shortestHold), longestHold)
	return hold + time.Duration(random*float64(hold)/2)
}

func jittered(left time.Duration) Admission { return Admission{Hold: holdFor(left, rand.Float64())} }
