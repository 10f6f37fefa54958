package dispatch

import (
	"encoding/json"
	"fmt"
	"time"
)

// Outcome is the end of an attempt.
type Outcome struct {
	Succeeded bool `json:"succeeded"`
	// RetryMS is when the next attempt may start, in milliseconds; below zero
	// there is none.
	RetryMS int64 `json:"retryMs"`
	// DurationMS is how long the attempt took, in milliseconds with fractions.
	DurationMS float64 `json:"durationMs"`
	Result     string  `json:"result,omitempty"` // JSON; empty: none
	ErrorType  string  `json:"errorType,omitempty"`
	Message    string  `json:"errorMessage,omitempty"`
	Stack      string  `json:"errorStack,omitempty"`

	MemoryMB float32 `json:"memoryMb,omitempty"`
	CPUMS    int64   `json:"cpuMs,omitempty"`
}

// Took is how long the attempt took.
func (o Outcome) Took() time.Duration { return time.Duration(o.DurationMS * float64(time.Millisecond)) }

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
