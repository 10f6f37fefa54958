package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/output"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// logs is the output of an execution.
func (b *bundle) logs(id uuid.UUID) []output.Line {
	b.t.Helper()
	store := output.NewStore(open(b.t, b.database.URL, postgres.API))
	var all []output.Line
	for at, more := (output.Position{}), true; more; {
		var page []output.Line
		var err error
		if page, at, more, err = store.List(b.t.Context(), b.who, id, output.Filter{After: at, Limit: 700}); err != nil {
			b.t.Fatal(err)
		}
		all = append(all, page...)
	}
	return all
}

func texts(lines []output.Line) (all []string) {
	for _, l := range lines {
		all = append(all, fmt.Sprintf("%d.%d %s: %s", l.Attempt, l.Number, l.Stream, l.Text))
	}
	return all
}

// When an execution has finished, the output of all its attempts is there, in order, without
// secrets and whatever bytes it held.
func TestOutputOfEveryAttemptIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.sealing(t)
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		run.Report.Output(executor.Stdout, []byte("begins with "+canary[:9]))
		run.Report.Output(executor.Stderr, []byte("a\x00\xffb\n"))
		run.Report.Output(executor.Stdout, []byte(canary[9:]+"\n"))
		run.Report.Progress(30*run.Attempt, "copies "+canary)
		if run.Attempt == 1 {
			return executor.Outcome{Err: &executor.Error{Type: executor.NetworkError, Message: "no"}}
		}
		return executor.Outcome{Err: &executor.Error{Type: executor.UserError, Message: "no"}}
	}
	w := b.start(nil)
	e := b.pending(func(s *job.Spec) {
		s.Retry.MaxRetries, s.Retry.DelayMS = 1, 60_000
		s.Config = []byte(`{"parameters":{"a":"{{secret:key}}"}}`)
	})
	b.handle(w, e.ID)
	if got := b.reaches(e.ID, execution.Retrying); got.Progress != 30 || got.Doing != "copies ***" {
		t.Errorf("after the first attempt it is at %d %q", got.Progress, got.Doing)
	}
	b.exec("UPDATE active_executions SET available_at = now()")
	b.poll(w)
	if got := b.reaches(e.ID, execution.Failed); got.Progress != 60 || got.Doing != "copies ***" {
		t.Errorf("it ended at %d %q", got.Progress, got.Doing)
	}
	want := []string{
		"1.1 stderr: a\uFFFD\uFFFDb", "1.2 stdout: begins with ***",
		"2.1 stderr: a\uFFFD\uFFFDb", "2.2 stdout: begins with ***",
	}
	if diff := cmp.Diff(want, texts(b.logs(e.ID))); diff != "" {
		t.Errorf("output differs (-want +got):\n%s", diff)
	}
}

// The database refuses output of an attempt whose execution was given to another.
func TestOutputOfALostAttemptIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	started, speak := make(chan struct{}), make(chan struct{})
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		close(started)
		<-speak
		run.Report.Output(executor.Log, []byte("late"))
		run.Report.Progress(90, "late")
		return executor.Outcome{}
	}
	w := b.start(nil)
	e := b.pending(nil)
	b.handle(w, e.ID)
	<-started
	b.exec("UPDATE active_executions SET lease_token = gen_random_uuid()")
	close(speak)
	w.stop()
	if got := b.logs(e.ID); len(got) > 0 {
		t.Errorf("stored %v", texts(got))
	}
	if got, err := b.executions.Get(t.Context(), b.who, e.ID); err != nil || got.Progress != 0 || got.Doing != "" {
		t.Errorf("%v, progress %d %q", err, got.Progress, got.Doing)
	}
}

// Runs that write without end are bounded and do not keep others, and the last that each of
// them wrote is there.
func TestOutputBombsHarmNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	enough := make(chan struct{})
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		if !strings.Contains(string(run.Config), "bomb") {
			return executor.Outcome{}
		}
		text := []byte(strings.Repeat("x", 100) + "\n")
		for range 100_000 {
			run.Report.Output(executor.Stdout, text)
		}
		<-enough
		run.Report.Output(executor.Stdout, []byte("the end"))
		return executor.Outcome{}
	}
	w := b.start(nil)
	var bombs []execution.Execution
	for range 3 {
		e := b.pending(func(s *job.Spec) { s.Config = []byte(`{"bomb":true}`) })
		b.handle(w, e.ID)
		bombs = append(bombs, e)
	}
	for range 5 {
		e := b.pending(nil)
		b.handle(w, e.ID)
		b.reaches(e.ID, execution.Completed)
	}
	close(enough)
	for _, bomb := range bombs {
		b.reaches(bomb.ID, execution.Completed)
		got := b.logs(bomb.ID)
		kept, dropped := 0, 0
		for _, l := range got {
			if kept++; l.Dropped != nil {
				kept, dropped = kept-1, l.Dropped.Lines
			}
		}
		if last := got[len(got)-1]; last.Text != "the end" || last.Number != 100_001 || kept+dropped != 100_001 || kept > 2000 {
			t.Errorf("kept %d, dropped %d, the last is %d %q", kept, dropped, last.Number, last.Text)
		}
	}
}
