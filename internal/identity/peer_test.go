package identity_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// A comparison that ended at the first difference, or at the first token that
// fits, would tell by its time how much of a guess was right. No test of times
// says so on a machine that does other things too, so this one reads the code:
// sums of equal length, each compared, none skipped.
func TestTokensAreComparedInConstantTime(t *testing.T) {
	t.Parallel()
	for _, place := range []struct {
		file, function string
		calls          []string
	}{
		{"peer.go", "known", []string{"sha256.Sum256", "subtle.ConstantTimeSelect", "subtle.ConstantTimeCompare"}},
		{"../apikey/apikey.go", "same", []string{"subtle.ConstantTimeCompare"}},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), place.file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(file.Decls, func(d ast.Decl) bool {
			f, ok := d.(*ast.FuncDecl)
			return ok && f.Name.Name == place.function
		})
		if at < 0 {
			t.Fatalf("%s has no function %s", place.file, place.function)
		}
		var calls []string
		returns := 0
		ast.Inspect(file.Decls[at], func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				switch callee := n.Fun.(type) {
				case *ast.SelectorExpr:
					calls = append(calls, callee.X.(*ast.Ident).Name+"."+callee.Sel.Name)
				case *ast.ArrayType: // the conversion []byte(token)
				default:
					t.Errorf("%s: %s calls something else", place.file, place.function)
				}
			case *ast.IfStmt, *ast.SwitchStmt, *ast.BranchStmt, *ast.GoStmt:
				t.Errorf("%s: %s branches on what it compares", place.file, place.function)
			case *ast.BinaryExpr:
				if n.Op == token.LAND || n.Op == token.LOR {
					t.Errorf("%s: %s stops at the first that fits", place.file, place.function)
				}
			case *ast.ReturnStmt:
				returns++
			}
			return true
		})
		if !slices.Equal(calls, place.calls) || returns != 1 {
			t.Errorf("%s: %s calls %v and returns %d times, want %v and once", place.file, place.function, calls, returns, place.calls)
		}
	}
}

// A header that stands twice is read by two readers in two ways.
func TestServicesSendEachHeaderOnce(t *testing.T) {
	t.Parallel()
	const good = "s8Jq2ZbX5nWc7RtLk0PfVd3HgMy6TaUe"
	services := identity.NewPeerTokens(identity.Unnamed(good)...)
	tenant := tenid.String()
	for name, test := range map[string]struct {
		header http.Header
		kind   fault.Kind
	}{
		"two tokens":        {http.Header{"X-Service-Token": {good, good}, "X-Tenant-Id": {tenant}}, fault.Unauthenticated},
		"a good one first":  {http.Header{"X-Service-Token": {good, "x"}, "X-Tenant-Id": {tenant}}, fault.Unauthenticated},
		"a part of it":      {http.Header{"X-Service-Token": {good[:31]}, "X-Tenant-Id": {tenant}}, fault.Unauthenticated},
		"more than it":      {http.Header{"X-Service-Token": {good + " "}, "X-Tenant-Id": {tenant}}, fault.Unauthenticated},
		"an empty one":      {http.Header{"X-Service-Token": {""}, "X-Tenant-Id": {tenant}}, fault.Unauthenticated},
		"a megabyte":        {http.Header{"X-Service-Token": {strings.Repeat("x", 1<<20)}, "X-Tenant-Id": {tenant}}, fault.Unauthenticated},
		"two tenants":       {http.Header{"X-Service-Token": {good}, "X-Tenant-Id": {tenant, tenant}}, fault.Invalid},
		"no tenant":         {http.Header{"X-Service-Token": {good}}, fault.Invalid},
		"the nil tenant":    {http.Header{"X-Service-Token": {good}, "X-Tenant-Id": {"00000000-0000-0000-0000-000000000000"}}, fault.Invalid},
		"a tenant in {}":    {http.Header{"X-Service-Token": {good}, "X-Tenant-Id": {"{" + tenant + "}"}}, fault.Invalid},
		"a tenant's prefix": {http.Header{"X-Service-Token": {good}, "X-Tenant-Id": {"urn:uuid:" + tenant}}, fault.Invalid},
	} {
		if _, err := services.Authenticate(test.header, netip.Addr{}); fault.KindOf(err) != test.kind || err == nil {
			t.Errorf("%s: %v, want %s", name, err, test.kind)
		}
	}
	who, err := services.Authenticate(http.Header{"X-Service-Token": {good}, "X-Tenant-Id": {tenant}}, netip.Addr{})
	if err != nil || who.Actor.TenantID != tenid {
		t.Errorf("the token itself: %+v, %v", who, err)
	}
	if _, err := identity.NewPeerTokens().Authenticate(http.Header{"X-Service-Token": {""}, "X-Tenant-Id": {tenant}}, netip.Addr{}); fault.KindOf(err) != fault.Unauthenticated {
		t.Errorf("without any token configured: %v", err)
	}
}
