package arch_test

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// moving are the files of db/queries whose statements move executions.
var moving = []string{"cancel", "claim", "complete", "next", "park", "poll", "reassign", "release"}

// Only package dispatch calls the statements that move an execution. Tests may too.
func TestOnlyDispatchMovesExecutions(t *testing.T) {
	t.Parallel()
	moves := make(map[string]bool)
	for _, q := range readQueries(t) {
		file, _, _ := strings.Cut(strings.TrimPrefix(q.at, "db/queries/"), ".sql")
		if slices.Contains(moving, file) {
			moves[q.name] = false
		}
	}
	if len(moves) < 20 {
		t.Fatalf("only %d statements that move executions were found", len(moves))
	}
	for _, s := range tree(t) {
		if s.test || s.generated || s.pkg == "db" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if _, is := moves[method.Sel.Name]; is {
				moves[method.Sel.Name] = true
				if s.pkg != "dispatch" {
					t.Errorf("%s: %s moves executions: call package dispatch", s.at(call), method.Sel.Name)
				}
			}
			return true
		})
	}
	for name, called := range moves {
		if !called {
			t.Errorf("nobody calls %s", name)
		}
	}
}

// maxStatementLines is above which a statement says at its head why it is so long.
const maxStatementLines = 60

func TestLongStatementsSayWhy(t *testing.T) {
	t.Parallel()
	for _, q := range readQueries(t) {
		lines := 0
		for line := range strings.SplitSeq(q.text, "\n") {
			if strings.TrimSpace(line) != "" {
				lines++
			}
		}
		why := strings.Contains(q.comment, "Longer than 60 lines: ")
		switch {
		case lines > maxStatementLines && !why:
			t.Errorf("%s: %s has %d lines, more than %d, and its comment does not say why (\"Longer than 60 lines: \")", q.at, q.name, lines, maxStatementLines)
		case lines <= maxStatementLines && why:
			t.Errorf("%s: %s has %d lines: it needs no reason for more", q.at, q.name, lines)
		}
	}
}

// Two parts of statements that are alike and longer than two lines are one function
// or view that is missing.
func TestNoPartOfAStatementStandsTwice(t *testing.T) {
	t.Parallel()
	first := make(map[string]string)
	for _, q := range readQueries(t) {
		for name, body := range parts(q.text) {
			if strings.Count(strings.TrimSpace(body), "\n") < 2 {
				continue
			}
			plain := strings.Join(strings.Fields(body), " ")
			if before, twice := first[plain]; twice {
				t.Errorf("%s: %s of %s is the same as %s", q.at, name, q.name, before)
			}
			first[plain] = name + " of " + q.name
		}
	}
	if len(first) < 30 {
		t.Errorf("only %d parts were found", len(first))
	}
}

// parts are the bodies of a statement's WITH, by name.
func parts(statement string) map[string]string {
	found := make(map[string]string)
	begins := regexp.MustCompile(`(?m)(?:^WITH (?:RECURSIVE )?|^|, )(\w+)(?: \([^)]*\))? AS (?:NOT )?(?:MATERIALIZED )?\(`)
	for _, at := range begins.FindAllStringSubmatchIndex(statement, -1) {
		depth := 1
		for i := at[1]; i < len(statement) && depth > 0; i++ {
			switch statement[i] {
			case '(':
				depth++
			case ')':
				if depth--; depth == 0 {
					found[statement[at[2]:at[3]]] = statement[at[1]:i]
				}
			}
		}
	}
	return found
}

// Job types are data: the contract and the registry of executors name them.
func TestNoStatementNamesAJobType(t *testing.T) {
	t.Parallel()
	names := regexp.MustCompile(`['{,"](http|function|command)['},"]|running_(http|function|command)\b`)
	for _, q := range readQueries(t) {
		if found := names.FindString(q.text); found != "" {
			t.Errorf("%s: %s names a job type: %s", q.at, q.name, found)
		}
	}
}
