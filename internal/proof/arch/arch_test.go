// Package arch holds the architecture as tests: who imports whom, what the
// SQL must name, how large things may grow, which calls have one home, and
// that the docs list the variables that exist and link to pages that do.
//
// It owns no production code and is imported by nobody. It reads the tree as
// text, so that it sees the files of every platform and needs neither a
// database nor a build.
package arch_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	module = "github.com/scheduler-service/scheduler/"
	root   = "../../.."
)

// source is one Go file of the tree.
type source struct {
	path      string // from the root, with slashes: internal/job/store.go
	pkg       string // its package as the tables call it: job, queue/redistest, cmd/api, db
	test      bool   // it is compiled only into tests
	generated bool
	lines     int
	file      *ast.File
	pos       *token.FileSet
}

// at is where a node stands, for messages.
func (s source) at(node ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.pos.Position(node.Pos()).Line)
}

// imports are the paths that the file imports, with the line of each.
func (s source) imports() map[string]string {
	found := make(map[string]string)
	for _, spec := range s.file.Imports {
		name, _ := strconv.Unquote(spec.Path.Value)
		found[name] = s.at(spec)
	}
	return found
}

// sources reads the tree once for all tests of the package.
var sources = sync.OnceValues(readSources)

func tree(t *testing.T) []source {
	t.Helper()
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 50 {
		t.Fatalf("only %d Go files were found from %s", len(all), root)
	}
	return all
}

func readSources() ([]source, error) {
	var all []source
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && foreign(name, entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		one, err := readSource(name)
		all = append(all, one)
		return err
	})
	return all, err
}

// foreign says that a folder holds no code of this module: hidden ones,
// fixtures, packages of the web console, and modules of their own.
func foreign(name, base string) bool {
	if name == root {
		return false
	}
	if strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules" || base == "bin" {
		return true
	}
	_, err := os.Stat(filepath.Join(name, "go.mod"))
	return err == nil
}

func readSource(name string) (source, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return source{}, err
	}
	pos := token.NewFileSet()
	file, err := parser.ParseFile(pos, name, text, parser.ParseComments)
	if err != nil {
		return source{}, err
	}
	relative, err := filepath.Rel(root, name)
	if err != nil {
		return source{}, err
	}
	slashed := filepath.ToSlash(relative)
	folder := path.Dir(slashed)
	return source{
		path:      slashed,
		pkg:       short(folder),
		test:      strings.HasSuffix(slashed, "_test.go"),
		generated: ast.IsGenerated(file),
		lines:     pos.File(file.Pos()).LineCount(),
		file:      file,
		pos:       pos,
	}, nil
}

// short is a package's folder as the tables call it.
func short(folder string) string { return strings.TrimPrefix(folder, "internal/") }

// forTests says that a package serves tests only, which its name ends with.
func forTests(pkg string) bool { return strings.HasSuffix(pkg, "test") }

// packages are the short names of all packages with a file that is not a
// test, in order.
func packages(all []source) []string {
	var names []string
	for _, s := range all {
		if !s.test && !slices.Contains(names, s.pkg) {
			names = append(names, s.pkg)
		}
	}
	slices.Sort(names)
	return names
}

// readText reads a file of the tree by its path from the root.
func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s is missing", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEveryPackageSaysWhatItOwns(t *testing.T) {
	t.Parallel()
	described := make(map[string]bool)
	for _, s := range tree(t) {
		if !s.test && s.file.Doc != nil && len(strings.Fields(s.file.Doc.Text())) >= 8 {
			described[s.pkg] = true
		}
	}
	for _, pkg := range packages(tree(t)) {
		if !described[pkg] {
			t.Errorf("package %s has no comment that says what it owns", pkg)
		}
	}
}
