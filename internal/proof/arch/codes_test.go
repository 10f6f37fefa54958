package arch_test

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Clients branch on the codes of errors, so the documentation has all of them and no
// other, and so do the examples of the contract.
func TestCodesAreDescribed(t *testing.T) {
	t.Parallel()
	codes := faultCodes(t)
	documented := captured(`\x60([A-Z]+(?:_[A-Z]+)*)\x60`, readText(t, "docs/reference/errors.md"))
	documented = slices.DeleteFunc(documented, func(name string) bool { return name == "SECRETS_KEYS" }) // a variable
	if diff := cmp.Diff(codes, documented); diff != "" {
		t.Errorf("codes in internal/fault/code.go, and in docs/reference/errors.md (-code +docs):\n%s", diff)
	}
	examples := captured(`(?:code|errorCode): ([A-Z]+(?:_[A-Z]+)*)\b`, readText(t, "openapi.yaml"))
	if len(examples) == 0 {
		t.Error("openapi.yaml has no example of a code")
	}
	for _, code := range examples {
		if !slices.Contains(codes, code) {
			t.Errorf("openapi.yaml has an example with code %s, which is not in internal/fault/code.go", code)
		}
	}
}

// A code that is written where a fault is made escapes the comparison above.
func TestFaultsNameTheirCodes(t *testing.T) {
	t.Parallel()
	position := map[string]int{"New": 1, "Wrap": 1, "Wrong": 0} // of the code among the arguments
	made := 0
	for _, s := range tree(t) {
		if s.test {
			continue
		}
		ast.Inspect(s.file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			called, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			from, ok := called.X.(*ast.Ident)
			if at, known := position[called.Sel.Name]; ok && known && from.Name == "fault" {
				made++
				if code, ok := call.Args[at].(*ast.BasicLit); ok && code.Value != `""` {
					t.Errorf("%s: write code %s as a constant of internal/fault/code.go", s.at(call), code.Value)
				}
			}
			return true
		})
	}
	if made == 0 {
		t.Error("no fault is made anywhere")
	}
}

// faultCodes are the values of the constants in internal/fault/code.go.
func faultCodes(t *testing.T) []string {
	t.Helper()
	var codes []string
	for _, s := range tree(t) {
		if s.path != "internal/fault/code.go" {
			continue
		}
		ast.Inspect(s.file, func(node ast.Node) bool {
			if value, ok := node.(*ast.BasicLit); ok && value.Kind == token.STRING {
				code, err := strconv.Unquote(value.Value)
				if err != nil {
					t.Fatal(err)
				}
				codes = append(codes, code)
			}
			return true
		})
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// captured are the different texts that an expression's group matches, sorted.
func captured(expression, text string) []string {
	var found []string
	for _, match := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	slices.Sort(found)
	return slices.Compact(found)
}
