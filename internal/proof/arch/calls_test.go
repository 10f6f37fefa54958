package arch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// home says where names of a standard package may be used.
type home struct {
	from  string   // the import path
	names []string // none: all of them
	in    []string // packages ("clock"), folders ("cmd/") or files ("internal/rest/fault.go") that may
	tests bool     // test files must obey too
	why   string
}

// beforeMain is the one file with a func init: a process that becomes a program does so before the
// packages begin that only main needs, which took longer than all else of its start.
const beforeMain = "internal/executor/sandbox/begin.go"

// homes are the calls that have one place each.
var homes = []home{
	{
		from: "time", names: []string{"Now", "Since", "Until"}, in: []string{"clock"}, tests: true,
		why: "decisions take the time as an argument; see package clock",
	},
	{
		from: "time", names: []string{"Sleep"}, tests: true,
		why: "a loop waits on a timer and its context, a test waits for an event",
	},
	{
		from: "os", names: []string{"Exit", "Getenv", "LookupEnv", "Environ", "Setenv", "ExpandEnv"}, in: []string{"cmd/", "deploy/probe", beforeMain},
		why: "mains hand in the environment and choose the exit code, so that all else can be tested",
	},
	{
		from: "os/signal", in: []string{"cmd/"}, tests: true,
		why: "mains turn signals into the end of a context",
	},
	{
		from: "log/slog", names: []string{"Debug", "DebugContext", "Info", "InfoContext", "Warn", "WarnContext", "Error", "ErrorContext", "Log", "LogAttrs", "Default", "SetDefault"},
		why: "the logger is a field",
	},
	{from: "log", why: "the logger is a field, and package log is another"},
	{
		from: "net/http", names: []string{"Error", "NotFound", "Redirect", "DefaultClient", "DefaultServeMux", "Handle", "HandleFunc", "ListenAndServe", "Get", "Post"},
		why: "answers that are not 2xx are written in internal/rest/fault.go, and clients and servers have time-outs of their own",
	},
	{from: "math/rand", why: "math/rand/v2 seeds itself, and crypto/rand is for tokens"},
}

// headerHomes are the files that may write a status that is not a literal
// 2xx, each with the reason.
var headerHomes = map[string]string{
	"internal/rest/fault.go":               "the one table from fault to HTTP answer",
	"internal/rest/present.go":             "what a handler answered, sent on, and the 304 of a read",
	"internal/telemetry/serve.go":          "an orchestrator reads readiness from the status",
	"internal/rest/console/console.go":     "the page's address with a slash at its end: a redirect, no error",
	"internal/rest/reference/reference.go": "the page's address with a slash at its end: a redirect, no error",
}

func (h home) allows(s source) bool {
	if s.test && !h.tests || s.generated || forTests(s.pkg) && !h.tests {
		return true
	}
	return slices.ContainsFunc(h.in, func(place string) bool {
		return place == s.pkg || place == s.path || strings.HasSuffix(place, "/") && strings.HasPrefix(s.path, place)
	})
}

func TestCallsStandWhereTheyBelong(t *testing.T) {
	t.Parallel()
	for _, s := range tree(t) {
		for _, h := range homes {
			if h.allows(s) {
				continue
			}
			for _, found := range selectors(s.file, h.from) {
				if len(h.names) == 0 || slices.Contains(h.names, found.Sel.Name) {
					t.Errorf("%s: %s.%s: %s", s.at(found), path.Base(h.from), found.Sel.Name, h.why)
				}
			}
		}
	}
}

// selectors are the uses of an imported package in a file, whatever name the
// import gives it. A local variable of that name is none.
func selectors(file *ast.File, imported string) []*ast.SelectorExpr {
	local := ""
	for _, spec := range file.Imports {
		if name, _ := strconv.Unquote(spec.Path.Value); name == imported {
			local = path.Base(imported)
			if spec.Name != nil {
				local = spec.Name.Name
			}
		}
	}
	var found []*ast.SelectorExpr
	if local == "" {
		return nil
	}
	ast.Inspect(file, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if name, ok := selector.X.(*ast.Ident); ok && name.Name == local && name.Obj == nil { // file scope is all that is asked
			found = append(found, selector)
		}
		return true
	})
	return found
}

// TestErrorsBecomeHTTPInOnePlace finds every WriteHeader whose status is not
// a literal 2xx.
func TestErrorsBecomeHTTPInOnePlace(t *testing.T) {
	t.Parallel()
	used := make(map[string]bool)
	for _, s := range tree(t) {
		if s.test || s.generated || forTests(s.pkg) {
			continue
		}
		ast.Inspect(s.file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return true
			}
			if method, ok := call.Fun.(*ast.SelectorExpr); !ok || method.Sel.Name != "WriteHeader" || fine(call.Args[0]) {
				return true
			}
			used[s.path] = true
			if _, allowed := headerHomes[s.path]; !allowed {
				t.Errorf("%s: a status that may not be 2xx is written outside internal/rest/fault.go", s.at(call))
			}
			return true
		})
	}
	for place := range headerHomes {
		if !used[place] {
			t.Errorf("%s may write any status and does not: take it off the list", place)
		}
	}
}

