package web_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/web"
)

// The programs hold what the sources say: vite.config.mjs writes the same hash into
// the build.
func TestBuildIsOfTheseSources(t *testing.T) {
	t.Parallel()
	built, err := fs.ReadFile(web.Build(), "sources.sha256")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.TrimSpace(string(built)), hashOfSources(t); got != want {
		t.Errorf("the console was built from other sources: run `make web`, which needs Node, and commit web/dist (built %s, now %s)", got, want)
	}
}

func hashOfSources(t *testing.T) string {
	t.Helper()
	names := []string{"index.html", "package-lock.json", "package.json", "vite.config.mjs"}
	for _, folder := range []string{"public", "src"} {
		err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				names = append(names, filepath.ToSlash(name))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(names)
	all := sha256.New()
	add := func(name, file string) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(content)
		fmt.Fprintf(all, "%s %s\n", name, hex.EncodeToString(sum[:]))
	}
	for _, name := range names {
		add(name, name)
	}
	add("client", filepath.Join("..", "api", "typescript", "src", "index.ts"))
	return hex.EncodeToString(all.Sum(nil))
}
