// Package cursor writes a place in a list as an opaque text, and reads back
// only what it wrote itself, for the same caller and the same list.
//
// It owns the format and its signature. It refuses to carry anything but what
// an item is sorted by and its id: tenant, list, filters and sort are signed
// and not contained, so a cursor fits nowhere else.
package cursor

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

const (
	version = 1
	macSize = 16 // bytes; 128 bits cannot be guessed through an API
	least   = 1 + 8 + 16 + macSize
	// most leaves room for a text of 200 characters.
	most = least + 800
)

// ErrInvalid is the answer to every text that Encode did not write for this
// list: tampered with, cut, of another tenant, list, filter or key.
var ErrInvalid = errors.New("cursor: not a cursor of this list")

// encoding is strict about the bits that the last character leaves over, so
// that a place has one text.
var encoding = base64.RawURLEncoding.Strict()

// List is what a cursor is bound to.
type List struct {
	Tenant uuid.UUID
	// Route names the list, parameters in the path included.
	Route string
	// Filters is a canonical form of all that selects items.
	Filters string
}

// Place is a position in a list: the last item of a page, by what the list is
// sorted by. The time counts in whole microseconds; a text has at most 800
// bytes.
type Place struct {
	At   time.Time
	Text string
	ID   uuid.UUID
}

// Codec signs and checks cursors. It may be used by any number of goroutines.
type Codec struct{ key []byte }

// New derives the signing key from a secret of any use, so that cursors and
// tokens never share a key. All processes that serve one API need the same.
func New(secret []byte) (*Codec, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "scheduler list cursor v1", 32)
	if err != nil {
		return nil, fmt.Errorf("derive the cursor key: %w", err)
	}
	return &Codec{key: key}, nil
}

// Encode writes a place in a list.
func (c *Codec) Encode(list List, place Place) string {
	raw := make([]byte, 0, least+len(place.Text))
	raw = append(raw, version)
	raw = binary.BigEndian.AppendUint64(raw, uint64(place.At.UnixMicro()))
	raw = append(raw, place.ID[:]...)
	raw = append(raw, place.Text...)
	return encoding.EncodeToString(append(raw, c.sign(list, raw)...))
}

// Decode reads what Encode wrote for the same list, or returns ErrInvalid.
func (c *Codec) Decode(list List, text string) (Place, error) {
	// The decoder skips line breaks, so the length of the text is checked too.
	raw, err := encoding.DecodeString(text)
	if err != nil || len(raw) < least || len(raw) > most || len(text) != encoding.EncodedLen(len(raw)) {
		return Place{}, ErrInvalid
	}
	body, mac := raw[:len(raw)-macSize], raw[len(raw)-macSize:]
	if raw[0] != version || !hmac.Equal(mac, c.sign(list, body)) {
		return Place{}, ErrInvalid
	}
	return Place{
		At:   time.UnixMicro(int64(binary.BigEndian.Uint64(body[1:9]))).UTC(),
		ID:   uuid.UUID(body[9:25]),
		Text: string(body[25:]),
	}, nil
}

// sign covers the body and all that the cursor is bound to. Each part has a
// fixed length or is preceded by it, so no two lists sign the same bytes.
func (c *Codec) sign(list List, body []byte) []byte {
	mac := hmac.New(sha256.New, c.key)
	mac.Write(list.Tenant[:])
	for _, part := range []string{string(body), list.Route, list.Filters} {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		mac.Write([]byte(part))
	}
	return mac.Sum(nil)[:macSize]
}