// fine says that an expression is one of the statuses of success.
func fine(status ast.Expr) bool {
	named, ok := status.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"StatusOK", "StatusCreated", "StatusAccepted", "StatusNoContent"}, named.Sel.Name)
}

// TestNothingRunsBeforeMain refuses func init: what it does cannot be passed
// another value.
func TestNothingRunsBeforeMain(t *testing.T) {
	t.Parallel()
	for _, s := range tree(t) {
		for _, declared := range s.file.Decls {
			if function, ok := declared.(*ast.FuncDecl); ok && function.Recv == nil && function.Name.Name == "init" && !s.generated && s.path != beforeMain {
				t.Errorf("%s: func init", s.at(function))
			}
		}
	}
}

// servers are the programs that only devstack may look for, run or name: it
// finds them outside the PATH too, and installs them.
var servers = []string{
	"redis-server", "valkey-server", "redis-cli", "valkey-cli", "redis-check-rdb",
	"postgres", "postmaster", "initdb", "pg_ctl", "pg_ctlcluster", "pg_basebackup", "pg_dump", "pg_isready", "psql", "createdb", "dropdb", "createuser", "pgbench",
}

// TestServersComeFromDevstack refuses a program of PostgreSQL or Redis in what
// is run or looked for, also as a word of a shell's script or in a path.
func TestServersComeFromDevstack(t *testing.T) {
	t.Parallel()
	for _, s := range tree(t) {
		if s.pkg == "devstack" || s.generated {
			continue
		}
		for _, server := range serversRun(s.file) {
			t.Errorf("%s: %q: devstack alone looks for servers and their programs; see pgtest and redistest", s.at(server), server.Value)
		}
	}
}

// serversRun are the literals in a file that name a server's program: anywhere
// in what runs a program or looks for one, and alone in any other call.
func serversRun(file *ast.File) []*ast.BasicLit {
	runs := make(map[ast.Node]bool)
	for _, from := range []string{"os/exec", "os"} {
		for _, found := range selectors(file, from) {
			runs[found] = slices.Contains([]string{"LookPath", "Command", "CommandContext", "Cmd", "StartProcess"}, found.Sel.Name)
		}
	}
	var found []*ast.BasicLit
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.CallExpr:
			holds := isServer
			if runs[node.Fun] {
				holds = namesServer
			}
			for _, arg := range node.Args {
				if _, plain := arg.(*ast.BasicLit); plain || runs[node.Fun] {
					found = append(found, literals(arg, holds)...)
				}
			}
		case *ast.CompositeLit:
			if runs[node.Type] {
				found = append(found, literals(node, namesServer)...)
			}
		}
		return true
	})
	return found
}

// literals are the texts below a node of which something holds.
func literals(below ast.Node, holds func(text string) bool) []*ast.BasicLit {
	var found []*ast.BasicLit
	ast.Inspect(below, func(node ast.Node) bool {
		if one, ok := node.(*ast.BasicLit); ok && one.Kind == token.STRING {
			if text, err := strconv.Unquote(one.Value); err == nil && holds(text) {
				found = append(found, one)
			}
		}
		return true
	})
	return found
}

// namesServer says that a word of a text is a server's program or its path.
func namesServer(text string) bool {
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\n;|&'\"()=", r) })
	return slices.ContainsFunc(words, func(word string) bool { return slices.Contains(servers, path.Base(word)) })
}

// isServer says that a text is the name of a server's program and nothing else:
// "postgres" is also a database, a role, a package and a backend.
func isServer(text string) bool { return text != "postgres" && slices.Contains(servers, text) }

func TestServersAreRecognized(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		`exec.Command("redis-server", conf)`:                    1,
		`exec.CommandContext(ctx, "/usr/bin/psql", url)`:        1,
		`exec.LookPath("postgres")`:                             1,
		`exec.Command("sh", "-c", "cd x && initdb -D y")`:       1,
		`exec.Cmd{Path: "/usr/lib/postgresql/15/bin/postgres"}`: 1,
		`run("pg_ctl")`:                                                        1,
		`run(filepath.Join(dir, "initdb"))`:                                    1,
		`s.url("postgres")`:                                                    0,
		`exec.Command("go", "build")`:                                          0,
		`t.Fatal("install redis-server or valkey-server")`:                     0,
		`open("postgres://scheduler@host/postgres")`:                           0,
		`exec.Command(program, "-dsn", "postgres://scheduler@host/scheduler")`: 0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p\nimport \"os/exec\"\nvar _ = "+text, 0)
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[*ast.BasicLit]bool)
		for _, one := range serversRun(file) {
			seen[one] = true
		}
		if len(seen) != want {
			t.Errorf("%s: found %d", text, len(seen))
		}
	}
}
