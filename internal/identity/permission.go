package identity

import "slices"

// Permission is what one operation of the contract needs, as its x-permission
// names it.
type Permission string

// Role is what a token says its bearer is. A role that is not one of these
// grants nothing: the auth service may name roles of other services too.
type Role string

// The roles, from the one that may least.
const (
	Viewer        Role = "viewer"
	Operator      Role = "operator"
	Developer     Role = "developer"
	Admin         Role = "admin"
	PlatformAdmin Role = "platform-admin"
)

// grants is the one table from role to permissions. What does not stand here
// is not allowed.
var grants = map[Role][]Permission{
	Viewer:        {"jobs:read", "executions:read"},
	Operator:      {"jobs:read", "executions:read", "jobs:trigger", "jobs:control", "executions:control"},
	Developer:     {"jobs:read", "executions:read", "jobs:trigger", "jobs:control", "executions:control", "jobs:write"},
	Admin:         {"jobs:read", "executions:read", "jobs:trigger", "jobs:control", "executions:control", "jobs:write"},
	PlatformAdmin: {"jobs:read", "executions:read", "jobs:trigger", "jobs:control", "executions:control", "jobs:write"},
}

// Known reports whether any role grants the permission. An operation that
// needs one which nobody has is a slip of the contract.
func (p Permission) Known() bool {
	for _, granted := range grants {
		if slices.Contains(granted, p) {
			return true
		}
	}
	return false
}

// May reports whether one of the principal's roles grants the permission.
func (p Principal) May(needed Permission) bool {
	for _, role := range p.Roles {
		if slices.Contains(grants[role], needed) {
			return true
		}
	}
	return false
}
