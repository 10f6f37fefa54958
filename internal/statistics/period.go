package statistics

import (
	"slices"
	"sort"
	"time"

	"github.com/scheduler-service/scheduler/internal/period"
	"github.com/scheduler-service/scheduler/internal/statistics/rollup"
)

// part is a piece of time of which statistics are told apart.
type part struct {
	start time.Time // of what is asked for of it
	at    time.Time // of the whole hour or day
}

// periods are those of a query in their order; none where it does not ask for
// hours or days.
func (q Query) periods() []part {
	var all []part
	switch q.Group {
	case ByHour:
		for t := q.From; t.Before(q.To); {
			at, end := period.Hour(t, q.Zone)
			if n := len(all); n == 0 || !all[n-1].at.Equal(at) {
				all = append(all, part{t, at})
			}
			t = end
		}
	case ByDay:
		for t := q.From; t.Before(q.To); {
			at, end := period.Day(t, q.Zone)
			all = append(all, part{t, at})
			t = end
		}
	}
	return all
}

// periodAt is the number of the one that a time is in, from 0.
func periodAt(all []part, t time.Time) int {
	return sort.Search(len(all), func(i int) bool { return all[i].start.After(t) }) - 1
}

// reading says what of a query is answered from roll-ups. An execution outside of its
// quarters is counted by itself.
type reading struct {
	from, to time.Time // whole quarters of an hour; equal where there are none
	// The hours that hold the quarters, but for the days among them, but for the weeks
	// among those. Equal where there are none.
	hours, days, weeks span
}

type span struct{ from, to time.Time }

// read decides it. Days are read where each is in one period, weeks where there are
// no periods; zones whose periods begin between two quarters, as some did long
// ago, are counted one by one.
func (q Query) read(periods []part) reading {
	r := reading{from: ceil(q.From, rollup.Quarter), to: q.To.Truncate(rollup.Quarter)}
	odd := func(p part) bool { return p.start.After(q.From) && !p.start.Equal(p.start.Truncate(rollup.Quarter)) }
	if !r.from.Before(r.to) || slices.ContainsFunc(periods, odd) {
		r.from, r.to = q.To, q.To
	}
	r.hours = span{rollup.Hour.Begin(r.from), ceil(r.to, time.Hour)}
	r.days = firstRun(rollup.Day, span{r.from, r.to}, func(day span) bool {
		return periodAt(periods, day.from) == periodAt(periods, day.to.Add(-rollup.Quarter))
	})
	if r.days.from.Equal(r.days.to) {
		r.days = span{r.hours.to, r.hours.to}
	}
	r.weeks = firstRun(rollup.Week, r.days, func(span) bool { return len(periods) == 0 })
	if r.weeks.from.Equal(r.weeks.to) {
		r.weeks = span{r.days.to, r.days.to}
	}
	return r
}

// firstRun is the first run of roll-ups that lie wholly within a span and that are
// fit; it is empty where there are none.
func firstRun(unit rollup.Span, in span, fit func(span) bool) (run span) {
	at := unit.Begin(in.from)
	if at.Before(in.from) {
		at = unit.End(in.from)
	}
	for ; !unit.End(at).After(in.to); at = unit.End(at) {
		switch one := (span{at, unit.End(at)}); {
		case !fit(one) && !run.from.Equal(run.to):
			return run
		case !fit(one):
		case run.from.Equal(run.to):
			run = one
		default:
			run.to = one.to
		}
	}
	return run
}

func ceil(t time.Time, unit time.Duration) time.Time {
	if down := t.Truncate(unit); !down.Equal(t) {
		return down.Add(unit)
	}
	return t
}
