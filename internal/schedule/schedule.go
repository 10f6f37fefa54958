// Package schedule turns what a tenant wrote into the instants at which a job
// is due.
//
// It owns the meaning of cron expressions, intervals, one-offs, windows,
// calendars, clock changes and spread: every question "when" has its answer
// here, and docs/cron.md is the page that says how. It is pure: it reads no
// clock, no table and no environment, and the same definition gives the same
// instants in every process. It refuses what can never fire and what it would
// have to guess. Package job validates with it, package promoter asks it for
// the next instant and for those owed, package rest previews and lints.
package schedule

import (
	"time"

	_ "time/tzdata" // the zones, for images that carry none
)

// Definition is what a tenant wrote. At most one of Cron, Interval and RunAt is
// set; a definition with none of them is due only when triggered by hand.
type Definition struct {
	// Cron is the expression, 5 to 7 fields or an alias, at most 256 bytes.
	Cron string
	// Zone is the IANA name of the zone in which Cron is read; empty is UTC.
	Zone string
	// Interval is the distance between instants, 1 s to 366 days in whole
	// milliseconds; the instants are Anchor + k·Interval for k ≥ 1, so a late
	// run moves none of the later ones.
	Interval time.Duration
	// Anchor is the origin of Interval, the instant the job was created or
	// resumed at; zero is 1970-01-01T00:00:00Z.
	Anchor time.Time
	// RunAt is the only instant of a one-off.
	RunAt time.Time
	// Start and End bound the slots to [Start, End); zero is open.
	Start, End time.Time
	// DSTGap says what happens to a wall time that a clock change skips.
	DSTGap Gap
	// DSTOverlap says which pass of a repeated wall time counts.
	DSTOverlap Overlap
	// Jitter spreads each instant over [slot, slot+Jitter), 0 to 24 h, by a
	// stable hash of Key and slot; it never reaches the next slot.
	Jitter time.Duration
	// Key is the job's id. It seeds Jitter and the H of expressions, and may be
	// empty for a preview of a job that is not stored yet.
	Key string
	// Calendars each have to admit an instant; at most 10.
	Calendars []Calendar
}

// Gap is what to do with a wall time that a clock change skips: "shift" (also
// empty) runs it once, later by as much as the clock moved; "skip" does not.
type Gap string

// Overlap is which of the two passes of a repeated wall time is due: "first"
// (also empty), "last" or "both".
type Overlap string

// Calendar is a set of days and times in a zone, as a value.
type Calendar struct {
	// Mode is "exclude" (also empty), which drops what falls into Days, or
	// "include", which drops everything else.
	Mode string
	// Zone is the IANA name of the zone in which Days are read; empty is UTC.
	Zone string
	// Days lists the ranges, at most 1000, in any order.
	Days []DateRange
}

// DateRange is the wall-clock time [Start, End) in a calendar's zone. Of both
// only date and time of day are read, never the location, in whole seconds.
type DateRange struct {
	Start time.Time
	// End is the first moment no longer in the range; zero means the midnight
	// that ends Start's day.
	End time.Time
	// Yearly repeats the range in every year, also in those before Start. It
	// may last at most 183 days; one that begins on 29 February exists in leap
	// years only.
	Yearly bool
}

// Schedule is a compiled definition. It is immutable and safe for any number of
// goroutines.
type Schedule struct {
}

// Owed is the answer to "what was due between two instants".
type Owed struct {
	// Instants are the last ones, at most as many as asked for, ascending.
	Instants []time.Time
	// Count is how many there were in all. Counting stops at 100,000.
	Count int
	// Capped says that counting stopped and there were more than Count.
	Capped bool
	// First and Last are the first and the last of those left out of
	// Instants; zero when none was.
	First, Last time.Time
	// Next is the first instant after the window; zero when there is none.
	Next time.Time
}

// Compile checks a definition and makes it answer questions. It refuses what is
// malformed and an expression that matches no date at all (30 February); what
// is merely over (a year that has passed) compiles, because stored jobs must.
//
// The error is a *fault.Error of kind Invalid that lists every wrong field by
// its JSON name. Its code is INVALID_CRON_EXPRESSION where the expression is
// wrong, else VALIDATION_FAILED.
func Compile(def Definition) (*Schedule, error) { return &Schedule{}, nil }

// Validate is Compile for a definition that is new at now: it also refuses a
// one-off or an end that has passed, an end that is not after the start, and a
// schedule with no instant left after now.
func Validate(def Definition, now time.Time) error { return nil }

// Next is the first instant strictly after after, in UTC; false means never
// again.
func (s *Schedule) Next(after time.Time) (time.Time, bool) { return time.Time{}, false }

// Owed gives the instants in (after, until]: the last limit (at most 10,000) of
// them, how many there are, and the first instant after until.
func (s *Schedule) Owed(after, until time.Time, limit int) Owed { return Owed{} }

// Occurrence is one line of a preview.
type Occurrence struct {
	// Slot is the instant that the expression names, in the schedule's zone.
	Slot time.Time
	// At is Slot with its jitter: the instant that Next answers.
	At time.Time
	// Wall is the local time that the expression names, as
	// 2006-01-02T15:04:05; it differs from Slot where a clock change moved it.
	Wall string
	// Change is "moved" where the wall time does not exist and the slot was
	// moved, "repeated" where this is the second pass of a wall time, or "".
	Change string
	// Dropped says why the slot does not run: "calendar", "gap", "overlap", or
	// "" when it does.
	Dropped string
}

// Preview lists the next count (at most 1000) occurrences that run, from from
// on, and between them the ones that are dropped, at most count of those.
func (s *Schedule) Preview(from time.Time, count int) []Occurrence { return nil }

// Warning is something that is allowed and probably not meant.
type Warning struct {
	Code    string // stable, for programs: SKIPS_MONTHS, ENDS, …
	Message string // for a person
}

// Lint looks at the schedule from now on and warns.
func (s *Schedule) Lint(now time.Time) []Warning { return nil }

// ParseInterval reads an ISO 8601 duration ("PT30S", "P1D", "P1W") or a Go
// duration ("30s", "1h30m") of 1 s to 366 days. Years and months are refused:
// their length varies. The error is a *fault.Error naming the field interval.
func ParseInterval(text string) (time.Duration, error) { return 0, nil }
