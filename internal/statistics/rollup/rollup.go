// Package rollup packs what executions came to in an hour, a day or a week.
//
// It owns the form in which counts are stored, how two of them become one, and
// which part of a tenant's roll-ups a job is in. It refuses to know tables and
// clocks.
//
// A packed roll-up is a version (one byte), and then for each job, in the order of
// their ids: the id, how many executions are counted, the length in bytes of what
// follows, and its runs. A run is of one kind and quarter: the kind (one byte for
// a known one, or a zero and three texts), the number of cells, and these in the
// order of their buckets, as distances. All numbers are varints. A cell takes 3 to 5
// bytes, a run 2 more, a job 18.
package rollup

import (
	"bytes"
	"cmp"
	"errors"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

const (
	// Whole is the part that counts all of a tenant's executions, by no job.
	Whole = 0
	// Parts is how many there are for the jobs: 1 to Parts. So one job's history is
	// read without that of most others, and what is replaced each few seconds
	// stays small.
	Parts = 32
	// Quarter is the finest time that a roll-up tells apart: zones of the earth begin their
	// hours at :00, :15, :30 or :45.
	Quarter = 15 * time.Minute
	// None is the bucket of executions without a length of time.
	None = -1
)

// Span is how much time a roll-up is of, in UTC.
type Span int16

// The spans. A week is a quarter of a month, so that months can be removed.
const (
	Hour Span = 0
	Day  Span = 1
	Week Span = 2
)

// Begin is when the roll-up begins that a time is in.
func (s Span) Begin(t time.Time) time.Time {
	t = t.UTC()
	switch s {
	case Day:
		return t.Truncate(24 * time.Hour)
	case Week:
		return time.Date(t.Year(), t.Month(), 1+min((t.Day()-1)/7, 3)*7, 0, 0, 0, 0, time.UTC)
	}
	return t.Truncate(time.Hour)
}

// End is when it ends.
func (s Span) End(t time.Time) time.Time {
	begin := s.Begin(t)
	switch s {
	case Day:
		return begin.AddDate(0, 0, 1)
	case Week:
		if begin.Day() > 21 {
			return time.Date(begin.Year(), begin.Month()+1, 1, 0, 0, 0, 0, time.UTC)
		}
		return begin.AddDate(0, 0, 7)
	}
	return begin.Add(time.Hour)
}

// PartOf is the part that a job's counts are in.
func PartOf(job uuid.UUID) int16 {
	hash := fnv.New32a()
	_, _ = hash.Write(job[:]) // never fails
	return int16(1 + hash.Sum32()%Parts)
}

// Kind is what executions are told apart by.
type Kind struct{ JobType, Trigger, Status string }

// Cell counts executions of one kind that took about the same time.
type Cell struct {
	Job     uuid.UUID // uuid.Nil in what is of the whole tenant
	Kind    Kind
	Quarter int // of the hour, 0 to 3; 0 in what is of more than an hour
	Bucket  int // as the statement that counts says, None and more

	Rows, Retried, DurationMS int64
}

// errCorrupt says that something else was read than Merge made.
var errCorrupt = errors.New("a roll-up does not read as one")

func compare(a, b *Cell) int {
	if c := bytes.Compare(a.Job[:], b.Job[:]); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(a.Kind.JobType, b.Kind.JobType), strings.Compare(a.Kind.Trigger, b.Kind.Trigger),
		strings.Compare(a.Kind.Status, b.Kind.Status), cmp.Compare(a.Quarter, b.Quarter), cmp.Compare(a.Bucket, b.Bucket))
}

// Merge adds counts to packed ones, of which there may be none; those of the same
// executions become one. It orders the slice that it is given.
func Merge(packed []byte, more []Cell) ([]byte, error) {
	slices.SortFunc(more, func(a, b Cell) int { return compare(&a, &b) })
	p, at := packer{out: make([]byte, 0, len(packed)+32*len(more))}, 0
	p.out = append(p.out, version)
	if len(packed) == 0 {
		packed = p.out
	}
	err := Walk(packed, nil, func(old *Cell, _ bool) {
		for ; at < len(more) && compare(&more[at], old) < 0; at++ {
			p.add(&more[at])
		}
		p.add(old)
	})
	if err != nil {
		return nil, err
	}
	for ; at < len(more); at++ {
		p.add(&more[at])
	}
	return p.finish(), nil
}
