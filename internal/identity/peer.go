package identity

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"net/netip"
	"slices"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Peer is another service of the platform.
type Peer struct {
	Name  string // that the audit log has
	Token string
	// Tenants are those that it may act for, and Networks those that it calls
	// from; none: any.
	Tenants  []uuid.UUID
	Networks []netip.Prefix
	Rate     int // calls a second; zero: any number
}

// Unnamed are services of which only the tokens are known. Each is named by its
// token's fingerprint, which says nothing of the token and stays while another is
// changed.
func Unnamed(tokens ...string) []Peer {
	peers := make([]Peer, len(tokens))
	for i, token := range tokens {
		sum := sha256.Sum256([]byte(token))
		peers[i] = Peer{Name: "token-" + hex.EncodeToString(sum[:4]), Token: token}
	}
	return peers
}

// PeerTokens is how other services of the platform prove who they are. It
// does not change once made and may be used by any number of goroutines.
type PeerTokens struct {
	peers []Peer
	sums  [][sha256.Size]byte
}

// NewPeerTokens makes a verifier of these services; without any, nobody is
// believed.
func NewPeerTokens(peers ...Peer) *PeerTokens {
	s := &PeerTokens{peers: slices.Clone(peers)}
	for i, peer := range peers {
		s.sums = append(s.sums, sha256.Sum256([]byte(peer.Token)))
		s.peers[i].Token = ""
	}
	return s
}

// Authenticate reads from a request's header which service asks, and the tenant
// that it acts for. Without a good X-Service-Token the error is Unauthenticated;
// without a good X-Tenant-ID beside one it is Invalid. A service that may not act
// for the tenant, or not from there, is Forbidden, and the principal says who it
// is all the same.
func (s *PeerTokens) Authenticate(h http.Header, from netip.Addr) (Principal, error) {
	tokens := h.Values("X-Service-Token")
	if len(tokens) == 0 {
		return Principal{}, unauthenticated("send a service token: X-Service-Token", nil)
	}
	at := -1
	if len(tokens) == 1 && len(tokens[0]) <= maxHeader {
		at = s.known(tokens[0])
	}
	if at < 0 {
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
	peer := &s.peers[at]
	who := Principal{Actor: tenant.Actor{TenantID: id, Subject: "service:" + peer.Name}, Peer: peer}
	within := func(network netip.Prefix) bool { return network.Contains(from) }
	switch {
	case len(peer.Networks) > 0 && !slices.ContainsFunc(peer.Networks, within):
		return who, fault.New(fault.Forbidden, fault.CodeForbidden, "this service may not call from this address")
	case len(peer.Tenants) > 0 && !slices.Contains(peer.Tenants, id):
		return who, fault.New(fault.Forbidden, fault.CodeForbidden, "this service may not act for this tenant")
	}
	return who, nil
}

// known is the place of the service that has a token, and -1 of nobody's. It
// compares with every token, in a time that depends neither on which one it is
// nor on where they differ.
func (s *PeerTokens) known(token string) int {
	sum, found := sha256.Sum256([]byte(token)), -1
	for i, one := range s.sums {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(one[:], sum[:]), i, found)
	}
	return found
}

func wrongTenant(message string) error {
	return fault.Wrong(fault.CodeValidationFailed, fault.Field{Path: "X-Tenant-ID", Rule: "tenant", Message: message})
}
