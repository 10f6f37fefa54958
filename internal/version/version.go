// Package version knows which build of the product this is.
//
// It owns the one text that every process shows: in its answer to "version", in
// its log, in scheduler_build_info and in the User-Agent of its calls.
package version

import (
	"runtime/debug"
	"sync"
)

// stamped is set by the linker (-ldflags "-X …/internal/version.stamped=v1.2.3").
// The Makefile and the images do so.
var stamped string

// String is the version: what the linker was told, else what Go recorded of the
// module or of its revision, else "devel".
func String() string {
	if stamped != "" {
		return stamped
	}
	return fromGo()
}

// fromGo reads once what Go recorded: every call to a target asks for it.
var fromGo = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	return recorded(info)
})

const unknown = "devel"

// recorded is the version that Go wrote into the binary.
func recorded(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	var revision, suffix string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			suffix = "-dirty"
		}
	}
	if revision == "" {
		return unknown
	}
	return revision + suffix
}
