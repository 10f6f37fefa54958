package promoter

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// outcome is what a row says of scheduled times.
type outcome struct {
	ID          uuid.UUID
	Status      execution.Status
	First, Last time.Time
	Count       int
	Gate        int
	Reason      string
}

// caughtUp is what became of a job: the rows of the scheduled times up to a time,
// and its own row.
type caughtUp struct {
	Rows       []outcome
	Next, Last time.Time
	Count      int64
	Reason     string
	Cancelled  bool
}

// catchUp promotes a job pass by pass, each with so many rows and at its own time,
// until no piece is left of what was due at the first of them.
func catchUp(t *rapid.T, j dueJob, s *schedule.Schedule, rows int, at func(pass int) time.Time) caughtUp {
	first, upTo := at(0), at(0)
	var c caughtUp
	for pass := 0; ; pass++ {
		if pass > 3000 {
			t.Fatalf("no end: the job is due at %v, decided up to %v", j.due, j.until)
		}
		p := newPlan(at(pass))
		claimed := j
		o := dueTimesOf(&claimed, s, p.at)
		all := []dueTimes{o}
		p.add(o, grants(all, rows)[0])
		if len(p.advances) != 1 || len(p.runs)+len(p.skips) == 0 {
			t.Fatalf("a pass without progress: %+v", o)
		}
		if n := len(p.runs) + len(p.skips); n > rows && !o.whole() {
			t.Fatalf("%d rows, more than %d", n, rows)
		}
		for _, r := range p.runs {
			c.Rows = append(c.Rows, outcome{ID: r.id, First: r.at, Last: r.at, Count: 1, Gate: r.gate})
			if r.gate == 0 {
				j.places.Taken++
			} else {
				j.places.Waiting++
			}
		}
		for _, u := range p.skips {
			c.Rows = append(c.Rows, outcome{ID: execution.ScheduledID(j.id, u.first), Status: u.status, First: u.first, Last: u.last, Count: u.count, Reason: u.reason})
		}
		a := p.advances[0]
		c.Next, c.Reason, c.Count, c.Cancelled = a.next, a.reason, c.Count+int64(a.runs), c.Cancelled || len(p.cancels) > 0
		if a.runs > 0 {
			c.Last = a.last
		}
		if a.next.IsZero() || a.next.After(upTo) {
			break
		}
		if a.until.IsZero() || !a.until.Equal(first) {
			t.Fatalf("promoted in part, and decided up to %v instead of %v", a.until, first)
		}
		j.due, j.until, j.resume, j.count = a.next, a.until, "", j.count+int64(a.runs)
	}
	slices.SortFunc(c.Rows, func(a, b outcome) int { return a.First.Compare(b.First) })
	return c
}

// A job promoted in pieces, of any size and however long they take, comes out
// exactly as promoted in one: its rows and their ids, the range that was missed,
// what the overlap policy said, its count and its next scheduled time.
func TestPiecesMakeTheWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		j, s := drawDue(t)
		now := j.due.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 59, 61, 600, 7200}).Draw(t, "late")) * time.Second)
		step := time.Duration(rapid.SampledFrom([]int{0, 0, 1, 70}).Draw(t, "step")) * time.Second
		rows := rapid.SampledFrom([]int{1, 2, 3, 7, 50}).Draw(t, "rows")
		j.places.Waiting = min(j.places.Waiting, j.places.Taken) // as rows can be
		whole := catchUp(t, j, s, 1<<20, func(int) time.Time { return now })
		pieces := catchUp(t, j, s, rows, func(pass int) time.Time { return now.Add(time.Duration(pass) * step) })
		if diff := cmp.Diff(whole, pieces, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%+v resumed %q at %v in pieces of %d rows (-whole +pieces):\n%s", j.policy, j.resume, now, rows, diff)
		}
	})
}

// Nobody gets more than he wants, nothing is kept back, and who does not get all
// that he wants gets as much as anybody else.
func TestShare(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		wants := rapid.SliceOfN(rapid.IntRange(1, 1000), 1, 20).Draw(t, "wants")
		total := rapid.IntRange(0, 5000).Draw(t, "total")
		given := share(wants, total)
		sum, wanted, most := 0, 0, slices.Max(given)
		for i, n := range given {
			sum, wanted = sum+n, wanted+wants[i]
			if n > wants[i] || n < wants[i] && n < most-1 {
				t.Fatalf("%d of %v: %v", total, wants, given)
			}
		}
		if sum != min(total, wanted) {
			t.Fatalf("%d of %v: %v, which is %d", total, wants, given, sum)
		}
	})
}
