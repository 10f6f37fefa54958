// Package partition keeps the monthly partitions of job_executions ahead.
//
// It owns the plan, which is a pure function of the instants it must hold, and
// making what is missing. There is no default partition, so a month without
// one refuses its rows; that is why three months are made ahead, and those of a
// running backfill behind. Called by cmd/migrate and by the promoter.
package partition

import "time"

// Ahead is how many months beyond the current one have their partition.
const Ahead = 3

// maxPlan bounds one plan: ten years.
const maxPlan = 120

// Plan lists the first instants of the months that need a partition: from the
// month of oldest, or of now when that is earlier, to Ahead months after now.
// It lists the newest when there are more than ten years of them.
func Plan(oldest, now time.Time) []time.Time {
	last := monthOf(now).AddDate(0, Ahead, 0)
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

func monthOf(t time.Time) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}
