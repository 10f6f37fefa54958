package identity

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// PeerTokens is how other services of the platform prove who they are. It
// does not change once made and may be used by any number of goroutines.
type PeerTokens struct{ sums [][sha256.Size]byte }

// NewPeerTokens makes a verifier of these tokens; without any, nobody is
// believed.
func NewPeerTokens(tokens ...string) *PeerTokens {
	s := &PeerTokens{}
	for _, token := range tokens {
		s.sums = append(s.sums, sha256.Sum256([]byte(token)))
	}
	return s
}

// Authenticate reads from a request's header that a service asks, and the
// tenant that it acts for. Without a good X-Service-Token the error is
// Unauthenticated; without a good X-Tenant-ID beside one it is Invalid.
func (s *PeerTokens) Authenticate(h http.Header) (Principal, error) {
	tokens := h.Values("X-Service-Token")
	switch {
	case len(tokens) == 0:
		return Principal{}, unauthenticated("send a service token: X-Service-Token", nil)
	case len(tokens) > 1 || len(tokens[0]) > maxHeader || !s.known(tokens[0]):
		return Principal{}, unauthenticated("the service token is not valid", nil)
	}
	ids := h.Values("X-Tenant-ID")
	if len(ids) != 1 {
		return Principal{}, wrongTenant("must stand once, and name the tenant that you act for")
	}
	id, err := uuid.Parse(ids[0])
	if err != nil || len(ids[0]) != 36 || id == uuid.Nil {
		return Principal{}, wrongTenant("is not a UUID")
	}
	return Principal{Actor: tenant.Actor{TenantID: id, Subject: "service"}}, nil
}

// known compares with every token, in a time that depends neither on which one
// it is nor on where they differ.
func (s *PeerTokens) known(token string) bool {
	sum, found := sha256.Sum256([]byte(token)), 0
	for _, one := range s.sums {
		found |= subtle.ConstantTimeCompare(one[:], sum[:])
	}
	return found == 1
}

func wrongTenant(message string) error {
	return fault.Wrong("VALIDATION_FAILED", "the request is not valid, see details", fault.Field{Path: "X-Tenant-ID", Rule: "tenant", Message: message})
}
