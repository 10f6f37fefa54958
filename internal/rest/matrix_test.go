package rest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/identity"
	"github.com/scheduler-service/scheduler/internal/rest/contract"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// caller is somebody who asks, and who they are as far as a good token says.
type caller struct {
	name   string
	who    *identity.Principal // nil: no good token
	header map[string]string
}

// callers are two tenants' people, programs and other services.
func (b *bundle) callers(t *testing.T) []caller {
	t.Helper()
	person := func(name string, of tenant.Actor, role identity.Role) caller {
		return caller{name, &identity.Principal{Actor: of, Roles: []identity.Role{role}}, map[string]string{"Authorization": "Bearer " + b.token(t, of, role)}}
	}
	past, err := identity.Mint(secret, identity.Claims{
		Subject: "ada", Tenant: b.ours.TenantID, Roles: []identity.Role{identity.PlatformAdmin}, Issuer: issuer, Audience: "scheduler",
	}, b.now.Add(-2*time.Hour), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	scopes := []identity.Permission{"jobs:read", "jobs:trigger", "keys:read"}
	_, key := b.makeKey(t, b.ours, scopes...)
	return []caller{
		person("A-viewer", b.ours, identity.Viewer),
		person("A-operator", b.ours, identity.Operator),
		person("A-developer", b.ours, identity.Developer),
		person("A-admin", b.ours, identity.Admin),
		person("B-admin", b.theirs, identity.Admin),
		person("A-platform-admin", b.ours, identity.PlatformAdmin),
		{"no token", nil, nil},
		{"expired", nil, map[string]string{"Authorization": "Bearer " + past}},
		{"A-key", &identity.Principal{Actor: b.ours, Scopes: scopes}, map[string]string{"Authorization": "Bearer " + key}},
		{"service", nil, map[string]string{"X-Service-Token": serviceToken, "X-Tenant-ID": b.ours.TenantID.String()}},
	}
}

// expected is the status that a caller must get, from the contract and the
// table of roles alone; 0 stands for success.
func expected(operation *contract.Operation, c caller, foreign bool) int {
	switch {
	case needsNoCaller(operation):
		return 0
	case operation.Permission == contract.Service:
		if c.name == "service" {
			return 0
		}
		return http.StatusUnauthorized
	case c.who == nil:
		return http.StatusUnauthorized
	case !c.who.May(identity.Permission(operation.Permission)):
		return http.StatusForbidden
	case foreign:
		return http.StatusNotFound
	default:
		return 0
	}
}

// Every operation of the contract for every kind of caller.
func TestTheMatrixOfOperationsAndCallers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if err := b.deps.Tenants.Admit(t.Context(), b.theirs.TenantID); err != nil {
		t.Fatal(err)
	}
	cells, callers := 0, b.callers(t) // once: a tenant has 100 keys at most
	for name, operation := range operations(t) {
		for _, c := range callers {
			sample, id := b.sampleOf(t, operation, b.ours)
			ofTenant := !strings.HasPrefix(operation.Permission, "tenants:")
			foreign := ofTenant && strings.Contains(sample.path, id.String()) && c.who != nil && c.who.Actor.TenantID != b.ours.TenantID
			header := map[string]string{}
			for _, part := range []map[string]string{sample.header, c.header} {
				for key, value := range part {
					header[key] = value
				}
			}
			sample.header = header
			got := b.do(t, sample)
			cells++
			want := expected(operation, c, foreign)
			if want == 0 && operation.ID == "createDeadLetterReplay" && c.who.Actor.TenantID != b.ours.TenantID {
				want = http.StatusConflict // there is nothing to replay
			}
			if want == 0 && got.status >= 300 || want != 0 && got.status != want {
				t.Errorf("%s for %s: %d %.200s, want %d", name, c.name, got.status, got.body, want)
			}
			if want == http.StatusNotFound {
				unknown, nobody := sample, uuid.NewString()
				unknown.path = strings.Replace(sample.path, id.String(), nobody, 1)
				z := b.do(t, unknown)
				z.body = strings.ReplaceAll(z.body, nobody, id.String())
				if diff := cmp.Diff(timeless(t, got.body), timeless(t, z.body)); diff != "" || z.status != got.status {
					t.Errorf("%s for %s: another tenant's thing is not answered as none (-another's +none):\n%s", name, c.name, diff)
				}
			}
		}
	}
	t.Logf("%d cells", cells)
}

// timeless is an answer without its timestamp.
func timeless(t *testing.T, body string) map[string]any {
	t.Helper()
	var answer map[string]any
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatal(err)
	}
	delete(answer, "timestamp")
	return answer
}
