package jwks

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
)

const (
	// RSA keys below this are not safe with RS256 (RFC 7518, section 3.3), and
	// above the other bound each token costs too much to verify.
	minModulus, maxModulus = 2048, 8192
	coordinate             = 32 // bytes of a P-256 coordinate and of an Ed25519 key
)

// wireKey is one key of a set (RFC 7517, RFC 7518 section 6, RFC 8037).
type wireKey struct {
	Type       string   `json:"kty"`
	ID         string   `json:"kid"`
	Use        string   `json:"use"`
	Operations []string `json:"key_ops"`
	Algorithm  string   `json:"alg"`
	Curve      string   `json:"crv"`
	Modulus    string   `json:"n"`
	Exponent   string   `json:"e"`
	X          string   `json:"x"`
	Y          string   `json:"y"`
}

// parse takes the keys that verify tokens of RS256, ES256 and EdDSA. Others
// are left out, as RFC 7517 (section 5) wants; a set without any is an error,
// so that an answer that is no set does not forget the keys that are known.
// Two keys with one id are both left out: which is meant cannot be told.
func parse(text []byte) (map[string]crypto.PublicKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, errors.New("the auth service's answer is not a set of keys")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("the auth service has more than %d keys", maxKeys)
	}
	keys, twice := map[string]crypto.PublicKey{}, map[string]bool{}
	for _, raw := range set.Keys {
		var wire wireKey
		if json.Unmarshal(raw, &wire) != nil || wire.ID != "" && !saneID.MatchString(wire.ID) {
			continue
		}
		key := wire.public()
		if key == nil {
			continue
		}
		if _, known := keys[wire.ID]; known {
			twice[wire.ID] = true
		}
		keys[wire.ID] = key
	}
	for id := range twice {
		delete(keys, id)
	}
	if len(keys) == 0 {
		return nil, errors.New("the auth service has no key that verifies RS256, ES256 or EdDSA")
	}
	return keys, nil
}

// public is the key, and nil for one that is not fit to verify tokens.
func (w wireKey) public() crypto.PublicKey {
	if w.Use != "" && w.Use != "sig" || len(w.Operations) > 0 && !slices.Contains(w.Operations, "verify") {
		return nil
	}
	switch {
	case w.Type == "RSA" && w.may("RS256"):
		return w.rsa()
	case w.Type == "EC" && w.Curve == "P-256" && w.may("ES256"):
		return w.ecdsa()
	case w.Type == "OKP" && w.Curve == "Ed25519" && w.may("EdDSA", "Ed25519"):
		if x := number(w.X); len(x) == coordinate {
			return ed25519.PublicKey(x)
		}
	}
	return nil
}

// may says that the key is not bound to an algorithm other than these.
func (w wireKey) may(algorithms ...string) bool {
	return w.Algorithm == "" || slices.Contains(algorithms, w.Algorithm)
}

func (w wireKey) rsa() crypto.PublicKey {
	n, e := new(big.Int).SetBytes(number(w.Modulus)), new(big.Int).SetBytes(number(w.Exponent))
	if n.BitLen() < minModulus || n.BitLen() > maxModulus || e.BitLen() > 31 || e.Int64() < 3 || e.Bit(0) == 0 {
		return nil
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}
}

func (w wireKey) ecdsa() crypto.PublicKey {
	x, y := number(w.X), number(w.Y)
	if len(x) != coordinate || len(y) != coordinate {
		return nil
	}
	// It refuses what is not a point of the curve.
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y))
	if err != nil {
		return nil
	}
	return key
}

// number is the bytes behind a text of RFC 7517, and nil where it is none.
func number(text string) []byte {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil
	}
	return raw
}
