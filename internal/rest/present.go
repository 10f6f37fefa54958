package rest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/scheduler-service/scheduler/internal/rest/contract"
)

// held is an answer that is not sent yet.
type held struct {
	http.ResponseWriter
	status int
	body   *bytes.Buffer
}

// bodies are buffers of answers that were sent: one that grows to a list's 30 kB was a
// tenth of what a list allocated.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxKeptBody is the largest buffer that is used again, in bytes.
const maxKeptBody = 256 << 10

// release gives the buffer back. Nothing of the body may be used after it.
func (h *held) release() {
	if h.body.Cap() <= maxKeptBody {
		h.body.Reset()
		bodies.Put(h.body)
	}
}

func (h *held) WriteHeader(status int) {
	if h.status == 0 {
		h.status = status
	}
}

func (h *held) Write(part []byte) (int, error) {
	h.WriteHeader(http.StatusOK)
	return h.body.Write(part)
}

// Status is that of the answer; 0 before it began.
func (h *held) Status() int { return h.status }

// present holds the handler's answer back until it is whole, writes its texts
// as they are, tags it, and answers 304 to who knows it already. Health checks
// are asked for what is now, and get no tag.
func (s *server) present(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &held{ResponseWriter: w, body: bodies.Get().(*bytes.Buffer)}
		defer answer.release()
		next.ServeHTTP(answer, r)
		body := plainText(answer.body.Bytes())
		public := callOf(r.Context()).operation.Permission == contract.Public
		if !public && (answer.status == http.StatusOK || answer.status == http.StatusCreated) {
			tag(w.Header(), r.Method, body)
		}
		if !public && answer.status == http.StatusOK && r.Method == http.MethodGet && knows(r.Header.Values("If-None-Match"), w.Header().Get("ETag")) {
			w.Header().Del("Content-Type")
			w.WriteHeader(http.StatusNotModified)
			return
		}
		if len(body) > 0 {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		}
		w.WriteHeader(answer.status)
		_, _ = w.Write(body) // fails only where the client is gone
	})
}

// tag gives an answer its ETag. An answer with a version gets it and a digest of the
// whole body, so that one tag serves both kinds of conditions: a change asks
// for the version alone (versionOf), since pausing a job or running it does not
// make a definition another, and a read for the whole. An answer without a
// version gets a weak tag, which no change takes.
func tag(h http.Header, method string, body []byte) {
	sum := sha256.Sum256(body)
	digest := hex.EncodeToString(sum[:8])
	switch version := strings.Trim(h.Get("ETag"), `"`); {
	case version != "":
		h.Set("ETag", fmt.Sprintf("%q", version+"."+digest))
	case method == http.MethodGet:
		h.Set("ETag", fmt.Sprintf("W/%q", digest))
	}
}

// knows says whether If-None-Match names a tag, or any (RFC 9110, section
// 13.1.2). It compares weakly, as reads do.
func knows(lines []string, tag string) bool {
	weak := func(text string) string { return strings.TrimPrefix(text, "W/") }
	return slices.ContainsFunc(elements(strings.Join(lines, ",")), func(one string) bool {
		return one == "*" || weak(one) == weak(tag)
	})
}

// plainText writes <, > and & as themselves, which the encoder of the generated
// handlers escapes for pages; these answers are never one (nosniff).
func plainText(body []byte) []byte {
	if !bytes.Contains(body, []byte(`\u00`)) {
		return body
	}
	escapes := map[string]byte{`\u003c`: '<', `\u003e`: '>', `\u0026`: '&'}
	out := make([]byte, 0, len(body))
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' || i+1 == len(body) {
			out = append(out, body[i])
			continue
		}
		if i+6 <= len(body) {
			if plain, ok := escapes[string(body[i:i+6])]; ok {
				out = append(out, plain)
				i += 5
				continue
			}
		}
		out = append(out, body[i], body[i+1]) // an escape of something else, perhaps of a backslash
		i++
	}
	return out
}

// bodiless serves HEAD as GET is served and leaves the body out.
func (s *server) bodiless(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			read := r.WithContext(r.Context())
			read.Method = http.MethodGet
			w, r = headers{w}, read
		}
		next.ServeHTTP(w, r)
	})
}

// headers is an answer without its body.
type headers struct{ http.ResponseWriter }

func (headers) Write(part []byte) (int, error) { return len(part), nil }
