// Package partition keeps the partitions of job_executions: made ahead, and not
// kept for ever.
//
// It owns how long they are kept and, from that, which span of time a partition
// has; the plan, which is a pure function of the times it must hold; making what
// is missing and removing what is too old. There is no default partition, so a
// day without one refuses its rows; that is why some are made ahead, and those
// of a running backfill behind. It refuses to remove anything but whole
// partitions.
package partition

import (
	"fmt"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

const (
	// Ahead is how many months beyond the current one have their partition where
	// nothing else is configured.
	Ahead = 3
	// LeastDays is the shortest retention in days: the database refuses to remove
	// younger partitions.
	LeastDays = 7

	// Where up to dailyUpTo days are kept, each day has a partition. Up to weeklyUpTo,
	// each week has one. A read over all of the history then touches some 65 partitions
	// at most. Each of them costs one lock for the table and one for each index.
	dailyUpTo  = 45
	weeklyUpTo = 400
	// Days and weeks are made ahead for less time than months: a fortnight of them
	// outlasts any promoter that is away, and a longer one would be locked for nothing.
	daysAhead  = 14
	weeksAhead = 5

	// maxPlan bounds one plan: ten years.
	maxPlan = 3660
)

// Term says how long executions are kept.
type Term struct {
	// Months is how many calendar months are kept beside the current one; 1 and
	// more. It counts where Days is 0.
	Months int
	// Days is how many days are kept beside the current one, LeastDays and more; 0:
	// Months decides.
	Days int
}

// String is the term in words, such as "13 months".
func (t Term) String() string {
	if t.Days > 0 {
		return fmt.Sprintf("%d days", t.Days)
	}
	return fmt.Sprintf("%d months", t.Months)
}

// Before is a time as far before another one as executions are kept.
func (t Term) Before(at time.Time) time.Time {
	if t.Days > 0 {
		return at.AddDate(0, 0, -t.Days)
	}
	return at.AddDate(0, -t.Months, 0)
}

// Span is how much time the partitions hold that are made from now on: shorter
// ones where less is kept, so that what is too old goes soon and a read over
// all touches few of them.
func (t Term) Span() Span {
	switch {
	case t.Days == 0 || t.Days > weeklyUpTo:
		return Month
	case t.Days > dailyUpTo:
		return Week
	}
	return Day
}

// Oldest is the first time that is kept: the beginning of the day, or of the
// month where months are counted, that lies so far before now's, or of that of
// the oldest time that may still be written, where that is earlier. Partitions
// that end by then may go.
func (t Term) Oldest(mayBeWritten, now time.Time) time.Time {
	counted := Month
	if t.Days > 0 {
		counted = Day
	}
	return clock.Earlier(counted.first(mayBeWritten), t.Before(counted.first(now)))
}

// Span is the time that a partition holds, in UTC: the word for it that the
// database has.
type Span string

// The spans.
const (
	Day   Span = "day"
	Week  Span = "week" // from Monday on
	Month Span = "month"
)

// Spans says how much time the partitions hold that are made from now on; nil says
// Month.
type Spans func() Span

// Now is the span of now.
func (s Spans) Now() Span {
	if s == nil {
		return Month
	}
	return s()
}

// Since is when the span before that of a time begins.
func (s Span) Since(at time.Time) time.Time { return s.first(s.first(at).Add(-1)) }

// Until is when the span after that of a time ends.
func (s Span) Until(at time.Time) time.Time { return s.after(s.after(s.first(at))) }

// after is when the span ends that begins at a time.
func (s Span) after(first time.Time) time.Time {
	switch s {
	case Month:
		return first.AddDate(0, 1, 0)
	case Week:
		return first.AddDate(0, 0, 7)
	default:
		return first.AddDate(0, 0, 1)
	}
}

// first is when the span begins that holds a time.
func (s Span) first(at time.Time) time.Time {
	at = at.UTC()
	switch day := at.Day(); s {
	case Month:
		return time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
	case Week:
		return time.Date(at.Year(), at.Month(), day-(int(at.Weekday())+6)%7, 0, 0, 0, 0, time.UTC)
	default:
		return time.Date(at.Year(), at.Month(), day, 0, 0, 0, 0, time.UTC)
	}
}

// end is the first time that needs no partition yet.
func (s Span) end(now time.Time, monthsAhead int) time.Time {
	switch first := s.first(now); s {
	case Month:
		return first.AddDate(0, monthsAhead+1, 0)
	case Week:
		return first.AddDate(0, 0, 7*(weeksAhead+1))
	default:
		return first.AddDate(0, 0, daysAhead+1)
	}
}

// Plan lists the days that need a partition: from the day of oldest, or from
// the beginning of now's span when that is earlier, to so many months ahead of now,
// or as far as days and weeks are made ahead. It lists the last when there
// are more than ten years of them.
func (s Span) Plan(oldest, now time.Time, monthsAhead int) (days []time.Time) {
	end := s.end(now, monthsAhead)
	first := clock.Later(clock.Earlier(Day.first(oldest), s.first(now)), end.AddDate(0, 0, -maxPlan))
	for at := first; at.Before(end); at = at.AddDate(0, 0, 1) {
		days = append(days, at)
	}
	return days
}
