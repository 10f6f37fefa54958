// Package reference is the page at /docs on which people read the contract and
// try it out.
//
// It owns the page, its content policy and the contract as JSON beside it. The
// viewer is Swagger UI, compiled into the binary, so the page asks nothing of
// any other host. It refuses to know what the contract says.
package reference

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/swaggest/swgui/v5/static"
)

// Path is where the page stands, with everything that it loads below it.
const Path = "/docs"

// Contract is where the contract stands as JSON.
const Contract = Path + "/openapi.json"

// policy allows scripts and styles of ours and nothing from elsewhere: no
// frames, no inline scripts, no requests to other hosts, "try it out" included.
// Styles may be inline because Swagger UI has some in its drawings.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed index.html start.js
var page embed.FS

// file is something that the page loads, compressed.
type file struct {
	kind string // its media type
	tag  string // its ETag
	gzip []byte
}

// Handler serves the page and, as Path/openapi.json, the contract; missing
// answers for whatever else is asked below Path. It fails only if a part is
// missing from the binary.
func Handler(contract []byte, missing http.HandlerFunc) (http.Handler, error) {
	files, err := gather(contract)
	if err != nil {
		return nil, fmt.Errorf("reference page: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, Path), "/")
		if r.URL.Path == Path { // relative, so that it holds below a prefix
			w.Header().Set("Location", strings.TrimPrefix(Path, "/")+"/")
			w.WriteHeader(http.StatusPermanentRedirect)
			return
		}
		if name == "" {
			name = "index.html"
		}
		if f, ok := files[name]; !ok || !f.serve(w, r) {
			missing(w, r)
		}
	}), nil
}

func gather(contract []byte) (map[string]file, error) {
	files := map[string]file{}
	for name, kind := range map[string]string{"index.html": "text/html; charset=utf-8", "start.js": "text/javascript; charset=utf-8"} {
		raw, err := page.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files[name] = pack(kind, raw)
	}
	for name, kind := range map[string]string{"swagger-ui.css": "text/css; charset=utf-8", "swagger-ui-bundle.js": "text/javascript; charset=utf-8"} {
		packed, err := fs.ReadFile(static.FS, name+".gz")
		if err != nil {
			return nil, err
		}
		files[name] = file{kind: kind, tag: tagOf(packed), gzip: packed}
	}
	icon, err := fs.ReadFile(static.FS, "favicon-32x32.png")
	if err != nil {
		return nil, err
	}
	files["favicon.png"] = pack("image/png", icon)
	files["openapi.json"] = pack("application/json", contract)
	return files, nil
}

func pack(kind string, raw []byte) file {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed) // into memory: it cannot fail
	_, _ = w.Write(raw)
	_ = w.Close()
	return file{kind: kind, tag: tagOf(raw), gzip: packed.Bytes()}
}

func tagOf(content []byte) string {
	sum := sha256.Sum256(content)
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}

// serve answers with the file as it is packed, and unpacks it for those few
// who cannot. It reports false, and has not answered, where the file is broken.
func (f file) serve(w http.ResponseWriter, r *http.Request) bool {
	content, packed := f.gzip, strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
	if !packed {
		var err error
		if content, err = unpack(f.gzip); err != nil {
			return false
		}
	}
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache") // ask again: the tag answers
	h.Set("Content-Type", f.kind)
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
