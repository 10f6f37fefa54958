// Package keyring seals texts so that only their own place opens them again.
//
// It owns the keys of SECRETS_KEYS and the envelope: each text is encrypted
// with a random key of its own (AES-256-GCM), and that key with one of the
// ring's. A sealed text is bound to its owner (tenant, kind, id and name of the
// thing), so that a row copied to another does not open. It is the only package
// that sees a key. It refuses keys that are not 32 bytes, to open what a key it
// does not hold has sealed, and to print what it opened. It stores nothing.
package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"
)

const (
	version   = 1  // the first byte of an envelope, and of all that it is bound to
	keySize   = 32 // AES-256
	nonceSize = 12
	tagSize   = 16
	maxKeys   = 16
)

// Errors of an envelope. Neither says anything of what is in it.
var (
	// ErrNoKeys is the answer to sealing without a key.
	ErrNoKeys = errors.New("keyring: no keys are configured")
	// ErrNotOpened is the answer to an envelope of an unknown key or format, of
	// another place, or that was changed.
	ErrNotOpened = errors.New("keyring: the envelope does not open")
)

// saneKeyID is what the id of a key may be: it is stored and shown.
var saneKeyID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// Binding is what an envelope is bound to. All of it must be the same when the
// envelope is opened.
type Binding struct {
	Tenant uuid.UUID
	Object string // the kind of thing, such as "secret"
	ID     uuid.UUID
	Field  string // the name of the thing, or of the part of it
}

// Ring is a set of keys; the first one seals. The zero value holds none. It
// does not change once made and may be used by any number of goroutines.
type Ring struct {
	ids  []string
	keys map[string]cipher.AEAD
}

// Parse reads keys as SECRETS_KEYS writes them: "id:base64" separated by
// commas, each key 32 bytes, the first one sealing. An empty text is a ring
// without keys. Errors repeat ids, never keys.
func Parse(text string) (*Ring, error) {
	r := &Ring{keys: map[string]cipher.AEAD{}}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		id, encoded, found := strings.Cut(part, ":")
		if !found || !saneKeyID.MatchString(id) {
			return nil, fmt.Errorf("key %d is not of the form id:base64, with an id of 1 to 32 letters, digits, _ and -", len(r.ids)+1)
		}
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(key) != keySize {
			return nil, fmt.Errorf("key %q is not the base64 of 32 bytes", id)
		}
		if weak(key) {
			return nil, fmt.Errorf("key %q is not random", id)
		}
		if _, twice := r.keys[id]; twice {
			return nil, fmt.Errorf("key %q stands twice", id)
		}
		if r.keys[id], err = gcm(key); err != nil {
			return nil, err
		}
		r.ids = append(r.ids, id)
	}
	if len(r.ids) > maxKeys {
		return nil, fmt.Errorf("there are %d keys, more than %d", len(r.ids), maxKeys)
	}
	return r, nil
}

// weak finds keys that somebody typed: 32 random bytes have fewer than 16
// different ones about never.
func weak(key []byte) bool {
	different := slices.Compact(slices.Sorted(slices.Values(key)))
	return len(different) < 16
}

// Generate makes the text of a ring of one random key.
func Generate(id string) string {
	return id + ":" + base64.StdEncoding.EncodeToString(random(keySize))
}

// Current is the id of the key that seals; empty without keys.
func (r *Ring) Current() string {
	if r == nil || len(r.ids) == 0 {
		return ""
	}
	return r.ids[0]
}

// Holds tells whether the ring has the key with an id.
func (r *Ring) Holds(id string) bool {
	if r == nil {
		return false
	}
	_, held := r.keys[id]
	return held
}

// Seal encrypts a text for its place, with the current key. The error is
// ErrNoKeys.
func (r *Ring) Seal(at Binding, text Text) ([]byte, error) {
	if r.Current() == "" {
		return nil, ErrNoKeys
	}
	key := random(keySize)
	own, err := gcm(key)
	if err != nil {
		return nil, err
	}
	out := r.wrap(at, r.Current(), key)
	nonce := random(nonceSize)
	out = append(out, nonce...)
	return own.Seal(out, nonce, []byte(text.Reveal()), at.bytes("")), nil
}

// Open decrypts what Seal made for the same place. The error is ErrNotOpened.
func (r *Ring) Open(at Binding, sealed []byte) (Text, error) {
	key, _, rest, err := r.unwrap(at, sealed)
	if err != nil {
		return Text{}, err
	}
	own, err := gcm(key)
	if err != nil || len(rest) < nonceSize+tagSize {
		return Text{}, ErrNotOpened
	}
	text, err := own.Open(nil, rest[:nonceSize], rest[nonceSize:], at.bytes(""))
	if err != nil {
		return Text{}, ErrNotOpened
	}
	return NewText(string(text)), nil
}

// Rewrap puts an envelope under the current key, without opening the text in
// it. One that is under it already comes back as it is.
func (r *Ring) Rewrap(at Binding, sealed []byte) ([]byte, error) {
	if r.Current() == "" {
		return nil, ErrNoKeys
	}
	key, id, rest, err := r.unwrap(at, sealed)
	if err != nil {
		return nil, err
	}
	if id == r.Current() {
		return sealed, nil
	}
	return append(r.wrap(at, r.Current(), key), rest...), nil
}

// An envelope is: version, length of the key's id, id, nonce, the text's own
// key encrypted with that key, nonce, the text encrypted with its own key.

// wrap is the part of an envelope that belongs to a key of the ring. Its nonce
// is random: one key wraps far fewer than the 2^32 texts that this allows.
func (r *Ring) wrap(at Binding, id string, key []byte) []byte {
	out := append([]byte{version, byte(len(id))}, id...)
	nonce := random(nonceSize)
	out = append(out, nonce...)
	return r.keys[id].Seal(out, nonce, key, at.bytes(id))
}

// unwrap reads the first part of an envelope, and answers what follows it.
func (r *Ring) unwrap(at Binding, sealed []byte) (key []byte, id string, rest []byte, err error) {
	if r == nil || len(sealed) < 2 || sealed[0] != version {
		return nil, "", nil, ErrNotOpened
	}
	end := 2 + int(sealed[1])
	if len(sealed) < end+nonceSize+keySize+tagSize {
		return nil, "", nil, ErrNotOpened
	}
	id = string(sealed[2:end])
	with, known := r.keys[id]
	if !known {
		return nil, "", nil, ErrNotOpened
	}
	nonce, wrapped := sealed[end:end+nonceSize], sealed[end+nonceSize:end+nonceSize+keySize+tagSize]
	key, err = with.Open(nil, nonce, wrapped, at.bytes(id))
	if err != nil {
		return nil, "", nil, ErrNotOpened
	}
	return key, id, sealed[end+nonceSize+keySize+tagSize:], nil
}

// bytes is the place as the additional data of an encryption. Each part is
// preceded by its length, so that no two places have the same bytes. The key's
// id is bound where the text's key is wrapped, and through it the text.
func (p Binding) bytes(keyID string) []byte {
	out := []byte{version}
	for _, part := range []string{p.Tenant.String(), p.Object, p.ID.String(), p.Field, keyID} {
		out = binary.BigEndian.AppendUint32(out, uint32(len(part)))
		out = append(out, part...)
	}
	return out
}

func gcm(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("keyring: %w", err)
	}
	return cipher.NewGCM(block)
}

func random(n int) []byte {
	out := make([]byte, n)
	_, _ = rand.Read(out) // it never fails; see its documentation
	return out
}
