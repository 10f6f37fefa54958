// Command sbom lists what programs are made of, as CycloneDX: each module with the
// version and the sum that the linker wrote into them. So it says what is shipped, and
// not what go.mod would allow. `sbom PROGRAM…` writes to standard output.
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

type bom struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl,omitempty"`
	Ref        string     `json:"bom-ref,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func main() {
	if err := write(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(out io.Writer, programs []string) error {
	if len(programs) == 0 {
		return fmt.Errorf("give the programs")
	}
	all := map[string]component{}
	users := map[string][]string{}
	list := bom{Format: "CycloneDX", Spec: "1.6", Version: 1}
	for _, path := range programs {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		list.Metadata.Component = component{Type: "application", Name: info.Main.Path, Version: info.Main.Version}
		add := func(c component) {
			all[c.PURL] = c
			users[c.PURL] = append(users[c.PURL], filepath.Base(path))
		}
		add(component{Type: "library", Name: "std", Version: info.GoVersion, PURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")})
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			c := component{Type: "library", Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version}
			if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) > 0 {
				// The sum of Go's is one of a list of files, not of an archive.
				c.Properties = append(c.Properties, property{"go:h1", hex.EncodeToString(sum)})
			}
			add(c)
		}
	}
	for purl, c := range all {
		slices.Sort(users[purl])
		c.Ref = purl
		c.Properties = append(c.Properties, property{"programs", strings.Join(users[purl], " ")})
		list.Components = append(list.Components, c)
	}
	slices.SortFunc(list.Components, func(a, b component) int { return strings.Compare(a.PURL, b.PURL) })
	to := json.NewEncoder(out)
	to.SetIndent("", "  ")
	return to.Encode(list)
}
