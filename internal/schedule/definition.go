package schedule

import "time"

// Definition is what a tenant wrote. At most one of Cron, Interval and RunAt is
// set; a definition with none of them is due only when triggered by hand.
type Definition struct {
	// Cron is the expression, 5 to 7 fields or an alias, at most 256 bytes.
	Cron string
	// Zone is the IANA name of the zone in which Cron is read; empty is UTC.
	Zone string
	// Interval is the distance between scheduled times, 1 s to 366 days in whole
	// milliseconds; the scheduled times are Anchor + k·Interval for k ≥ 1, so a late
	// run moves none of the later ones.
	Interval time.Duration
	// Anchor is the origin of Interval, the time at which the job was created or
	// resumed at; zero is 1970-01-01T00:00:00Z.
	Anchor time.Time
	// RunAt is the only scheduled time of a one-off.
	RunAt time.Time
	// Start and End bound the slots to [Start, End); zero is open.
	Start, End time.Time
	// DSTGap says what happens to a wall time that a clock change skips.
	DSTGap Gap
	// DSTOverlap says which pass of a repeated wall time counts.
	DSTOverlap Overlap
	// Jitter spreads each scheduled time over [slot, slot+Jitter), 0 to 24 h, by a
	// stable hash of Key and slot; it never reaches the next slot.
	Jitter time.Duration
	// Key is the job's id. It seeds Jitter and the H of expressions, and may be
	// empty for a preview of a job that is not stored yet.
	Key string
	// Calendars each have to admit a scheduled time; at most 10.
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
	// Yearly repeats the range, from date to date, in every year, also in those
	// before Start. It may last at most 183 days; one that begins on 29
	// February exists in leap years only.
	Yearly bool
	Name   string // for people: a holiday's
}
