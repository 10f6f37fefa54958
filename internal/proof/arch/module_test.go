package arch_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// The build uses what go.mod names: nothing is replaced, and the toolchain is
// of one version at least.
func TestModulesAreThoseThatAreNamed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"go.mod", filepath.Join("tools", "go.mod"), filepath.Join("tools", "alerts", "go.mod"), filepath.Join("tools", "chart", "go.mod"), filepath.Join("tools", "collector", "go.mod"), filepath.Join("tools", "river", "go.mod"), filepath.Join("tools", "security", "go.mod")} {
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

// Each proof in docs/how/security.md names a test that exists.
func TestProofsThatAreNamedExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "how", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, s := range tree(t) {
		for _, declared := range s.file.Decls {
			if function, ok := declared.(*ast.FuncDecl); ok && s.test {
				known[function.Name.Name] = true
			}
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 50 {
		t.Errorf("only %d tests are named", len(named))
	}
	for _, name := range named {
		if !known[name[1]] {
			t.Errorf("docs/how/security.md names %s, which is no test", name[1])
		}
	}
}
