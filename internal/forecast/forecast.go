// Package forecast counts the runs that the schedules of a tenant's jobs will make, and
// those that its monitors expect elsewhere, by minute, hour or day.
//
// It owns the bounds of such a count: how many jobs and monitors it looks at, how long it
// computes, and up to when it is complete. It refuses to guess what comes later of a run: limits,
// overlap policies, pauses and edits may keep it from starting.
package forecast

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/period"
)

// Unit is the length of a bucket.
type Unit string

// The units.
const (
	Minute Unit = "minute"
	Hour   Unit = "hour"
	Day    Unit = "day"
)

// Query says which runs are counted.
type Query struct {
	From, To time.Time // To excluded
	Unit     Unit
	Zone     *time.Location // on whose clock hours and days begin
	Named    int            // how many jobs, and how many monitors, of each bucket are named
	Jobs     bool           // whether runs of jobs count
	Monitors bool           // whether those that monitors expect do
}

// Forecast is what was counted.
type Forecast struct {
	Buckets []Bucket // those that have a run, in order of time
	Total   int64    // runs
	// Jobs and Monitors are how many were looked at.
	Jobs, Monitors int
	// CompleteUntil is the time before which no run is missing: To, unless there were
	// more jobs and monitors than could be looked at.
	CompleteUntil time.Time
	Truncated     bool
}

// Bucket is a minute, an hour or a day.
type Bucket struct {
	At   time.Time // where it begins, which may lie before From
	Runs int64
	// Jobs are how many jobs run in it, and Named the first of them by name.
	Jobs  int
	Named []Share
	// Monitors are how many monitors expect a run in it, and Watched the first of them by name.
	Monitors int
	Watched  []Share
}

// Share is what one job or monitor has of a bucket.
type Share struct {
	ID    uuid.UUID
	Name  string
	Runs  int64
	First time.Time // of its runs in the bucket

	key string // by which shares are sorted
}

// counter gathers the runs of one job or monitor after the other.
type counter struct {
	query          Query
	starts         []time.Time // of the buckets
	cells          []Bucket
	total          int64
	jobs, monitors int
}

func newCounter(q Query) *counter {
	c := &counter{query: q}
	for at := q.From; at.Before(q.To); {
		begin, end := q.Unit.around(at, q.Zone)
		if n := len(c.cells); n == 0 || !c.cells[n-1].At.Equal(begin) {
			c.starts, c.cells = append(c.starts, at), append(c.cells, Bucket{At: begin})
		}
		at = end
	}
	return c
}

// around is the bucket that holds a time: where it begins, and where the next one does.
func (u Unit) around(at time.Time, zone *time.Location) (begin, end time.Time) {
	switch u {
	case Hour:
		return period.Hour(at, zone)
	case Day:
		return period.Day(at, zone)
	}
	begin = at.Truncate(time.Minute)
	return begin, begin.Add(time.Minute)
}

// bucketAt is the number of the bucket of a time within the query.
func (c *counter) bucketAt(at time.Time) int {
	return sort.Search(len(c.starts), func(i int) bool { return c.starts[i].After(at) }) - 1
}

// endOf is the first time after a bucket.
func (c *counter) endOf(bucket int) time.Time {
	if bucket+1 < len(c.starts) {
		return c.starts[bucket+1]
	}
	return c.query.To
}

// runs are those of a schedule in one bucket.
type runs struct {
	bucket int
	count  int64
	first  time.Time
}

// add counts the runs of a job or monitor; most bounds them (below zero: nothing does).
func (c *counter) add(of planned, all []runs, most int64) {
	if of.monitor {
		c.monitors++
	} else {
		c.jobs++
	}
	key := strings.ToLower(of.name)
	for _, r := range all {
		if most == 0 {
			return
		}
		n := r.count
		if most > 0 {
			n = min(n, most)
			most -= n
		}
		cell := &c.cells[r.bucket]
		cell.Runs, c.total = cell.Runs+n, c.total+n
		share := Share{ID: of.id, Name: of.name, Runs: n, First: r.first, key: key}
		if of.monitor {
			cell.Monitors, cell.Watched = cell.Monitors+1, c.name(cell.Watched, share)
		} else {
			cell.Jobs, cell.Named = cell.Jobs+1, c.name(cell.Named, share)
		}
	}
}

// name keeps the first shares by name.
func (c *counter) name(list []Share, one Share) []Share {
	full := len(list) >= c.query.Named
	if full && (c.query.Named == 0 || order(one, list[len(list)-1]) >= 0) {
		return list
	}
	at, _ := slices.BinarySearchFunc(list, one, order)
	if full {
		list = list[:len(list)-1]
	}
	return slices.Insert(list, at, one)
}

func order(a, b Share) int {
	return cmp.Or(strings.Compare(a.key, b.key), slices.Compare(a.ID[:], b.ID[:]))
}

func (c *counter) forecast() Forecast {
	f := Forecast{Total: c.total, Jobs: c.jobs, Monitors: c.monitors, CompleteUntil: c.query.To}
	for _, cell := range c.cells {
		if cell.Jobs+cell.Monitors > 0 {
			f.Buckets = append(f.Buckets, cell)
		}
	}
	return f
}
