// Package parking stores the ends of parked executions after all.
//
// It owns the passes over executions whose end the database refuses to store: when
// and how each is tried again. A parked execution runs no more and holds no slot and
// no key. It refuses to decide what the end is (package worker, or the sweeper for an
// execution that lost its worker), how an execution is parked (package dispatch) and
// which errors are refusals (package postgres).
package parking

import (
	"time"

	"github.com/google/uuid"
)

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
