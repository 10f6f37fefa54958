package arch_test

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Above these, look for the noun that is missing.
const (
	maxFileLines = 400
	maxTestLines = 500
	maxFuncLines = 60
	maxExported  = 15
	maxFiles     = 20 // of a package, without its tests
)

// wider are the packages that may have more files, each with the reason.
var wider = map[string]struct {
	files  int
	reason string
}{
	"rest":        {45, "a file for each resource of the contract, and the console's session"},
	"proof/bench": {27, "a file for each thing that is measured"},
	"proof/chaos": {31, "a file for each fault and each check"},
}

// larger are the packages that may export more, each with the reason.
var larger = map[string]struct {
	exported int
	reason   string
}{
	"config":    {18, "each process, and each thing that several of them read, is a value of its own, and so is a setting that changes"},
	"postgres":  {20, "the one door to the database: its pool, its roles, its schema, its errors"},
	"dispatch":  {36, "each act of the protocol has its own input and outcome, and several packages hand them on"},
	"secret":    {25, "named secrets, the references to them, who may make some, and the credentials of definitions meet in one attempt and one mask"},
	"execution": {20, "the run of a job is the product's other central noun: its states, its attempts, its ids"},
	"job":       {31, "the definition of a job is the product's central noun: each policy is a type with its decision, and the plan of a set is made of jobs"},

	"monitor":      {27, "the monitor, what its pings and deadlines decide, and the rows that both write are handed on between the API, the intake and the watcher"},
	"notification": {20, "what is to be told, the events, the messages and the secrets meet in one resource that three packages hand on"},
}

// bannedWords name no thing of the field: what is called by one of them has
// no owner and attracts everything.
var bannedWords = []string{"service", "manager", "helper", "helpers", "util", "utils", "common", "base", "shared", "misc", "data", "info"}

// meant are the names that hold a banned word because it is the field's own,
// each with the reason.
var meant = map[string]string{
	"internal/devstack/install.go manager": "apt-get and brew are package managers",
}

func TestFilesAndFunctionsStaySmall(t *testing.T) {
	t.Parallel()
	for _, s := range tree(t) {
		if s.generated {
			continue
		}
		most := maxFileLines
		if s.test {
			most = maxTestLines
		}
		if s.lines > most {
			t.Errorf("%s has %d lines, more than %d", s.path, s.lines, most)
		}
		for _, declared := range s.file.Decls {
			function, ok := declared.(*ast.FuncDecl)
			if !ok || s.test {
				continue // a table of cases may be long
			}
			lines := s.pos.Position(function.End()).Line - s.pos.Position(function.Pos()).Line + 1
			if lines > maxFuncLines {
				t.Errorf("%s: %s has %d lines, more than %d", s.at(function), function.Name.Name, lines, maxFuncLines)
			}
		}
	}
}

func TestPackagesHaveFewFiles(t *testing.T) {
	t.Parallel()
	files := make(map[string]int)
	for _, s := range tree(t) {
		if !s.test && !s.generated {
			files[s.pkg]++
		}
	}
	for pkg, found := range files {
		limit := maxFiles
		if more, ok := wider[pkg]; ok {
			limit = more.files
		}
		if found > limit {
			t.Errorf("%s has %d files, more than %d", pkg, found, limit)
		}
	}
	for pkg, more := range wider {
		if files[pkg] <= maxFiles {
			t.Errorf("%s may have more than %d files (%s) and does not: take it off the list", pkg, maxFiles, more.reason)
		}
	}
}

func TestPackagesExportFewNames(t *testing.T) {
	t.Parallel()
	exported := make(map[string][]string)
	for _, s := range tree(t) {
		if !s.test && !s.generated {
			exported[s.pkg] = append(exported[s.pkg], exportedNames(s.file)...)
		}
	}
	for pkg, found := range exported {
		limit := maxExported
		if more, ok := larger[pkg]; ok {
			limit = more.exported
			if len(found) <= maxExported {
				t.Errorf("%s may export more than %d names (%s) and does not: take it off the list", pkg, maxExported, more.reason)
			}
		}
		if len(found) > limit {
			slices.Sort(found)
			t.Errorf("%s exports %d names, more than %d: %s", pkg, len(found), limit, strings.Join(found, " "))
		}
	}
	for pkg := range larger {
		if _, ok := exported[pkg]; !ok {
			t.Errorf("%s may export more and does not exist", pkg)
		}
	}
}

// exportedNames are the names that a reader of the package has to learn.
// Methods come with their type, and so do the constants of an exported type.
func exportedNames(file *ast.File) []string {
	var found []string
	add := func(name *ast.Ident) {
		if name.IsExported() {
			found = append(found, name.Name)
		}
	}
	for _, declared := range file.Decls {
		switch declared := declared.(type) {
		case *ast.FuncDecl:
			if declared.Recv == nil {
				add(declared.Name)
			}
		case *ast.GenDecl:
			typed := false
			for _, spec := range declared.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					add(spec.Name)
				case *ast.ValueSpec:
					// In a group with iota, the type stands in the first line.
					if of, ok := spec.Type.(*ast.Ident); ok {
						typed = of.IsExported()
					} else if spec.Type != nil || len(spec.Values) > 0 {
						typed = false
					}
					for _, name := range spec.Names {
						if declared.Tok == token.VAR || !typed {
							add(name)
						}
					}
				}
			}
		}
	}
	return found
}

func TestNamesAreNounsOfTheField(t *testing.T) {
	t.Parallel()
	words := regexp.MustCompile(`[A-Z]?[a-z0-9]+|[A-Z]+`)
	used := make(map[string]bool)
	check := func(s source, at, name string) {
		for _, word := range words.FindAllString(name, -1) {
			if _, ok := meant[s.path+" "+name]; ok {
				used[s.path+" "+name] = true
			} else if slices.Contains(bannedWords, strings.ToLower(word)) {
				t.Errorf("%s: %q is named with %q, which names nothing", at, name, word)
			}
		}
	}
	for _, s := range tree(t) {
		if s.generated {
			continue
		}
		check(s, s.path, path.Base(s.pkg))
		check(s, s.path, strings.TrimSuffix(path.Base(s.path), ".go"))
		ast.Inspect(s.file, func(node ast.Node) bool {
			if declared, ok := node.(*ast.TypeSpec); ok {
				check(s, s.at(declared), declared.Name.Name)
			}
			return true
		})
	}
	for name := range meant {
		if !used[name] {
			t.Errorf("%s is on the list of names that are meant and does not exist", name)
		}
	}
}
