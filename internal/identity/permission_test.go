package identity_test

import (
	"testing"

	"github.com/scheduler-service/scheduler/internal/identity"
)

func TestRolesAndPermissions(t *testing.T) {
	t.Parallel()
	permissions := []identity.Permission{"jobs:read", "executions:read", "monitoring:read", "monitors:read", "jobs:trigger", "jobs:control", "executions:control", "jobs:write", "secrets:read", "secrets:use", "secrets:write", "notifications:read", "notifications:write", "monitors:write", "keys:read", "keys:write", "audit:read", "tenant:read", "tenants:read", "tenants:write", "settings:read", "settings:write"}
	for _, test := range []struct {
		name  string
		roles []identity.Role
		may   int // the first so many of permissions
	}{
		{"no role", nil, 0},
		{"a role of another service", []identity.Role{"superuser", "ADMIN", "", "root"}, 0},
		{"viewer", []identity.Role{identity.Viewer}, 4},
		{"operator", []identity.Role{identity.Operator}, 7},
		{"developer", []identity.Role{identity.Developer}, 14},
		{"admin", []identity.Role{identity.Admin}, 18},
		{"platform-admin", []identity.Role{identity.PlatformAdmin}, 22},
		{"the strongest counts", []identity.Role{"other", identity.Viewer, identity.Operator}, 7},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for i, permission := range permissions {
				if got := (identity.Principal{Roles: test.roles}).May(permission); got != (i < test.may) {
					t.Errorf("May(%s) = %v", permission, got)
				}
			}
		})
	}
}

func TestNobodyMayWhatIsUnknown(t *testing.T) {
	t.Parallel()
	for _, permission := range []identity.Permission{"", "public", "jobs:*", "jobs", "JOBS:READ"} {
		if permission.Known() {
			t.Errorf("%q is known", permission)
		}
		all := identity.Principal{Roles: []identity.Role{identity.Viewer, identity.Admin, identity.PlatformAdmin}}
		if all.May(permission) {
			t.Errorf("May(%q)", permission)
		}
	}
}

// An API key may do what its scopes say, whatever roles would.
func TestScopes(t *testing.T) {
	t.Parallel()
	key := identity.Principal{Scopes: []identity.Permission{"jobs:read"}}
	if !key.May("jobs:read") || key.May("jobs:write") || key.May("executions:read") || key.May("") {
		t.Error("a key may something else than its scopes")
	}
}
