// Package console is the page at /console: the built files of web/, compiled
// into the binary.
//
// It owns where the page stands, its content policy and which address gets which
// file. It refuses to know what the page does, and who may sign in (package
// rest).
package console

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/scheduler-service/scheduler/internal/rest/asset"
)

// Path is where the page stands, with everything that it loads below it.
const Path = "/console"

// Session is where the page signs in and out.
const Session = Path + "/session"

// SignIn is where a browser goes to sign in at the issuer, where there is one, and Callback
// where the issuer sends it back to.
const (
	SignIn   = Path + "/sign-in"
	Callback = SignIn + "/callback"
)

// policy allows scripts, styles and calls of our own origin and nothing else. No
// script may turn text into markup or code: Trusted Types are on, and there is
// no policy that makes any.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; manifest-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// kinds are the media types of what a build makes.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".md": "text/plain; charset=utf-8", ".txt": "text/plain; charset=utf-8",
}

// Handler serves a build: each file compressed, with ".gz" at the end of its
// name. Every other address below Path is one of the page's own and gets the
// page, but for names with an extension, which missing answers.
func Handler(build fs.FS, missing http.HandlerFunc) (http.Handler, error) {
	files, err := gather(build)
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == Path { // relative, so that it holds below a prefix
			w.Header().Set("Location", strings.TrimPrefix(Path, "/")+"/")
			w.WriteHeader(http.StatusPermanentRedirect)
			return
		}
		name := strings.TrimPrefix(r.URL.Path, Path+"/")
		f, ok := files[name]
		if !ok && (path.Ext(name) == "" || !strings.HasPrefix(name, "assets/")) {
			f, ok = files["index.html"]
		}
		w.Header().Set("Cross-Origin-Opener-Policy", "same-origin")
		if !ok || !f.Serve(w, r) {
			missing(w, r)
		}
	}), nil
}

func gather(build fs.FS) (map[string]asset.File, error) {
	files := map[string]asset.File{}
	err := fs.WalkDir(build, ".", func(name string, entry fs.DirEntry, err error) error {
		plain, packed := strings.CutSuffix(name, ".gz")
		if err != nil || entry.IsDir() || !packed {
			return err
		}
		kind, ok := kinds[path.Ext(plain)]
		if !ok {
			return fmt.Errorf("%s is of a kind that browsers are told nothing about", name)
		}
		content, err := fs.ReadFile(build, name)
		files[plain] = asset.File{Kind: kind, Policy: policy, Lasting: strings.HasPrefix(plain, "assets/")}.Packed(content)
		return err
	})
	if _, ok := files["index.html"]; err == nil && !ok {
		err = errors.New("the build has no page")
	}
	return files, err
}
