// Package asset serves files that browsers load from the binary: pages, scripts
// and styles.
//
// It owns how such a file is answered: compressed, with its ETag and the headers
// of its page. It refuses to know which files there are.
package asset

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"time"
)

// File is one file, kept compressed.
type File struct {
	Kind   string // its media type
	Policy string // the content policy of the page that it belongs to
	// Lasting says that the file's name changes with its content, so that a
	// browser need not ask again.
	Lasting bool

	tag    string
	packed []byte
}

// Pack keeps content compressed.
func (f File) Pack(raw []byte) File {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed) // into memory: it cannot fail
	_, _ = w.Write(raw)
	_ = w.Close()
	f.tag, f.packed = tagOf(raw), packed.Bytes()
	return f
}

// Packed takes content that is compressed already.
func (f File) Packed(packed []byte) File {
	f.tag, f.packed = tagOf(packed), packed
	return f
}

func tagOf(content []byte) string {
	sum := sha256.Sum256(content)
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}

// Serve answers with the file compressed, or plain for a client that takes no
// gzip. It reports false, and has not answered, where the file is broken.
func (f File) Serve(w http.ResponseWriter, r *http.Request) bool {
	content, packed := f.packed, strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
	if !packed {
		var err error
		if content, err = unpack(f.packed); err != nil {
			return false
		}
	}
	h := w.Header()
	h.Set("Content-Security-Policy", f.Policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache") // ask again: the tag answers
	if f.Lasting {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("Content-Type", f.Kind)
	h.Set("ETag", f.tag)
	h.Set("Vary", "Accept-Encoding")
	if packed {
		h.Set("Content-Encoding", "gzip")
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	return true
}

func unpack(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
