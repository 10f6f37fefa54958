package identity

import (
	"slices"
	"strings"
)

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

// ladder is the roles in order: each may what those before it may.
var ladder = []Role{Viewer, Operator, Developer, Admin, PlatformAdmin}

// Known reports whether the role is one of ours.
func (r Role) Known() bool { return slices.Contains(ladder, r) }

// RoleNames lists our roles, from the one that may least, for a person.
func RoleNames() string {
	names := make([]string, len(ladder))
	for i, r := range ladder {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}

// least is the one table of permissions: the first role of the ladder that has
// each. Operations that are not listed are refused to all.
var least = map[Permission]Role{
	"jobs:read":           Viewer,
	"executions:read":     Viewer,
	"workers:read":        Viewer,
	"monitoring:read":     Viewer,
	"monitors:read":       Viewer,
	"jobs:trigger":        Operator,
	"jobs:control":        Operator,
	"executions:control":  Operator,
	"jobs:write":          Developer,
	"functions:read":      Developer,
	"functions:write":     Developer,
	"workers:run":         Developer,
	"secrets:read":        Developer,
	"secrets:use":         Developer,
	"secrets:write":       Developer,
	"notifications:read":  Developer,
	"notifications:write": Developer,
	"monitors:write":      Developer,
	"keys:read":           Admin,
	"keys:write":          Admin,
	"audit:read":          Admin,
	"tenant:read":         Admin,
	"tenants:read":        PlatformAdmin,
	"tenants:write":       PlatformAdmin,
	"settings:read":       PlatformAdmin,
	"settings:write":      PlatformAdmin,
}

// Known reports whether any role grants the permission. An operation that
// needs one which nobody has is a slip of the contract.
func (p Permission) Known() bool {
	_, ok := least[p]
	return ok
}

// OfPlatform reports whether only platform administrators have the permission.
func (p Permission) OfPlatform() bool { return least[p] == PlatformAdmin }

// May reports whether one of the principal's roles, or its API key, grants the
// permission.
func (p Principal) May(needed Permission) bool {
	if slices.Contains(p.Scopes, needed) {
		return true
	}
	role, ok := least[needed]
	return ok && slices.ContainsFunc(p.Roles, role.within)
}

// within reports whether another role stands at or above this one. A role that
// is not ours stands nowhere.
func (r Role) within(other Role) bool {
	return slices.Index(ladder, other) >= slices.Index(ladder, r)
}
