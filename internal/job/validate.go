package job

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/fault/suggest"
	"github.com/scheduler-service/scheduler/internal/job/keytemplate"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// The bounds of a definition, as the contract states them.
const (
	maxName             = 200
	maxDescription      = 2000
	maxTags             = 20
	maxTag              = 50
	maxTimeout          = 86_400      // seconds
	maxExecutionTimeout = 30 * 86_400 // seconds
	minCompleteWithin   = 60          // seconds: what did not run is found within some 30
	maxCompleteWithin   = 7 * 86_400  // seconds
	maxRetries          = 100         // attempts beyond the first
	maxDelayMS          = 86_400_000  // one day
	defaultTimeout      = 300         // seconds
	maxConcurrent       = 1000        // runs of one job at once
	maxQueue            = 1000        // runs of one job that wait
	maxMisfires         = 1000        // scheduled times that run at one catching up
	maxGrace            = 86_400      // seconds
	maxExecutions       = 1_000_000_000
	maxFailures         = 1000 // failed executions in a row
	maxCalendars        = 10
)

// errorTypes are the error types of an execution, all of which a retry rule
// may name.
var errorTypes = []string{"TIMEOUT", "NETWORK_ERROR", "VALIDATION_ERROR", "SYSTEM_ERROR", "USER_ERROR"}

// WithDefaults fills in what a tenant left out and may leave out.
func (s Spec) WithDefaults() Spec {
	if s.Timezone == "" {
		s.Timezone = "UTC"
	}
	if s.Timeout == 0 {
		s.Timeout = defaultTimeout
	}
	if s.Retry.OnErrorTypes == nil {
		s.Retry.OnErrorTypes = DefaultRetry().OnErrorTypes
	}
	if s.Tags == nil {
		s.Tags = []string{}
	}
	if s.DSTGap == "" {
		s.DSTGap = "shift"
	}
	if s.DSTOverlap == "" {
		s.DSTOverlap = "first"
	}
	if s.MaxConcurrent == 0 {
		s.MaxConcurrent = 1
	}
	if s.Overlap == "" {
		s.Overlap = OverlapSkip
	}
	if s.OverlapQueueLimit == 0 {
		s.OverlapQueueLimit = 100
	}
	s.Misfire = s.Misfire.withDefaults()
	return s
}

// Definition is the policy's schedule in the terms of package schedule. The
// anchor is where an interval counts from; the key is the job's id; the
// calendars are the contents of those that the policy names.
func (s Policy) Definition(key string, anchor time.Time, calendars []schedule.Calendar) schedule.Definition {
	d := schedule.Definition{
		Cron: s.CronExpression, Zone: s.Timezone, Interval: time.Duration(s.Interval), Anchor: anchor, Key: key,
		DSTGap: schedule.Gap(s.DSTGap), DSTOverlap: schedule.Overlap(s.DSTOverlap),
		Jitter: time.Duration(s.JitterSeconds) * time.Second, Calendars: calendars,
	}
	if s.RunAt != nil {
		d.RunAt = *s.RunAt
	}
	if s.StartDate != nil {
		d.Start = *s.StartDate
	}
	if s.EndDate != nil {
		d.End = *s.EndDate
	}
	return d
}

// Scheduled reports whether the policy has a schedule at all; without one, only
// a trigger runs the job.
func (s Policy) Scheduled() bool {
	return s.CronExpression != "" || s.Interval != 0 || s.RunAt != nil
}

// Validate reports everything that is wrong with a definition that is new at
// now, as one fault of kind Invalid that lists every field. The executor
// of the job type checks its config.
//
// The calendars are the contents of those that the spec names, as far as they
// are known; the store looks the others up and validates again.
func Validate(s Spec, calendars []schedule.Calendar, now time.Time) error {
	fields := slices.Concat(textFields(s), ruleFields(s))
	code := fault.CodeValidationFailed
	if err := schedule.Validate(s.Definition("", now, calendars), now); err != nil {
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Invalid {
			return fmt.Errorf("validate the schedule: %w", err)
		}
		code = f.Code
		fields = append(fields, f.Fields...)
	}
	if len(fields) == 0 {
		return nil
	}
	return fault.Wrong(code, fields...)
}

func textFields(s Spec) []fault.Field {
	var fields []fault.Field
	if n := utf8.RuneCountInString(s.Name); n < 1 || n > maxName || strings.TrimSpace(s.Name) == "" {
		fields = append(fields, bounds("name", "is %d characters long; 1 to %d are allowed, not all of them blank", n, maxName))
	}
	if n := utf8.RuneCountInString(s.Description); n > maxDescription {
		fields = append(fields, bounds("description", "is %d characters long; at most %d are allowed", n, maxDescription))
	}
	if len(s.Tags) > maxTags {
		fields = append(fields, bounds("tags", "has %d items; at most %d are allowed", len(s.Tags), maxTags))
	}
	for i, tag := range s.Tags {
		if n := utf8.RuneCountInString(tag); n < 1 || n > maxTag {
			fields = append(fields, bounds(fmt.Sprintf("tags[%d]", i), "is %d characters long; 1 to %d are allowed", n, maxTag))
		}
	}
	for path, text := range map[string]string{"name": s.Name, "description": s.Description, "tags": strings.Join(s.Tags, "")} {
		if strings.ContainsRune(text, 0) {
			fields = append(fields, fault.Field{Path: path, Rule: "pattern", Message: "contains the character U+0000, which cannot be stored"})
		}
	}
	return fields
}

