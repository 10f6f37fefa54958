// Package tenant is the customer that owns jobs.
//
// It owns who acts for a tenant, whether a tenant may act at all, from where,
// and how much it may have; and what platform administrators do with tenants.
// It refuses to verify tokens (package identity), to count requests (package
// ratelimit) and to count what others own: they ask it for the bounds.
package tenant

import (
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Actor is somebody who acts for a tenant.
type Actor struct {
	TenantID uuid.UUID
	Subject  string // the user or the service, as the token names it; for the record
	// NoSecrets says that this actor may not cause a secret to be sent to a new place
	// (package secret, MayUse).
	NoSecrets bool
}

// Status says whether a tenant may act.
type Status string

// The states of a tenant.
const (
	Active    Status = "active"
	Suspended Status = "suspended" // nothing of it runs, and its calls are refused
	Deleting  Status = "deleting"  // likewise, and everything of it is being removed
	Deleted   Status = "deleted"   // its id is all that is left
)

// Limits is how much a tenant may have. A nil one is that of the
// configuration.
type Limits struct {
	MaxJobs             *int
	MaxRunning          *int           // executions at once, on all workers together
	MaxRunningByType    map[string]int // of a job type, beside MaxRunning
	MaxExecutionsPerDay *int           // days are those of UTC
	RequestsPerSecond   *int
	MinIntervalSeconds  *int // the smallest distance between two runs of a schedule
	MaxPayloadBytes     *int // of the body of a request
	MaxWaiting          *int // executions that wait, of the tenant
	MaxWaitingPerJob    *int // and of one job
	MaxCalendars        *int
	MaxSecrets          *int
	MaxAPIKeys          *int
	// JobTypes are those that definitions may have; nil: all that need no
	// explicit permission.
	JobTypes []string
}

// named are the job types that a tenant has only if its JobTypes name them.
var named = []string{"command"} // constant

// Allows says whether definitions may have a job type.
func (l Limits) Allows(jobType string) bool {
	if l.JobTypes == nil {
		return !slices.Contains(named, jobType)
	}
	return slices.Contains(l.JobTypes, jobType)
}

// Spec is what a platform administrator says of a tenant.
type Spec struct {
	Name           string
	Limits         Limits
	AllowedOrigins []string       // whose pages may call for it, of those that the installation admits; none: all of those
	AllowedIPs     []netip.Prefix // networks that its API calls may come from; none: any
	AllowedHosts   []string       // patterns of the hosts that its jobs may call (package hosts); none: any
}

// Tenant is a stored one.
type Tenant struct {
	Spec
	ID                   uuid.UUID
	Version              int // counts the changes of Spec, from 1
	Status               Status
	StatusReason         string
	CreatedAt, UpdatedAt time.Time
}

// Usage is how much of it a tenant uses.
type Usage struct {
	Jobs, Running, Waiting, Calendars, Secrets, APIKeys int
	Cancelling                                          int // jobs whose executions are being cancelled in pieces
	// ExecutionsToday counts those of a tenant with a bound on them.
	ExecutionsToday int
}

// Admits says whether the tenant's API calls may come from an address. An
// unknown address is refused where the tenant lists some.
func (t Tenant) Admits(from netip.Addr) bool {
	return len(t.AllowedIPs) == 0 || from.IsValid() && slices.ContainsFunc(t.AllowedIPs, func(p netip.Prefix) bool { return p.Contains(from.Unmap()) })
}

// WithDefaults fills in what the configuration says, zero being no bound.
func (l Limits) WithDefaults(d Limits) Limits {
	for _, pair := range []struct{ into, from **int }{
		{&l.MaxJobs, &d.MaxJobs},
		{&l.MaxRunning, &d.MaxRunning},
		{&l.MaxExecutionsPerDay, &d.MaxExecutionsPerDay},
		{&l.RequestsPerSecond, &d.RequestsPerSecond},
		{&l.MinIntervalSeconds, &d.MinIntervalSeconds},
		{&l.MaxPayloadBytes, &d.MaxPayloadBytes},
		{&l.MaxWaiting, &d.MaxWaiting},
		{&l.MaxWaitingPerJob, &d.MaxWaitingPerJob},
		{&l.MaxCalendars, &d.MaxCalendars},
		{&l.MaxSecrets, &d.MaxSecrets},
		{&l.MaxAPIKeys, &d.MaxAPIKeys},
	} {
		if *pair.into == nil {
			*pair.into = *pair.from
		}
	}
	return l
}
