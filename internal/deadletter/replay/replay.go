// Package replay runs many dead letters again, at a bounded rate.
//
// It owns what somebody asks for (which dead letters, how fast, whether one has to complete
// first), what a tenant sees of it, and the pass that advances it. It refuses to run anything:
// package execution makes each execution, as for a retry that a person asks for.
package replay

import (
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/deadletter"
)

const (
	// MaxRate and defaultRate are replays a minute. The pass takes some 5 ms for each, so
	// that ten replays at full rate take some seconds of every ten.
	MaxRate     = 3000
	defaultRate = 60
	// maxActive is how many replays of a tenant may be under way.
	maxActive = 10
)

// Status is where a replay stands.
type Status string

// The states.
const (
	Canary    Status = "canary"    // the first execution has to complete before others are made
	Running   Status = "running"   // executions are still to be made
	Completed Status = "completed" // every dead letter was replayed or refused
	Halted    Status = "halted"    // the canary did not complete: the others stay dead letters
	Cancelled Status = "cancelled" // somebody cancelled it
)

// Request is what somebody asks for.
type Request struct {
	Filter        deadletter.Filter
	RatePerMinute int // 1 to MaxRate; 0: 60
	NoCanary      bool
}

// Fault is a dead letter that could not be replayed, and why.
type Fault struct {
	ExecutionID uuid.UUID `json:"executionId"`
	Code        string    `json:"code"`
	Message     string    `json:"message"`
}

// Replay is a stored request and what became of it.
type Replay struct {
	ID            uuid.UUID
	Filter        deadletter.Filter
	RatePerMinute int
	Status        Status
	Reason        string     // why it was halted, or why one that goes on waits
	CanaryID      *uuid.UUID // the first execution that it made
	Total         int        // dead letters that fitted when it was made
	Replayed      int
	Refused       int
	Faults        []Fault // of the first that were refused
	RequestedBy   string
	CreatedAt     time.Time
	FinishedAt    *time.Time
}

// Position is a place in a list of replays, newest first.
type Position struct {
	CreatedAt time.Time
	ID        uuid.UUID
}
