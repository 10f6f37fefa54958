// Package deadletter is the executions that failed for good and that nobody dealt with yet.
//
// It owns which failures are alike (the fingerprint), how many a tenant may keep, and the
// store through which a tenant reads and discards them. It refuses to make dead letters, which
// is the pass of package collect, and to run anything again, which package execution does.
package deadletter

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
)

const (
	// MaxPerTenant is how many dead letters of a tenant are kept; the oldest beyond it are
	// dropped, and stay in the history.
	MaxPerTenant = 100_000
	// DiscardMost is how many one call discards.
	DiscardMost = 10_000
)

// Letter is one dead letter, by the id of its execution.
type Letter struct {
	ExecutionID uuid.UUID
	JobID       uuid.UUID
	JobName     string // as it is now
	ErrorType   string
	Message     string // its beginning
	Fingerprint string
	FailedAt    time.Time
	ScheduledAt time.Time
}

// Group is the dead letters with one fingerprint.
type Group struct {
	Fingerprint string
	Count       int64
	First, Last time.Time // when the first and the last of them failed
	Jobs        int64     // how many jobs they are of
	JobIDs      []uuid.UUID
	Newest      uuid.UUID // the execution whose error the group shows
	ErrorType   string
	Message     string
}

// Filter selects dead letters; all that is given has to fit. The tags are the contract's
// names of the conditions.
type Filter struct {
	JobID       *uuid.UUID `api:"jobId" json:"jobId,omitempty"`
	ErrorTypes  []string   `api:"errorType" json:"errorType,omitempty"`
	Fingerprint string     `api:"fingerprint" json:"fingerprint,omitempty"`
	From        *time.Time `api:"from" json:"from,omitempty"` // of the failure, From included, To excluded
	To          *time.Time `api:"to" json:"to,omitempty"`
}

// Position is a place in a list, newest first.
type Position struct {
	FailedAt time.Time
	ID       uuid.UUID
}

// The parts of a message that differ between failures of one cause, longest forms first.
var (
	uuids  = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`)
	quoted = regexp.MustCompile("\"[^\"]*\"|`[^`]*`|\\B'[^']*'")
	hexes  = regexp.MustCompile(`\b(0x)?[0-9a-fA-F]{8,}\b`)
	digits = regexp.MustCompile(`[0-9]+([.,:][0-9]+)*`)
	spaces = regexp.MustCompile(`\s+`)
)

// Fingerprint is the same for errors of one type whose messages differ only in ids,
// numbers, quoted text and spaces: 16 hex digits.
func Fingerprint(errorType, message string) string {
	for _, part := range []*regexp.Regexp{uuids, quoted, hexes, digits} {
		message = part.ReplaceAllLiteralString(message, "*")
	}
	message = strings.TrimSpace(spaces.ReplaceAllLiteralString(message, " "))
	sum := sha256.Sum256([]byte(errorType + "\n" + message))
	return hex.EncodeToString(sum[:8])
}
