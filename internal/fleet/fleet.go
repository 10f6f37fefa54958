// Package fleet tracks which workers are alive.
//
// It owns the lease of a worker's incarnation: registering one, renewing it
// while it stands, and marking the dead. It refuses to know what a worker runs;
// that is on the executions themselves.
package fleet

import (
	"time"

	"github.com/google/uuid"
)

// Member is one incarnation of a worker. A worker whose lease ran out takes a
// new one, so an id never lives twice.
type Member struct {
	ID    uuid.UUID
	Host  string
	PID   int
	Slots int           // how many executions it runs at once
	Types []string      // the job types that it runs
	Lease time.Duration // how long it lives without a heartbeat
}

// DeadWorker is a member that was marked dead.
type DeadWorker struct {
	ID   uuid.UUID
	Host string
	PID  int
}

// The gauges of the whole service, which the promoter takes every few seconds
// for those who may not count across tenants themselves.
const (
	GaugeRunning = "running_executions"
	GaugeWaiting = "waiting_executions"
	// GaugeCounted is when the others were counted last, and how many milliseconds
	// that took.
	GaugeCounted = "counted"
	// GaugeActiveJobs is how many jobs are active, counted each half minute.
	GaugeActiveJobs = "active_jobs"
	// GaugeDeadLetters is how many dead letters wait, counted each minute.
	GaugeDeadLetters = "dead_letters"
	// How many objectives of tenants burn their budgets fast or slowly, and have none left,
	// counted each half minute.
	GaugeFastBurn = "objectives_fast_burn"
	GaugeSlowBurn = "objectives_slow_burn"
	GaugeNoBudget = "objectives_no_budget"
	// GaugeMonitors begins the names of how many monitors have each of MonitorStatuses, counted
	// each half minute, and before hold_seconds that of how long alerts of them are held back.
	GaugeMonitors = "monitors_"
)

// MonitorStatuses are the statuses by which monitors are counted.
var MonitorStatuses = []string{"new", "ok", "late", "running", "down", "paused"}

// Gauges are numbers of the whole service, as they were counted last.
type Gauges struct {
	Values map[string]int64
	// Counted is how long ago a promoter counted; negative: none ever did.
	Counted time.Duration
}
