// Package reference is the page at /docs on which people read the contract and
// try it out.
//
// It owns the page, its content policy and the contract as JSON beside it. The
// viewer is Swagger UI, compiled into the binary, so the page asks nothing of
// any other host. It refuses to know what the contract says.
package reference

import (
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	"github.com/swaggest/swgui/v5/static"

	"github.com/scheduler-service/scheduler/internal/rest/asset"
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

// Files are the page and what it loads, by name.
type Files map[string]asset.File

// Handler serves the page and, as Path/openapi.json, the contract; missing
// answers for whatever else is asked below Path.
func (files Files) Handler(missing http.HandlerFunc) http.Handler {
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
		if f, ok := files[name]; !ok || !f.Serve(w, r) {
			missing(w, r)
		}
	})
}

// Gather compresses the page for a contract as JSON. It fails only if a part is missing
// from the binary.
func Gather(contract []byte) (Files, error) {
	files := Files{}
	for name, kind := range map[string]string{"index.html": "text/html; charset=utf-8", "start.js": "text/javascript; charset=utf-8"} {
		raw, err := page.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reference page: %w", err)
		}
		files[name] = asset.File{Kind: kind, Policy: policy}.Pack(raw)
	}
	for name, kind := range map[string]string{"swagger-ui.css": "text/css; charset=utf-8", "swagger-ui-bundle.js": "text/javascript; charset=utf-8"} {
		packed, err := fs.ReadFile(static.FS, name+".gz")
		if err != nil {
			return nil, fmt.Errorf("reference page: %w", err)
		}
		files[name] = asset.File{Kind: kind, Policy: policy}.Packed(packed)
	}
	icon, err := fs.ReadFile(static.FS, "favicon-32x32.png")
	if err != nil {
		return nil, fmt.Errorf("reference page: %w", err)
	}
	files["favicon.png"] = asset.File{Kind: "image/png", Policy: policy}.Pack(icon)
	files["openapi.json"] = asset.File{Kind: "application/json", Policy: policy}.Pack(contract)
	return files, nil
}
