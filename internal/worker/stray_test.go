package worker_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/worker"
)

// A run that never returns ends as a failed attempt, and its slot goes to the
// next one. Its outcome, when it does return, is dropped.
func TestRunThatNeverReturnsCostsNoSlot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release := make(chan struct{})
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		if strings.Contains(string(run.Config), "stuck") {
			<-release
		}
		return executor.Outcome{Result: json.RawMessage(`"done"`)}
	}
	w := b.start(func(c *worker.Config) { c.Slots = 1 })
	stuck := b.pending(func(s *job.Spec) {
		s.Config, s.Timeout, s.Retry.MaxRetries = []byte(`{"stuck":true}`), 1, 0
	})
	b.handle(w, stuck.ID)
	got := b.reaches(stuck.ID, execution.Failed)
	if got.Error == nil || got.Error.Type != "TIMEOUT" {
		t.Errorf("ended as %+v, want a TIMEOUT", got.Error)
	}
	next := b.pending(nil)
	b.handle(w, next.ID)
	b.reaches(next.ID, execution.Completed)
	close(release)
	w.stop()
	if after := b.reaches(stuck.ID, execution.Failed); len(after.Result) != 0 {
		t.Errorf("the late result was recorded: %s", after.Result)
	}
}

// Only so many runs as there are slots are given up: a function that never
// returns cannot fill a worker without end.
func TestRunsThatNeverReturnAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	release, begun := make(chan struct{}), make(chan uuid.UUID, 10)
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		begun <- run.ExecutionID
		<-release
		return executor.Outcome{}
	}
	w := b.start(func(c *worker.Config) { c.Slots, c.Drain = 1, time.Millisecond })
	pending := func() uuid.UUID {
		return b.pending(func(s *job.Spec) { s.Timeout, s.Retry.MaxRetries = 1, 0 }).ID
	}
	first, second, third := pending(), pending(), pending()
	b.handle(w, first)
	b.reaches(first, execution.Failed)
	b.handle(w, second) // in the slot of the first, which goes on
	within(t, "the first", begun)
	within(t, "the second", begun)
	// The second is past its end and grace before this hint's patience has run out
	// a few times; it keeps its slot, because the first still goes on.
	for range 8 {
		b.hint(w, third)
	}
	if len(begun) != 0 {
		t.Error("a third run began beside two that never end, in a worker of one slot")
	}
	close(release)
	w.stop()
}

// A definition that nobody can read, as a half-written row would be, ends the
// run as failed without a retry; so does a type that there is not, whatever
// types the worker has.
func TestUndecodableDefinitionAndUnknownTypeFail(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, change string }{
		{"definition is no object", `UPDATE job_versions SET spec = '[1,"x"]'`},
		{"definition is of other types", `UPDATE job_versions SET spec = '{"Name":7,"Config":[[]],"Retry":"x"}'`},
		{"retries are no rule", `UPDATE job_versions SET spec = spec || '{"retryConfig": "x"}'`},
		{"executionTimeout is no whole number", `UPDATE job_versions SET spec = spec || '{"executionTimeout": 1.5}'`},
		{"definition is gone", `DELETE FROM job_versions`},
		{"type is unknown", `UPDATE active_executions SET job_type = 'pigeon'`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.run = func(context.Context, executor.Run) executor.Outcome { return executor.Outcome{} }
			w := b.start(nil)
			e := b.pending(nil)
			b.exec(test.change)
			b.handle(w, e.ID)
			got := b.reaches(e.ID, execution.Failed)
			if got.Error == nil || got.Error.Type != "VALIDATION_ERROR" || got.Attempt != 1 {
				t.Errorf("ended as %+v after %d attempts, want a VALIDATION_ERROR and no retry", got.Error, got.Attempt)
			}
			healthy := b.pending(nil)
			b.handle(w, healthy.ID)
			b.reaches(healthy.ID, execution.Completed)
		})
	}
}
