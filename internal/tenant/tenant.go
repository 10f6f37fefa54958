// Package tenant is the customer that owns jobs.
//
// It owns who acts for a tenant, and whether a tenant may act at all. It
// refuses to verify tokens (package identity) and to count anything. Called by
// rest, job and execution.
package tenant

import "github.com/google/uuid"

// Actor is somebody who acts for a tenant.
type Actor struct {
	TenantID uuid.UUID
	Subject  string // the user or the service, as the token names it; for the record
}
