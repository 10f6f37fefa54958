package hosts_test

import (
	"os"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
	"github.com/scheduler-service/scheduler/internal/tenant"
	"github.com/scheduler-service/scheduler/internal/tenant/hosts"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, fine := range []string{"example.com", "*.example.com", "localhost", "a-b.example", "xn--bcher-kva.example", "203.0.113.7", "2001:db8::1", "_dmarc.example.com"} {
		if !hosts.Valid(fine) {
			t.Errorf("%q is refused", fine)
		}
	}
	for _, wrong := range []string{
		"", "*", "*.", ".example.com", "*example.com", "a.*.example.com", "*.*.example.com", "Example.com", "example.com.", "example.com:443",
		"https://example.com", "example.com/x", "bücher.example", "a..b", "-a.example", "[2001:db8::1]", "2001:DB8::1", "fe80::1%eth0", "10.0.0.0/8", "a b",
	} {
		if hosts.Valid(wrong) {
			t.Errorf("%q is taken", wrong)
		}
	}
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	patterns := []string{"api.example.com", "*.hooks.example", "203.0.113.7", "2001:db8::1"}
	for host, want := range map[string]bool{
		"api.example.com": true, "API.Example.COM": true, "api.example.com.": true, "a.hooks.example": true, "a.b.hooks.example": true, "203.0.113.7": true,
		"2001:db8::1": true, "2001:DB8:0::1": true,
		"example.com": false, "x.api.example.com": false, "hooks.example": false, "evilhooks.example": false, ".hooks.example": false,
		"api.example.com.evil.test": false, "203.0.113.70": false, "::ffff:203.0.113.7": false, "": false, "äpi.example.com": false,
	} {
		if got := hosts.Admit(patterns, host); got != want {
			t.Errorf("Admit(%q) = %v, want %v", host, got, want)
		}
	}
	if !hosts.Admit(nil, "anything.test") {
		t.Error("without patterns a host is refused")
	}
}

// Lists follow the tenants, as the role of a worker reads them.
func TestListsFollowTheTenants(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	open := func(role postgres.Role) *postgres.DB {
		db, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: role, Name: "test", MaxConns: 2})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		return db
	}
	store, ours, theirs := tenant.NewStore(open(postgres.API), false), uuid.New(), uuid.New()
	if _, err := store.Create(t.Context(), ours, tenant.Spec{Name: "ours", AllowedHosts: []string{"*.example.com"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), theirs, tenant.Spec{Name: "theirs"}); err != nil {
		t.Fatal(err)
	}
	lists, err := hosts.Load(t.Context(), open(postgres.Engine))
	if err != nil {
		t.Fatal(err)
	}
	check := func(id uuid.UUID, host string, want bool) {
		t.Helper()
		if got := lists.Admit(id, host); got != want {
			t.Errorf("Admit(%s) = %v, want %v", host, got, want)
		}
	}
	check(ours, "a.example.com", true)
	check(ours, "other.test", false)
	check(theirs, "other.test", true)
	check(uuid.New(), "other.test", true)
	changed, err := store.Change(t.Context(), ours, tenant.Spec{Name: "ours", AllowedHosts: []string{"other.test"}}, 0)
	if err != nil || len(changed.AllowedHosts) != 1 {
		t.Fatal(changed, err)
	}
	if err := lists.Fresh(t.Context()); err != nil { // they were read a moment ago
		t.Fatal(err)
	}
	check(ours, "other.test", false)
	if err := lists.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(ours, "other.test", true)
	check(ours, "a.example.com", false)
}
