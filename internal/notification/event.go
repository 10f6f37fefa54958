package notification

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// Test is the type of the event that a tenant asks for to try a notification.
const Test = "notification.test"

// Event is something that happened, as it is told and stored. Fields that do not belong
// to its type are absent.
type Event struct {
	ID           uuid.UUID  `json:"id"` // the same for the same event, in every message
	Type         string     `json:"type"`
	At           time.Time  `json:"at"`
	JobID        *uuid.UUID `json:"jobId,omitempty"`
	JobName      string     `json:"jobName,omitempty"`
	MonitorID    *uuid.UUID `json:"monitorId,omitempty"`
	MonitorName  string     `json:"monitorName,omitempty"`
	ExecutionID  *uuid.UUID `json:"executionId,omitempty"`
	ScheduledAt  *time.Time `json:"scheduledAt,omitempty"`
	Attempt      int        `json:"attempt,omitempty"`
	DurationMS   int64      `json:"durationMs,omitempty"`
	UsualMS      int64      `json:"usualDurationMs,omitempty"`
	ErrorType    string     `json:"errorType,omitempty"`
	ErrorMessage string     `json:"errorMessage,omitempty"`
	Failures     int64      `json:"failures,omitempty"`
	FailingSince *time.Time `json:"failingSince,omitempty"`
	ExpectedBy   *time.Time `json:"expectedBy,omitempty"`
	MissedCount  int64      `json:"missedCount,omitempty"`
	MissedUntil  *time.Time `json:"missedUntil,omitempty"`
	Reason       string     `json:"reason,omitempty"`
}

// Delivery is a message, and what became of it.
type Delivery struct {
	ID             uuid.UUID
	NotificationID uuid.UUID
	Status         string // pending, delivered or failed
	Count          int    // of events
	Events         json.RawMessage
	Attempts       int
	CreatedAt      time.Time
	NextAttemptAt  *time.Time // nil: it is finished
	AttemptedAt    *time.Time
	FinishedAt     *time.Time
	ResponseStatus *int
	Excerpt        string // the beginning of the last answer
	Error          string
}
