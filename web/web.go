// Package web holds the console as it was built from the sources beside it, so
// that the programs need no Node. `make web` builds it.
package web

import (
	"embed"
	"io/fs"
)

//go:embed all:dist
var dist embed.FS

// Build is the built console: each file compressed, with ".gz" at the end of its
// name.
func Build() fs.FS {
	build, _ := fs.Sub(dist, "dist") // the directive above names it
	return build
}
