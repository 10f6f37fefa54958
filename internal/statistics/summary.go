// Package statistics is what a tenant sees of what runs, waits and ran: its
// backlog, the fleet, and statistics of its executions.
//
// It owns these numbers, how statistics are put together from roll-ups and from
// what is not in them, and how percentiles are read off counted durations. Every
// one of them is of one tenant, but for which workers live. It refuses to keep
// any (package collect does) and to know what is well (package app does). Called
// by rest.
package statistics

import (
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/queue"
)

// Backlog is a tenant's executions in one lane that are not over.
type Backlog struct {
	Lane    queue.Lane
	Running int64
	Waiting int64         // that could start now
	Delayed int64         // that wait for their time: a retry's backoff, or spreading
	Oldest  time.Duration // how long the one that waits longest could have started
}

// Overview is a tenant's state at one time.
type Overview struct {
	Active, Paused, Inactive int64         // jobs
	Lag                      time.Duration // how long the oldest scheduled time waits to become an execution
	Backlogs                 []Backlog     // the most urgent lane first
}

// Member is a worker that lives.
type Member struct {
	ID           uuid.UUID
	Host         string
	Slots        int
	Running      int   // of all tenants, as its last heartbeat said
	Own          int64 // of the tenant that asks, now
	Types        []string
	StartedAt    time.Time
	HeartbeatAge time.Duration
}
