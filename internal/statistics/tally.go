package statistics

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/statistics/rollup"
)

// tally adds up cells into the answer of a query.
type tally struct {
	Query

	periods []part
	whole   *group
	byTime  []*group // one for each period, nil where nothing was counted
	byWord  map[string]*group
	byJob   map[uuid.UUID]*group
	more    bool // there are jobs that are not in byJob
}

func newTally(q Query) *tally {
	periods := q.periods()
	return &tally{
		Query: q, periods: periods, whole: &group{}, byTime: make([]*group, len(periods)),
		byWord: map[string]*group{}, byJob: map[uuid.UUID]*group{},
	}
}

// group is one of them while it is counted.
type group struct {
	Summary

	job       uuid.UUID
	ms        int64 // of the durations, together
	durations histogram
}

// histogram counts by bucket, from the lowest that was seen on.
type histogram struct {
	lowest int
	counts []int64
}

func (h *histogram) add(bucket int, n int64) {
	if len(h.counts) == 0 {
		h.lowest = bucket
	}
	if bucket < h.lowest {
		h.counts = slices.Insert(h.counts, 0, make([]int64, h.lowest-bucket)...)
		h.lowest = bucket
	}
	for bucket-h.lowest >= len(h.counts) {
		h.counts = append(h.counts, 0)
	}
	h.counts[bucket-h.lowest] += n
}

// percentile is the lowest bucket up to which so many percent lie.
func (h *histogram) percentile(percent, of int64) int {
	var sum int64
	for i, n := range h.counts {
		if sum += n; sum*100 >= percent*of && n > 0 {
			return h.lowest + i
		}
	}
	return rollup.None
}

// of is where a group counts executions of a status.
func (g *group) of(status string) *int64 {
	switch status {
	case "completed":
		return &g.Completed
	case "failed":
		return &g.Failed
	case "cancelled":
		return &g.Cancelled
	case "skipped":
		return &g.Skipped
	case "missed":
		return &g.Missed
	}
	return new(int64) // of a later version
}

func (g *group) add(c *rollup.Cell, of *int64) {
	*of += c.Rows
	g.Count += c.Rows
	g.Retried += c.Retried
	if c.Bucket != rollup.None {
		g.Timed += c.Rows
		g.ms += c.DurationMS
		g.durations.add(c.Bucket, c.Rows)
	}
}

// join adds a whole group.
func (g *group) join(other *group) {
	g.Count, g.Retried = g.Count+other.Count, g.Retried+other.Retried
	g.Completed, g.Failed, g.Cancelled = g.Completed+other.Completed, g.Failed+other.Failed, g.Cancelled+other.Cancelled
	g.Skipped, g.Missed = g.Skipped+other.Skipped, g.Missed+other.Missed
	g.Timed, g.ms = g.Timed+other.Timed, g.ms+other.ms
	for i, n := range other.durations.counts {
		if n > 0 {
			g.durations.add(other.durations.lowest+i, n)
		}
	}
}

// group is the one that an execution of a kind and a period, from 0, is counted
// in. Those of jobs are ranked first, see rank.
func (t *tally) group(kind rollup.Kind, period int) *group {
	switch t.Group {
	case ByHour, ByDay:
		if t.byTime[period] == nil {
			t.byTime[period] = &group{Summary: Summary{At: t.periods[period].at}}
		}
		return t.byTime[period]
	case ByStatus:
		return t.word(kind.Status)
	case ByType:
		return t.word(kind.JobType)
	case ByTrigger:
		return t.word(kind.Trigger)
	}
	return t.whole
}

func (t *tally) word(key string) *group {
	g := t.byWord[key]
	if g == nil {
		g = &group{Summary: Summary{Key: key}}
		t.byWord[key] = g
	}
	return g
}

// add counts a cell.
func (t *tally) add(c *rollup.Cell, period int) {
	g := t.group(c.Kind, period)
	g.add(c, g.of(c.Kind.Status))
}

// asks says that a query asks for executions of a kind.
func (q Query) asks(kind rollup.Kind) bool {
	return (q.JobType == "" || kind.JobType == q.JobType) && (q.Trigger == "" || kind.Trigger == q.Trigger)
}

// wanted chooses the query's job, where it names one.
func (q Query) wanted() func(uuid.UUID) bool {
	if q.JobID == nil {
		return nil
	}
	return func(job uuid.UUID) bool { return job == *q.JobID }
}

// packed is a roll-up as it is stored.
type packed struct {
	part  int16
	span  rollup.Span
	at    time.Time
	cells []byte
}

// within says which quarters of it are asked for; only an hour has quarters.
func (p *packed) within(r reading) (quarters [4]bool, all bool) {
	for i := range quarters {
		at := p.at.Add(time.Duration(i) * rollup.Quarter)
		quarters[i] = p.span != rollup.Hour || !at.Before(r.from) && at.Before(r.to)
	}
	return quarters, quarters == [4]bool{true, true, true, true}
}

// unpack counts a roll-up: of an hour, the quarters that are asked for.
func (t *tally) unpack(r reading, p *packed) error {
	var period [4]int
	for i := range period {
		period[i] = periodAt(t.periods, p.at.Add(time.Duration(i)*rollup.Quarter))
	}
	within, _ := p.within(r)
	var g *group // nil where nothing is asked for
	var of *int64
	return rollup.Walk(p.cells, t.wanted(), func(c *rollup.Cell, fresh bool) {
		if fresh {
			if g = nil; within[c.Quarter] && t.asks(c.Kind) {
				g = t.group(c.Kind, period[c.Quarter])
				of = g.of(c.Kind.Status)
			}
		}
		if g != nil {
			g.add(c, of)
		}
	})
}

// answer is what was counted, told apart as the query asks.
func (t *tally) answer() Statistics {
	all := slices.DeleteFunc(t.byTime, func(g *group) bool { return g == nil })
	for _, g := range t.byWord {
		all = append(all, g)
	}
	for _, g := range t.byJob {
		all = append(all, g)
	}
	if t.Group != ByHour && t.Group != ByDay {
		slices.SortFunc(all, func(a, b *group) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), bytes.Compare(a.job[:], b.job[:]), strings.Compare(a.Key, b.Key))
		})
	}
	if t.Group != ByJob { // whose groups are some of the jobs
		for _, g := range all {
			t.whole.join(g)
		}
	}
	answer := Statistics{Whole: t.whole.summary(), Groups: []Summary{}, Truncated: t.more || len(all) > MaxGroups}
	for _, g := range all[:min(len(all), MaxGroups)] {
		if t.Group == ByJob {
			g.Key = g.job.String()
		}
		answer.Groups = append(answer.Groups, g.summary())
	}
	return answer
}

func (g *group) summary() Summary {
	s := g.Summary
	if s.Timed > 0 {
		s.AverageMS = float64(g.ms) / float64(s.Timed)
		s.P50MS = durationOf(g.durations.percentile(50, s.Timed))
		s.P95MS = durationOf(g.durations.percentile(95, s.Timed))
		s.P99MS = durationOf(g.durations.percentile(99, s.Timed))
	}
	return s
}
