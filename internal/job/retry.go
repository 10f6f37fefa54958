package job

import (
	"encoding/json"
	"slices"
	"sync/atomic"
	"time"
)

// Retry is when a failed attempt is made again.
type Retry struct {
	// MaxRetries is how many attempts follow the first, 0 to 100.
	MaxRetries int `json:"maxRetries"`
	// DelayMS is the distance to the first retry in milliseconds, 0 to one day.
	DelayMS int64 `json:"retryDelayMs"`
	// Exponential doubles the distance with each further retry.
	Exponential bool `json:"exponentialBackoff"`
	// MaxDelayMS caps the distance, jitter included, in milliseconds, up to one day.
	MaxDelayMS int64 `json:"maxRetryDelayMs"`
	// OnErrorTypes are the error types that are retried.
	OnErrorTypes []string `json:"retryOnErrorTypes"`
	// Jitter lengthens each distance by a random share of itself, 0 to 1, so
	// that what failed together does not come back together.
	Jitter float64 `json:"jitter"`
}

// DefaultRetry is the rule of a job that names none: three retries, after one,
// two and four seconds, for what is not the job's own fault.
func DefaultRetry() Retry {
	return Retry{
		MaxRetries: 3, DelayMS: 1000, Exponential: true, MaxDelayMS: 60_000, Jitter: 0.1,
		OnErrorTypes: []string{"TIMEOUT", "NETWORK_ERROR", "SYSTEM_ERROR"},
	}
}

// lastRead is the rule that was read last from a row: nearly all jobs have the same one, and
// decoding it took a tenth of a list's time.
var lastRead atomic.Pointer[storedRetry]

// storedRetry is a rule with the text that a row has it as.
type storedRetry struct {
	text string
	rule Retry
}

// ReadStored reads a rule from a row's text. Where the text is no rule it is an error, and r
// stays as it was.
func (r *Retry) ReadStored(text []byte) error {
	if last := lastRead.Load(); last != nil && last.text == string(text) {
		*r = last.rule
		r.OnErrorTypes = slices.Clone(r.OnErrorTypes)
		return nil
	}
	var rule Retry
	if err := json.Unmarshal(text, &rule); err != nil {
		return err //nolint:wrapcheck // the caller names the column
	}
	kept := storedRetry{text: string(text), rule: rule}
	kept.rule.OnErrorTypes = slices.Clone(rule.OnErrorTypes)
	lastRead.Store(&kept)
	*r = rule
	return nil
}

// attempts is how many there are at most, the first one included.
func (r Retry) attempts() int32 { return int32(r.MaxRetries) + 1 }

// Retries reports whether an error of this type is retried.
func (r Retry) Retries(errorType string) bool { return slices.Contains(r.OnErrorTypes, errorType) }

// Next is the distance to the attempt after one that failed, and whether there is one.
// again, where it is not nil, overrides what the rule says of the error's type. The
// random number is from [0, 1).
func (r Retry) Next(attempt, maxAttempts int, errorType string, again *bool, random float64) (time.Duration, bool) {
	retries := r.Retries(errorType)
	if again != nil {
		retries = *again
	}
	if !retries || attempt >= maxAttempts {
		return 0, false
	}
	return r.Backoff(attempt, random), true
}

// Backoff is the distance between the end of an attempt (counted from 1) and
// the next one. The random number is from [0, 1). The distance is never
// shorter than the rule says without jitter and never longer than the cap.
func (r Retry) Backoff(attempt int, random float64) time.Duration {
	limit := float64(r.MaxDelayMS)
	delay := float64(r.DelayMS)
	if r.Exponential {
		// Beyond 2^40 ms every cap is long passed.
		delay *= float64(uint64(1) << min(max(attempt-1, 0), 40))
	}
	delay = min(delay, limit)
	delay = min(delay*(1+r.Jitter*random), limit)
	return time.Duration(delay * float64(time.Millisecond))
}
