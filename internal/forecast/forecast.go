// Package forecast counts the runs that the schedules of a tenant's jobs will make, by
// minute, hour or day.
//
// It owns the bounds of such a count: how many jobs it looks at, how long it computes, and
// up to when it is complete. It refuses to guess what comes later of a run: limits,
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
	Named    int            // how many jobs of each bucket are named
}

// Forecast is what was counted.
type Forecast struct {
	Buckets []Bucket // those that have a run, in order of time
	Total   int64    // runs
	Jobs    int      // how many jobs were looked at
	// CompleteUntil is the time before which no run is missing: To, unless there were
	// more jobs than could be looked at.
	CompleteUntil time.Time
	Truncated     bool
}

// Bucket is a minute, an hour or a day.
type Bucket struct {
	At    time.Time // where it begins, which may lie before From
	Runs  int64
	Jobs  int     // how many jobs run in it
	Named []Share // the first ones by name
}

// Share is what one job has of a bucket.
type Share struct {
	ID    uuid.UUID
	Name  string
	Runs  int64
	First time.Time // of its runs in the bucket

	key string // by which shares are sorted
}

// counter gathers the runs of one job after the other.
type counter struct {
	query  Query
	starts []time.Time // of the buckets
	cells  []Bucket
	total  int64
	jobs   int
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

// add counts the runs of a job; most bounds them (below zero: nothing does).
func (c *counter) add(id uuid.UUID, name string, all []runs, most int64) {
	c.jobs++
	key := strings.ToLower(name)
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
		cell.Runs, cell.Jobs, c.total = cell.Runs+n, cell.Jobs+1, c.total+n
		c.name(cell, Share{ID: id, Name: name, Runs: n, First: r.first, key: key})
	}
}

// name keeps the first shares of a bucket by name.
func (c *counter) name(cell *Bucket, one Share) {
	full := len(cell.Named) >= c.query.Named
	if full && (c.query.Named == 0 || order(one, cell.Named[len(cell.Named)-1]) >= 0) {
		return
	}
	at, _ := slices.BinarySearchFunc(cell.Named, one, order)
	if full {
		cell.Named = cell.Named[:len(cell.Named)-1]
	}
	cell.Named = slices.Insert(cell.Named, at, one)
}

func order(a, b Share) int {
	return cmp.Or(strings.Compare(a.key, b.key), slices.Compare(a.ID[:], b.ID[:]))
}

func (c *counter) forecast() Forecast {
	f := Forecast{Total: c.total, Jobs: c.jobs, CompleteUntil: c.query.To}
	for _, cell := range c.cells {
		if cell.Jobs > 0 {
			f.Buckets = append(f.Buckets, cell)
		}
	}
	return f
}
