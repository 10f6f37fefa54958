package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/callback"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/job"
)

// exceeded holds an execution to its end by executionTimeout.
func (b *bundle) exceeded(e execution.Execution, attempt int, message string) {
	b.t.Helper()
	got := b.reaches(e.ID, execution.Failed)
	if got.Attempt != attempt || got.Error == nil || got.Error.Type != "TIMEOUT" || got.Error.Message != message {
		b.t.Errorf("ended at attempt %d with %+v, want attempt %d with %q", got.Attempt, got.Error, attempt, message)
	}
}

// An execution has the time of executionTimeout over all its attempts: an attempt gets what
// is left, one that would start too late is not awaited, and one whose turn comes too late
// is not made.
func TestExecutionTimeoutBoundsAllAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	timeouts := make(chan time.Duration, 10)
	b.run = func(_ context.Context, run executor.Run) executor.Outcome {
		timeouts <- run.Timeout
		return executor.Outcome{Err: &executor.Error{Type: executor.NetworkError, Message: "refused"}}
	}
	w := b.start(nil)
	bounded := func(delay int64) execution.Execution {
		return b.pending(func(s *job.Spec) {
			s.Timeout, s.ExecutionTimeout = 300, 600
			s.Retry = job.Retry{MaxRetries: 5, DelayMS: delay, MaxDelayMS: delay, OnErrorTypes: []string{"NETWORK_ERROR"}}
		})
	}
	e := bounded(3_600_000)
	b.handle(w, e.ID)
	b.exceeded(e, 1, "the executionTimeout of 600 s leaves no time for another; the last attempt: NETWORK_ERROR: refused")
	if got := within(t, "a first attempt", timeouts); got > 300*time.Second || got < 200*time.Second {
		t.Errorf("the first attempt got %s", got)
	}

	e = bounded(1000)
	b.handle(w, e.ID)
	b.reaches(e.ID, execution.Retrying)
	within(t, "a first attempt", timeouts)
	b.exec("UPDATE active_executions SET started_at = started_at - interval '500 seconds', available_at = now()")
	b.handle(w, e.ID)
	eventually(t, "the second attempt failed", func() bool { return b.reaches(e.ID, execution.Retrying).Attempt == 2 })
	if got := within(t, "a second attempt", timeouts); got > 100*time.Second || got <= 0 {
		t.Errorf("with 100 s left the second attempt got %s", got)
	}
	b.exec("UPDATE active_executions SET started_at = started_at - interval '500 seconds', available_at = now()")
	b.handle(w, e.ID)
	b.exceeded(e, 3, "the executionTimeout of 600 s has passed; the last attempt: TIMEOUT: no attempt was made")
	if len(timeouts) != 0 {
		t.Error("an attempt was made after the time had passed")
	}
}

// A wait for a callback ends with the execution's time, and a failure that is reported ends
// the execution where no other attempt fits.
func TestExecutionTimeoutBoundsWaitsForACallback(t *testing.T) {
	t.Parallel()
	a := setupAwaited(t)
	w := a.work(1)
	bounded := func(s *job.Spec) {
		s.Timeout, s.ExecutionTimeout = 300, 60
		s.Retry = job.Retry{MaxRetries: 5, DelayMS: 120_000, MaxDelayMS: 120_000, OnErrorTypes: []string{"NETWORK_ERROR", "TIMEOUT"}}
	}
	e := a.pending(bounded)
	a.handle(w, e.ID)
	at := a.waits(1)
	for len(a.tokens) > 0 {
		<-a.tokens
	}
	a.complete(at, callback.Report{Err: &callback.Failure{Type: "NETWORK_ERROR", Message: "gone"}}, "failed")
	a.exceeded(e, 1, "the executionTimeout of 60 s leaves no time for another; the last attempt: NETWORK_ERROR: gone")

	e = a.pending(bounded)
	a.handle(w, e.ID)
	a.waits(1)
	now := clock.Now()
	for want, after := range []time.Duration{30 * time.Second, 70 * time.Second} {
		if n, err := a.maintns.EndAwaited(t.Context(), now.Add(after)); err != nil || n != want {
			t.Errorf("after %s %d waits ended, %v, want %d", after, n, err, want)
		}
	}
	got := a.reaches(e.ID, execution.Failed)
	if got.Error.Type != "TIMEOUT" || !strings.HasPrefix(got.Error.Message, "the executionTimeout of 60 s has passed; the last attempt: TIMEOUT: timed out after ") {
		t.Errorf("ended with %+v", got.Error)
	}
}
