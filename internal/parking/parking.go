// Package parking keeps executions whose end the database refuses to store.
//
// It owns the status "parked": how an execution comes to it, what of its end is
// kept meanwhile, and the attempts to store that end after all. A parked
// execution runs no more and holds no slot and no key. It refuses to decide what
// the end is (package worker, or the sweeper for what lost its worker) and which
// errors are refusals (package postgres).
package parking

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// MaxLost is how many workers one execution may lose before it fails: one that
// kills its worker must not go round the fleet for ever, and three losses by
// chance are rare.
const MaxLost = 3

// Outcome is the end of an attempt.
type Outcome struct {
	Succeeded bool `json:"succeeded"`
	// RetryMS is when the next attempt may start, in milliseconds; below zero
	// there is none.
	RetryMS    int64   `json:"retryMs"`
	DurationMS float64 `json:"durationMs"`
	Result     string  `json:"result,omitempty"` // JSON; empty: none
	ErrorType  string  `json:"errorType,omitempty"`
	Message    string  `json:"errorMessage,omitempty"`
	Stack      string  `json:"errorStack,omitempty"`

	MemoryMB float32 `json:"memoryMb,omitempty"`
	CPUMS    int64   `json:"cpuMs,omitempty"`
}

// took is how long the attempt took.
func (o Outcome) took() time.Duration { return time.Duration(o.DurationMS * float64(time.Millisecond)) }

// Bare is the same end without the parts that may be why the database refused
// it, and a sentence that says so in their place.
func (o Outcome) Bare(why string) Outcome {
	bare := Outcome{Succeeded: o.Succeeded, RetryMS: o.RetryMS, DurationMS: max(0, o.DurationMS)}
	if o.Succeeded {
		if o.Result != "" {
			note, _ := json.Marshal(map[string]string{"omitted": "the result could not be stored: " + why}) // strings always marshal
			bare.Result = string(note)
		}
		return bare
	}
	bare.ErrorType = "SYSTEM_ERROR"
	bare.Message = fmt.Sprintf("the attempt failed (%.40s), and its error could not be stored: %s", plain(o.ErrorType), why)
	return bare
}

// plain keeps the capitals and underscores of which the names of errors are made.
func plain(name string) string {
	kept := make([]rune, 0, len(name))
	for _, r := range name {
		if r >= 'A' && r <= 'Z' || r == '_' {
			kept = append(kept, r)
		}
	}
	return string(kept)
}

// Ended is a finished attempt whose outcome the database refuses.
type Ended struct {
	ID      uuid.UUID
	Attempt int
	Token   uuid.UUID // of the lease that it ran under
	Outcome Outcome
	Why     string // what the database said
}

// Freed is a parked execution, and what it gave back.
type Freed struct {
	ID, Tenant uuid.UUID
	Key        string // the concurrency key that it held; empty: none
}

// Report is what a pass over the parked executions did.
type Report struct {
	Stored []Stored
	// Refused are those whose end was refused again.
	Refused []Refused
	Parked  int // how many there are now
}

// Stored is an execution that is parked no more.
type Stored struct {
	ID      uuid.UUID
	JobType string
	Status  string // completed, failed, cancelled, or retrying
	Ran     time.Duration
}

// Refused is an execution that stays parked.
type Refused struct {
	ID, Tenant, Job uuid.UUID
	Why             string
}

func reason(why string) string {
	return "the run has finished and its outcome could not be stored: " + why +
		". It is kept and tried again by itself; a request to cancel the execution has it tried at once"
}
