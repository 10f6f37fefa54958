package arch_test

import (
	"go/ast"
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

// homes are the calls that have one place each.
var homes = []home{
	{
		from: "time", names: []string{"Now", "Since", "Until"}, in: []string{"clock"}, tests: true,
		why: "decisions take the instant as an argument; see package clock",
	},
	{
		from: "time", names: []string{"Sleep"}, tests: true,
		why: "a loop waits on a timer and its context, a test waits for an event",
	},
	{
		from: "os", names: []string{"Exit", "Getenv", "LookupEnv", "Environ", "Setenv", "ExpandEnv"}, in: []string{"cmd/", "deploy/probe"},
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
			if function, ok := declared.(*ast.FuncDecl); ok && function.Recv == nil && function.Name.Name == "init" && !s.generated {
				t.Errorf("%s: func init", s.at(function))
			}
		}
	}
}