func ruleFields(s Spec) []fault.Field {
	var fields []fault.Field
	within := func(path string, value, low, high int64) {
		if value < low || value > high {
			fields = append(fields, bounds(path, "is %d; it must be between %d and %d", value, low, high))
		}
	}
	within("timeout", int64(s.Timeout), 1, maxTimeout)
	within("executionTimeout", int64(s.ExecutionTimeout), 0, maxExecutionTimeout)
	if s.CompleteWithin != 0 {
		within("completeWithin", int64(s.CompleteWithin), minCompleteWithin, maxCompleteWithin)
	}
	within("priority", int64(s.Priority), 0, 9)
	within("maxConcurrent", int64(s.MaxConcurrent), 1, maxConcurrent)
	within("overlapQueueLimit", int64(s.OverlapQueueLimit), 1, maxQueue)
	within("misfireLimit", int64(s.Misfire.Limit), 1, maxMisfires)
	within("misfireGraceSeconds", int64(s.Misfire.GraceSeconds), 1, maxGrace)
	within("maxExecutions", s.MaxExecutions, 0, maxExecutions)
	within("disableAfterFailures", int64(s.DisableAfterFailures), 0, maxFailures)
	oneOf := func(path, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			fields = append(fields, fault.Field{Path: path, Rule: "enum", Message: suggest.OneOf(value, allowed)})
		}
	}
	oneOf("overlapPolicy", string(s.Overlap), string(OverlapSkip), string(OverlapQueue1), string(OverlapQueue), string(OverlapCancel), string(OverlapAllow))
	oneOf("misfirePolicy", string(s.Misfire.Policy), string(MisfireSkip), string(FireOnce), string(FireAll))
	for i, c := range s.Calendars {
		oneOf(fmt.Sprintf("calendars[%d].mode", i), c.Mode, "exclude", "include")
	}
	if len(s.Calendars) > maxCalendars {
		fields = append(fields, bounds("calendars", "has %d items; at most %d are allowed", len(s.Calendars), maxCalendars))
	}
	if _, err := keytemplate.Parse(s.ConcurrencyKey); err != nil {
		fields = append(fields, fault.Field{Path: "concurrencyKey", Rule: "template", Message: err.Error()})
	}
	within("retryConfig.maxRetries", int64(s.Retry.MaxRetries), 0, maxRetries)
	within("retryConfig.retryDelayMs", s.Retry.DelayMS, 0, maxDelayMS)
	within("retryConfig.maxRetryDelayMs", s.Retry.MaxDelayMS, 0, maxDelayMS)
	if j := s.Retry.Jitter; math.IsNaN(j) || j < 0 || j > 1 {
		fields = append(fields, bounds("retryConfig.jitter", "is %v; it must be between 0 and 1", j))
	}
	for i, t := range s.Retry.OnErrorTypes {
		if !slices.Contains(errorTypes, t) {
			fields = append(fields, fault.Field{
				Path: fmt.Sprintf("retryConfig.retryOnErrorTypes[%d]", i), Rule: "enum",
				Message: suggest.OneOf(t, errorTypes),
			})
		}
	}
	return fields
}

func bounds(path, format string, args ...any) fault.Field {
	return fault.Field{Path: path, Rule: "bounds", Message: fmt.Sprintf(format, args...)}
}

// Contradictions tells add of settings that are allowed and do not go together, with the
// codes of the contract's warnings.
func (s Spec) Contradictions(add func(code, format string, args ...any)) {
	if r := s.Retry; r.MaxRetries > 0 && r.MaxDelayMS > 0 && r.DelayMS > r.MaxDelayMS {
		add("RETRY_DELAY_CAPPED", "retryDelayMs is %d and maxRetryDelayMs %d: every retry waits %[2]d ms", r.DelayMS, r.MaxDelayMS)
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(s.Tags))); len(distinct) < len(s.Tags) {
		add("DUPLICATE_TAGS", "tags name the same thing twice")
	}
	if !s.Scheduled() && (s.JitterSeconds > 0 || s.MaxExecutions > 0 || len(s.Calendars) > 0 || s.CompleteWithin > 0) {
		add("NO_EFFECT", "jitterSeconds, maxExecutions, calendars and completeWithin bear on a schedule, and the job has none")
	}
}
