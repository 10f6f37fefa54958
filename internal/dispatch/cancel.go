package dispatch

import (
	"time"

	"github.com/google/uuid"
)

// CancelAtOnce is how many executions are cancelled in the transaction that asks for it.
// Of jobs with more, it leaves orders, which every claim obeys at once, and maintenance
// cancels them in pieces.
const CancelAtOnce = 1000

// Cancellation is what somebody asked to be cancelled: everything of a job.
type Cancellation struct {
	Tenant, Job    uuid.UUID
	At             time.Time
	Reason, By     string
	SpareBackfills bool // executions that backfills made go on
}

// Order is what is cancelled in pieces: everything that a job has up to a
// generation, or everything of a tenant that is suspended.
type Order struct {
	Tenant, Job    uuid.UUID // Job: nil for everything of the tenant
	Generation     int32
	SpareBackfills bool
	Reason, By     string
}

// Place is one in the order in which the pieces of an Order follow one another.
type Place struct {
	At time.Time
	ID uuid.UUID
}
