package config

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// Services are read as an operator writes them, and what is wrong is named without
// the token.
func TestPeersByName(t *testing.T) {
	t.Parallel()
	const one, two = "s8Jq2ZbX5nWc7RtLk0PfVd3HgMy6TaUe", "nE4xK9wQ1rB7vC0zY5tG8hJ2mF6pL3sD"
	id := uuid.New()
	got, err := parsePeers("name=billing;token=" + one + ";tenants=" + id.String() + ";addresses=10.1.2.3/8,fd00::/8;rate=50\n  name=shop;token=" + two)
	if err != nil {
		t.Fatal(err)
	}
	want := []peer{
		{Name: "billing", Token: newSecret(one), Tenants: []uuid.UUID{id}, Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}, Rate: 50},
		{Name: "shop", Token: newSecret(two)},
	}
	same := cmp.Comparer(func(a, b Secret) bool { return a.Reveal() == b.Reveal() })
	if diff := cmp.Diff(want, got, same, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for text, wrong := range map[string]string{
		"token=" + one:                                 "service 1: has no name",
		"name=billing":                                 "service 1: has no token",
		"name=billing;token=short":                     "service 1: token has 5 bytes",
		"name=a b;token=" + one:                        "service 1: has no token",
		"name=a/b;token=" + one:                        "service 1: name must be",
		"name=a;token=" + one + ";rate=0":              "service 1: rate must be",
		"name=a;token=" + one + ";tenants=x":           "service 1: tenants must be",
		"name=a;token=" + one + ";addresses=10.0.0.1":  "service 1: addresses must be",
		"name=a;token=" + one + ";role=admin":          "service 1: has a part",
		"name=a;token=" + one + " name=b;token=" + one: "service 2: has the token of another one",
		"name=a;token=" + one + ";;rate=1":             "service 1: has a part",
		strings.Repeat("name=a;token="+two+" ", 2):     "service 2: has the token of another one",
	} {
		if _, err := parsePeers(text); err == nil || !strings.HasPrefix(err.Error(), wrong) || strings.Contains(err.Error(), one) {
			t.Errorf("%s: %v, want %s", text, err, wrong)
		}
	}
}
