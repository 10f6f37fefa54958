package rollup_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/statistics/rollup"
)

// key is what tells cells apart.
type key struct {
	job             uuid.UUID
	kind            rollup.Kind
	quarter, bucket int
}

type counts struct{ rows, retried, duration int64 }

func total(cells []rollup.Cell) map[key]counts {
	all := map[key]counts{}
	for _, c := range cells {
		k := key{c.Job, c.Kind, c.Quarter, c.Bucket}
		n := all[k]
		all[k] = counts{n.rows + c.Rows, n.retried + c.Retried, n.duration + c.DurationMS}
	}
	return all
}

func cells() *rapid.Generator[[]rollup.Cell] {
	return rapid.SliceOf(rapid.Custom(func(t *rapid.T) rollup.Cell {
		word := func(name string, words ...string) string { return rapid.SampledFrom(words).Draw(t, name) }
		return rollup.Cell{
			Job: uuid.UUID{15: byte(rapid.IntRange(0, 3).Draw(t, "job"))},
			Kind: rollup.Kind{
				JobType: word("type", "http", "function", "command", "", "a type of tomorrow"), Trigger: word("trigger", "scheduled", "dependency", "x"),
				Status: word("status", "completed", "missed", "unknown"),
			},
			Quarter: rapid.IntRange(0, 3).Draw(t, "quarter"), Bucket: rapid.IntRange(rollup.None, 880).Draw(t, "bucket"),
			Rows: rapid.Int64Range(1, 1<<40).Draw(t, "rows"), Retried: rapid.Int64Range(0, 1<<40).Draw(t, "retried"),
			DurationMS: rapid.Int64Range(0, 1<<50).Draw(t, "duration"),
		}
	}))
}

func pack(t interface{ Fatal(args ...any) }, cells []rollup.Cell) []byte {
	packed, err := rollup.Merge(nil, cells)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func unpack(t *rapid.T, packed []byte, wanted func(uuid.UUID) bool) (all []rollup.Cell) {
	if err := rollup.Walk(packed, wanted, func(c *rollup.Cell, _ bool) { all = append(all, *c) }); err != nil {
		t.Fatal(err)
	}
	return all
}

// A reader gets all that was packed and merged, in whatever order, each once.
func TestNothingIsLostInPacking(t *testing.T) {
	t.Parallel()
	compare := gocmp.AllowUnexported(key{}, counts{})
	rapid.Check(t, func(t *rapid.T) {
		first, second := cells().Draw(t, "first"), cells().Draw(t, "second")
		want := total(slices.Concat(first, second))
		packed, err := rollup.Merge(pack(t, first), second)
		if err != nil {
			t.Fatal(err)
		}
		got := unpack(t, packed, nil)
		if diff := gocmp.Diff(want, total(got), compare); diff != "" || len(got) != len(want) {
			t.Fatalf("%d cells (-packed +read):\n%s", len(got), diff)
		}
		if !slices.IsSortedFunc(got, func(a, b rollup.Cell) int { return cmp.Compare(a.Job[15], b.Job[15]) }) {
			t.Fatalf("jobs are not together: %+v", got)
		}
		runs := 0
		perJob := map[uuid.UUID]int64{}
		if err := rollup.Walk(packed, nil, func(c *rollup.Cell, fresh bool) {
			perJob[c.Job] += c.Rows
			if fresh {
				runs++
			}
		}); err != nil {
			t.Fatal(err)
		}
		if err := rollup.Jobs(packed, func(job uuid.UUID, rows int64) {
			if rows != perJob[job] {
				t.Fatalf("%v has %d, want %d", job, rows, perJob[job])
			}
			delete(perJob, job)
		}); err != nil || len(perJob) > 0 {
			t.Fatalf("%v are left: %v", perJob, err)
		}
		different := map[key]bool{}
		for _, c := range got {
			different[key{job: c.Job, kind: c.Kind, quarter: c.Quarter}] = true
		}
		if runs != len(different) {
			t.Fatalf("%d runs, want %d", runs, len(different))
		}
		one := uuid.UUID{15: 1}
		for _, c := range unpack(t, packed, func(job uuid.UUID) bool { return job == one }) {
			if c.Job != one {
				t.Fatalf("%v was not asked for", c.Job)
			}
		}
	})
}

// A text that was cut or changed on the way is refused or read as something else, and
// nothing worse.
func TestWhatIsNoRollup(t *testing.T) {
	t.Parallel()
	one := pack(t, []rollup.Cell{{Kind: rollup.Kind{JobType: "http", Trigger: "scheduled", Status: "completed"}, Rows: 300}})
	for length := range len(one) {
		err := rollup.Walk(one[:length], nil, func(*rollup.Cell, bool) {})
		if (err == nil) != (length == 1) { // none of any job
			t.Errorf("cut to %d of %d bytes: %v", length, len(one), err)
		}
	}
	if err := rollup.Walk(append([]byte{2}, one[1:]...), nil, func(*rollup.Cell, bool) {}); err == nil {
		t.Error("another version was read")
	}
	rapid.Check(t, func(t *rapid.T) {
		packed := pack(t, cells().Draw(t, "cells"))
		packed[rapid.IntRange(0, len(packed)-1).Draw(t, "place")] ^= byte(rapid.IntRange(1, 255).Draw(t, "change"))
		_ = rollup.Walk(packed, nil, func(*rollup.Cell, bool) {})
	})
}

// Spans lie end to end, and none is of two months, which go one after the other.
func TestSpansCoverMonths(t *testing.T) {
	t.Parallel()
	for _, span := range []rollup.Span{rollup.Hour, rollup.Day, rollup.Week} {
		last := time.Date(2028, 4, 1, 0, 0, 0, 0, time.UTC)
		for at := time.Date(2027, 12, 1, 0, 0, 0, 0, time.UTC); at.Before(last); at = span.End(at) {
			end := span.End(at)
			within := end.Add(-time.Nanosecond)
			if !span.Begin(at).Equal(at) || !span.Begin(within).Equal(at) || !span.End(within).Equal(end) || within.Month() != at.Month() || !end.After(at) {
				t.Fatalf("span %d from %v to %v", span, at, end)
			}
		}
	}
	if got := rollup.Week.End(time.Date(2028, 2, 22, 0, 0, 0, 0, time.UTC)); got.Day() != 1 || got.Month() != time.March {
		t.Errorf("the last week of a February ends %v", got)
	}
}

func TestEveryJobHasAPart(t *testing.T) {
	t.Parallel()
	seen := map[int16]bool{}
	for range 10_000 {
		id := uuid.New()
		part := rollup.PartOf(id)
		if part < 1 || part > rollup.Parts || part != rollup.PartOf(id) {
			t.Fatalf("%v is in part %d", id, part)
		}
		seen[part] = true
	}
	if len(seen) != rollup.Parts {
		t.Errorf("%d parts are used", len(seen))
	}
}

// 10,000 jobs, as often as an hour's roll-ups of a large tenant are replaced.
func BenchmarkMerge(b *testing.B) {
	var some []rollup.Cell
	for range 10_000 {
		some = append(some, rollup.Cell{Job: uuid.New(), Kind: rollup.Kind{JobType: "http", Trigger: "scheduled", Status: "completed"}, Bucket: 97, Rows: 1, DurationMS: 130})
	}
	packed := pack(b, some)
	b.ReportMetric(float64(len(packed))/float64(len(some)), "bytes/cell")
	for b.Loop() {
		if _, err := rollup.Merge(packed, some); err != nil {
			b.Fatal(err)
		}
	}
}
