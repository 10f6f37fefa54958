// Package partition keeps the monthly partitions of job_executions: made ahead,
// and not kept for ever.
//
// It owns the plan, which is a pure function of the times it must hold, making
// what is missing and removing what is too old. There is no default partition,
// so a month without one refuses its rows; that is why some months are made
// ahead, and those of a running backfill behind. It refuses to remove anything
// but whole months.
package partition

import "time"

// Ahead is how many months beyond the current one have their partition where
// nothing else is configured.
const Ahead = 3

// maxPlan bounds one plan: ten years.
const maxPlan = 120

// Plan lists the first times of the months that need a partition: from the
// month of oldest, or of now when that is earlier, to so many months ahead of now.
// It lists the newest when there are more than ten years of them.
func Plan(oldest, now time.Time, ahead int) []time.Time {
	last := monthOf(now).AddDate(0, ahead, 0)
	first := monthOf(now)
	if o := monthOf(oldest); o.Before(first) {
		first = o
	}
	if earliest := last.AddDate(0, -maxPlan+1, 0); first.Before(earliest) {
		first = earliest
	}
	var months []time.Time
	for m := first; !m.After(last); m = m.AddDate(0, 1, 0) {
		months = append(months, m)
	}
	return months
}

// Oldest is the first time that is kept when so many months are: the beginning
// of the month that lies so many before now's, or of the month of the oldest
// time that may still be written, where that is earlier. Partitions that end
// by then may go.
func Oldest(mayBeWritten, now time.Time, months int) time.Time {
	kept := monthOf(now).AddDate(0, -months, 0)
	if o := monthOf(mayBeWritten); o.Before(kept) {
		return o
	}
	return kept
}

func monthOf(t time.Time) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}
