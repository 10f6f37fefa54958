package config

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// peer is another service of the platform, as SERVICE_TOKENS names it.
type peer struct {
	Name     string
	Token    Secret
	Tenants  []uuid.UUID    // none: any
	Networks []netip.Prefix // none: any
	Rate     int            // calls a second; zero: any number
}

// minPeerToken is the shortest token of a service in bytes.
const minPeerToken = 32

var peerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Peers are those that SERVICE_TOKENS names.
func (a API) Peers() []peer {
	peers, _ := parsePeers(a.PeerTokens.Reveal()) // it was read once already
	return peers
}

// checkPeers is parsePeers for a variable that stays a secret as a whole.
func checkPeers(text string) (any, error) {
	if _, err := parsePeers(text); err != nil {
		return nil, err
	}
	return newSecret(text), nil
}

// parsePeers reads services that stand apart by white space, each a list of
// name=value with semicolons between. A name may come twice, with two tokens, while
// one is changed.
func parsePeers(text string) (peers []peer, err error) {
	tokens := map[string]bool{}
	for i, part := range strings.Fields(text) {
		one, err := parsePeer(part)
		if err != nil {
			return nil, fmt.Errorf("service %d: %w", i+1, err)
		}
		if tokens[one.Token.Reveal()] {
			return nil, fmt.Errorf("service %d: has the token of another one", i+1)
		}
		tokens[one.Token.Reveal()] = true
		peers = append(peers, one)
	}
	return peers, nil
}

func parsePeer(text string) (p peer, err error) {
	for _, part := range strings.Split(strings.Trim(text, ";"), ";") {
		key, value, _ := strings.Cut(part, "=")
		if err := p.set(key, value); err != nil {
			return p, err
		}
	}
	switch {
	case p.Name == "":
		return p, errors.New("has no name")
	case p.Token.Reveal() == "":
		return p, errors.New("has no token")
	}
	return p, nil
}

// set takes one part; its errors repeat no value, which may be a token.
func (p *peer) set(key, value string) (err error) {
	switch key {
	case "name":
		if p.Name = value; !peerName.MatchString(value) {
			return errors.New("name must be letters, digits, '.', '_' and '-', 64 at most")
		}
	case "token":
		token, err := parseSecret(value, minPeerToken)
		if err != nil {
			return fmt.Errorf("token %w", err)
		}
		p.Token, _ = token.(Secret)
	case "tenants":
		for _, text := range list(value) {
			id, err := uuid.Parse(text)
			if err != nil {
				return errors.New("tenants must be UUIDs, separated by commas")
			}
			p.Tenants = append(p.Tenants, id)
		}
	case "addresses":
		for _, text := range list(value) {
			network, err := netip.ParsePrefix(text)
			if err != nil {
				return errors.New("addresses must be networks such as 10.0.0.0/8, separated by commas")
			}
			p.Networks = append(p.Networks, network.Masked())
		}
	case "rate":
		if p.Rate, err = strconv.Atoi(value); err != nil || p.Rate < 1 {
			return errors.New("rate must be a whole number of calls a second, from 1")
		}
	default:
		return errors.New("has a part that is none of name=, token=, tenants=, addresses= and rate=")
	}
	return nil
}
