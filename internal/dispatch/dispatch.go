// Package dispatch owns the protocol by which an execution moves: claim,
// complete, release, reassign, poll, next in line, cancel and park.
//
// It is the only caller of the statements that do so, and holds the periods that
// they share. A statement moves executions only as far as their fence, the limits of
// their tenant, their concurrency slot and their concurrency key allow. It refuses to
// decide when something is due, what an outcome is, how often to poll and whom to hint.
package dispatch

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// The periods that the statements state too; a test compares both.
const (
	// HintPatience is how long a hint may stay unused before its execution is put in the
	// pool.
	HintPatience = 5 * time.Second
	// DeadlineMargin is how long after its timeout the deadline of a run is. The
	// sweeper reassigns a run that passed its deadline.
	DeadlineMargin = 5 * time.Second
	// SweepAhead is the most that sweep_at of a running execution may lie ahead, so
	// that a search for running executions reads no further.
	SweepAhead = 5 * time.Second
	// cancelSkew is by how much clocks may differ: an execution whose time is so long
	// before that of an order to cancel may have been made after it.
	cancelSkew = 5 * time.Second
	// backloggedFor is how long after a claim left something behind, because of its
	// tenant's limits, the ends of runs ask who is next.
	backloggedFor = 2 * time.Minute
	// parkedMin and parkedMax bound how long a parked execution is left alone.
	parkedMin = time.Second
	parkedMax = 10 * time.Minute
	// priorityWorth is how many seconds of waiting one step of priority counts for.
	priorityWorth = 10 * time.Second
)

const (
	// maxLost is how many workers one execution may lose before it fails: one that
	// kills its worker must not go round the fleet for ever, and three losses by
	// chance are rare.
	maxLost = 3
	// SweepBatch is how many executions one statement of a sweep takes.
	SweepBatch = 1000
	// nextMost is how many executions of a tenant are named as the next. nextWindow is how many more of one
	// type and priority are read of those that wait for a slot or key too.
	nextMost   = 64
	nextWindow = 32
)

// Claimed is an attempt that the caller's worker runs.
type Claimed struct {
	ID, Tenant, Job uuid.UUID
	Version         int
	ScheduledAt     time.Time
	AvailableAt     time.Time // of a first scheduled attempt that nothing held back: ScheduledAt
	Trigger         string
	JobType         string
	Priority        int
	Parameters      json.RawMessage
	Attempt         int
	MaxAttempts     int
	Token           uuid.UUID // of the lease that it runs under
	Timeout         time.Duration
	StartedAt       time.Time // when the first attempt was claimed
	ClaimedAt       time.Time // when this one was; both by the database's clock
}

// Run is an execution that the database says a worker runs.
type Run struct {
	ID, Token  uuid.UUID
	Cancelling bool // somebody asked for its end
}

// Candidate is an execution that waits and may start.
type Candidate struct{ ID, Tenant uuid.UUID }

// Position is where a poll for executions with a free slot or key ended; zero where
// there were no more.
type Position struct {
	job, tenant uuid.UUID
	key         string
}

// Waiting is an execution that waits and that a hint may name. Next alone says its type.
type Waiting struct {
	ID       uuid.UUID
	Priority int
	JobType  string
}

// Ended is an attempt with its outcome.
type Ended struct {
	ID      uuid.UUID
	Attempt int
	Token   uuid.UUID // of the lease that it ran under
	Outcome Outcome
}

// Verdict is what became of an accepted outcome.
type Verdict struct {
	ID      uuid.UUID
	Status  string // completed, failed, cancelled, retrying or parked
	JobType string
	Next    []uuid.UUID // executions of the same job that may start now
	Freed   Freed
}

// Freed says for whom room was made. Any field may be empty.
type Freed struct {
	Tenant    uuid.UUID // whose limits left something behind lately
	KeyTenant uuid.UUID // whose key it is
	Key       string
}

// Found is an execution that a sweep concerns.
type Found struct{ ID, Tenant, Job uuid.UUID }

// String names it for the log.
func (f Found) String() string {
	return fmt.Sprintf("execution %s (job %s, tenant %s)", f.ID, f.Job, f.Tenant)
}

// Lost is an execution that was taken from a worker.
type Lost struct {
	Waiting
	Tenant     uuid.UUID
	JobType    string
	Verdict    string // pending, failed, cancelled or parked
	WorkerLost bool   // otherwise its deadline passed
	Freed      Freed
}
