// Package job is what a tenant asked for: what to run, when, and how to retry.
//
// It owns the definition of a job, its validation, its retry and misfire rules
// as pure decisions, its states and versions, and the store through which a
// tenant keeps jobs. It refuses to know when instants fall (package schedule),
// how a job type runs (package executor) and who may ask (package identity).
// Called by rest, promoter and worker.
package job

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Status is whether a job's schedule fires.
type Status string

// The states of a job.
const (
	Active   Status = "active"   // its due instants become executions
	Paused   Status = "paused"   // somebody paused it; running ones go on
	Inactive Status = "inactive" // its schedule is over, or it was stopped
)

// Spec is the definition of a job: all that a tenant may set. It is what a
// job version stores, so its JSON names are those of the API.
type Spec struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Tags        []string `json:"tags,omitempty"`

	// At most one of the three; none means that only a trigger runs it.
	CronExpression string     `json:"cronExpression,omitempty"`
	Interval       Duration   `json:"interval,omitempty"`
	RunAt          *time.Time `json:"runAt,omitempty"`
	Timezone       string     `json:"timezone,omitempty"` // IANA name; empty means UTC
	StartDate      *time.Time `json:"startDate,omitempty"`
	EndDate        *time.Time `json:"endDate,omitempty"`
	MaxExecutions  int64      `json:"maxExecutions,omitempty"` // then the job becomes inactive; 0 is no bound
	JitterSeconds  int        `json:"jitterSeconds,omitempty"` // spreads each instant over so many seconds
	DSTGap         string     `json:"dstGap,omitempty"`        // "shift" or "skip"
	DSTOverlap     string     `json:"dstOverlap,omitempty"`    // "first", "last" or "both"
	Calendars      []Calendar `json:"calendars,omitempty"`

	Type     string          `json:"jobType"` // "http" or "function"
	Config   json.RawMessage `json:"config"`
	Retry    Retry           `json:"retryConfig"`
	Timeout  int             `json:"timeout"` // seconds for one attempt
	Priority int             `json:"priority,omitempty"`

	MaxConcurrent        int     `json:"maxConcurrent"`                  // runs of this job at once
	Overlap              Overlap `json:"overlapPolicy"`                  // of a due instant while so many are active
	ConcurrencyKey       string  `json:"concurrencyKey,omitempty"`       // template, see package keytemplate; empty: none
	OverlapQueueLimit    int     `json:"overlapQueueLimit"`              // how many may wait under queue_all
	Misfire              Misfire `json:"misfire"`                        // of instants that were not promoted in time
	DisableAfterFailures int     `json:"disableAfterFailures,omitempty"` // failed executions in a row; 0 is never
}

// Calendar names a calendar of the tenant that a job is bound by.
type Calendar struct {
	ID   uuid.UUID `json:"calendarId"`
	Mode string    `json:"mode"` // "exclude": not on its days; "include": only on them
}

// Job is a stored definition and what became of it.
type Job struct {
	Spec

	ID              uuid.UUID  `json:"id"`
	TenantID        uuid.UUID  `json:"tenantId"`
	Version         int        `json:"version"`
	CreatedBy       string     `json:"createdBy"`
	CreatedAt       time.Time  `json:"createdAt"`
	UpdatedAt       time.Time  `json:"updatedAt"`
	Status          Status     `json:"status"`
	StatusReason    string     `json:"statusReason,omitempty"`
	StatusBy        string     `json:"statusBy,omitempty"` // who set it; "system" for an automatic stop
	StatusAt        time.Time  `json:"statusAt"`
	PausedUntil     *time.Time `json:"pausedUntil,omitempty"`     // a pause ends by itself then
	AnchorAt        time.Time  `json:"anchorAt"`                  // where an interval counts from
	NextExecutionAt *time.Time `json:"nextExecutionAt,omitempty"` // of a paused job: the instant that the pause holds back
	LastExecutionAt *time.Time `json:"lastExecutionAt,omitempty"`
	ExecutionCount  int64      `json:"executionCount"`
	AuditedAt       *time.Time `json:"auditedAt,omitempty"`
	AuditDifference *int64     `json:"auditDifference,omitempty"` // rows beyond (+) or short of (-) due instants
	// Cancelling is how far a stop of many executions is; nil where nothing is
	// being cancelled, and in lists.
	Cancelling *cancelling `json:"-"`
}

// cancelling is how far the cancelling of a job's executions is.
type cancelling struct {
	RequestedAt time.Time
	Remaining   int // of at most 10,000 that are counted
}

// Upcoming is when the job is due next; nil while its schedule does not fire.
func (j Job) Upcoming() *time.Time {
	if j.Status != Active {
		return nil
	}
	return j.NextExecutionAt
}
