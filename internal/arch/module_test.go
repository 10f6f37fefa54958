package arch_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// What is built is what go.mod names: nothing is replaced, and the toolchain is
// of one version at least.
func TestModulesAreThoseThatAreNamed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"go.mod", filepath.Join("tools", "go.mod")} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if regexp.MustCompile(`(?m)^(replace\b|\t.* => )`).Match(text) {
			t.Errorf("%s replaces a module", name)
		}
		if !regexp.MustCompile(`(?m)^go \d+\.\d+\.\d+$`).Match(text) {
			t.Errorf("%s does not say which release of Go it needs", name)
		}
	}
}
