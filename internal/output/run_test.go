package output

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

func writer() *Writer {
	return NewWriter(nil, telemetry.NewMetrics(telemetry.NewRegistry()), slog.New(slog.DiscardHandler))
}

// lines are the lines that a run would write by now.
func lines(t *testing.T, r *Run) (all []Line) {
	t.Helper()
	chunks, _ := r.take()
	for _, c := range chunks {
		some, err := decode(c.attempt.Number, c.lines)
		if err != nil {
			t.Fatal(err)
		}
		if last := some[len(some)-1].Number; last != c.last {
			t.Errorf("a chunk up to line %d says %d", last, c.last)
		}
		all = append(all, some...)
	}
	return all
}

func texts(lines []Line) (all []string) {
	for _, l := range lines {
		text := string(l.Stream) + ": " + l.Text
		if l.Continues {
			text += " ..."
		}
		if l.Dropped != nil {
			text = fmt.Sprintf("%d dropped", l.Dropped.Lines)
		}
		all = append(all, text)
	}
	return all
}

func TestTextBecomesLines(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		say  func(r *Run)
		want []string
	}{
		{"nothing", func(*Run) {}, nil},
		{"pieces of lines", func(r *Run) {
			r.Output(executor.Stdout, []byte("a"))
			r.Output(executor.Stderr, []byte("x\ny"))
			r.Output(executor.Stdout, []byte("b\r\nc\n\nd"))
		}, []string{"stderr: x", "stdout: ab", "stdout: c", "stdout: ", "stdout: d", "stderr: y"}},
		{"messages", func(r *Run) {
			r.Output(executor.Log, []byte("one"))
			r.Output(executor.Log, []byte("two\n"))
			r.Output(executor.Log, []byte("three\nfour"))
		}, []string{"log: one", "log: two", "log: three", "log: four"}},
		{"hostile", func(r *Run) { r.Output(executor.Stdout, []byte("a\x00b\xff\xfe\x1b[31m\u2028\n")) }, []string{"stdout: a\uFFFDb\uFFFD\x1b[31m\u2028"}},
		{"a long line", func(r *Run) {
			r.Output(executor.Stdout, []byte(strings.Repeat("é", lineBytes/2-1)))
			r.Output(executor.Stdout, []byte("xéy\n"))
		}, []string{"stdout: " + strings.Repeat("é", lineBytes/2-1) + "x ...", "stdout: éy"}},
		{"no characters at all", func(r *Run) { r.Output(executor.Stdout, []byte(strings.Repeat("\x80", lineBytes+1))) }, []string{"stdout: \uFFFD ...", "stdout: \uFFFD"}},
		{"after the end", func(r *Run) {
			r.End(func() {})
			r.Output(executor.Stdout, []byte("late\n"))
			r.Progress(50, "late")
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := writer().Begin(Attempt{ID: uuid.New(), Number: 2})
			test.say(r)
			r.End(func() {})
			got := lines(t, r)
			if diff := cmp.Diff(test.want, texts(got)); diff != "" {
				t.Errorf("lines differ (-want +got):\n%s", diff)
			}
			for i, l := range got {
				if l.Attempt != 2 || l.Number != i+1 || l.At.IsZero() {
					t.Errorf("line %d is %+v", i+1, l)
				}
			}
		})
	}
}

// However much is written, the beginning and the end are kept, the numbers say where a line
// stood, and what is kept and what was dropped are the whole.
func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := writer()
		r := w.Begin(Attempt{Number: 1})
		n, width := rapid.IntRange(1, 20_000).Draw(rt, "lines"), rapid.IntRange(8, 3*lineBytes).Draw(rt, "width")
		pieces := (width + lineBytes - 1) / lineBytes
		n = min(n, (4<<20)/width)
		var kept []Line
		for i := range n {
			r.Output(executor.Stdout, []byte(fmt.Sprintf("%0*d\n", width, i)))
			if i%1000 == 0 {
				kept = append(kept, lines(t, r)...)
			}
			if w.memory.Load() > headBytes+tailBytes {
				rt.Fatalf("%d bytes are held", w.memory.Load())
			}
		}
		r.End(func() {})
		kept = append(kept, lines(t, r)...)
		if w.memory.Load() != 0 {
			rt.Fatalf("%d bytes are held after the end", w.memory.Load())
		}
		counted, bytes, next := 0, 0, 1
		for _, l := range kept {
			if l.Dropped != nil {
				counted, next = counted+l.Dropped.Lines, next+l.Dropped.Lines-1
			}
			if l.Number != next {
				rt.Fatalf("line %d stands in the place of %d", l.Number, next)
			}
			counted, next, bytes = counted+1, next+1, bytes+len(l.Text)+lineCost
			if l.Dropped != nil {
				counted--
			}
		}
		if counted != n*pieces || bytes > headBytes+tailBytes+lineCost {
			rt.Fatalf("%d lines of %d are accounted for, in %d bytes", counted, n*pieces, bytes)
		}
		if last := kept[len(kept)-1]; !strings.HasSuffix(last.Text, fmt.Sprint(n-1)) {
			rt.Fatalf("the last line is %q", last.Text)
		}
	})
}

// A worker that holds as much as it may drops the output of the run that writes next, and says so.
func TestMemoryOfAllRunsIsBounded(t *testing.T) {
	t.Parallel()
	w := writer()
	var runs []*Run
	for range 2 * memoryBytes / headBytes {
		r := w.Begin(Attempt{Number: 1})
		r.Output(executor.Stdout, []byte(strings.Repeat(strings.Repeat("x", 1000)+"\n", 180)))
		runs = append(runs, r)
	}
	if held := w.memory.Load(); held > memoryBytes || held < memoryBytes-headBytes {
		t.Errorf("%d bytes are held of %d", held, memoryBytes)
	}
	for _, r := range runs {
		r.End(func() {})
		total := 0
		for _, l := range lines(t, r) {
			if total++; l.Dropped != nil {
				total += l.Dropped.Lines - 1
			}
		}
		if total != 180 {
			t.Fatalf("%d lines of 180 are accounted for", total)
		}
	}
	if held := w.memory.Load(); held != 0 {
		t.Errorf("%d bytes are held after all have ended", held)
	}
}

func TestOnlyTheLastProgressIsWritten(t *testing.T) {
	t.Parallel()
	r := writer().Begin(Attempt{Number: 1})
	for i := range 300 {
		r.Progress(i, strings.Repeat("é", 150))
	}
	_, first := r.take()
	if first == nil || first.percent != 100 || first.message != strings.Repeat("é", 100) {
		t.Fatalf("reported %+v", first)
	}
	r.Progress(-3, "a\x00")
	if _, again := r.take(); again != nil {
		t.Errorf("within the same second %+v is reported, too", again)
	}
	r.End(func() {})
	if _, again := r.take(); again == nil || again.percent != 0 || again.message != "a\uFFFD" {
		t.Errorf("at the end %+v is reported", again)
	}
}

// A run that writes nothing ends where it is called, and its writer never hears of it.
func TestARunThatSaysNothingCostsNothing(t *testing.T) {
	t.Parallel()
	w := writer()
	r, ended := w.Begin(Attempt{}), false
	r.End(func() { ended = true })
	if !ended || len(w.ready) > 0 || len(w.woken) > 0 || len(w.rush) > 0 {
		t.Errorf("ended %v, %d queued", ended, len(w.ready))
	}
}
