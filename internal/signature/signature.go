// Package signature signs outgoing calls as Standard Webhooks says (standardwebhooks.com,
// version 1 of its symmetric signatures), so that a target can tell who called and
// that nobody changed the body.
//
// It owns the form of a signing key and the three headers of a signed call. It refuses
// to store keys and to verify. It is our own because the specification's Go library
// signs with one key alone, has one release, and would be larger to wrap than to write.
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxKeys is how many keys may sign one call: the old one and the new one, while a
// target changes over.
const MaxKeys = 2

const (
	prefix          = "whsec_"
	minKey, maxKey  = 24, 64 // bytes, as the specification recommends
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// ErrKey is the answer to a text that is no signing key. It does not repeat the text.
var ErrKey = errors.New("a signing key is the base64 of 24 to 64 bytes, with whsec_ before it or without")

// Keys sign calls. The zero value signs nothing. It does not change once made.
type Keys struct{ keys [][]byte }

// ParseKeys reads the keys that sign, each as its target was given it. The error is
// ErrKey, and for more than two keys another.
func ParseKeys(texts ...string) (Keys, error) {
	if len(texts) > MaxKeys {
		return Keys{}, errors.New("at most 2 keys sign a call")
	}
	var k Keys
	for _, text := range texts {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimSpace(text), prefix))
		if err != nil || len(key) < minKey || len(key) > maxKey {
			return Keys{}, ErrKey
		}
		k.keys = append(k.keys, key)
	}
	return k, nil
}

// Sign sets the headers of a call with this body that is sent now. The id is the same
// each time the same message is sent, and holds no dot. Each key adds a signature, and a
// target accepts the call if one of them fits the key that it has.
func (k Keys) Sign(header http.Header, id string, now time.Time, body []byte) {
	if len(k.keys) == 0 {
		return
	}
	seconds := strconv.FormatInt(now.Unix(), 10)
	signatures := make([]string, len(k.keys))
	for i, key := range k.keys {
		sum := hmac.New(sha256.New, key)
		sum.Write([]byte(id + "." + seconds + "."))
		sum.Write(body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(sum.Sum(nil))
	}
	header[headerID] = []string{id}
	header[headerTimestamp] = []string{seconds}
	header[headerSignature] = []string{strings.Join(signatures, " ")}
}
