package maintenance_test

import (
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/queue"
)

// A run that loses its worker costs no retry, but not for ever: a third lost
// worker ends it.
func TestRunThatLosesItsWorkersIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, func(s *job.Spec) { s.Retry.MaxRetries = 0 })
	due := *j.NextExecutionAt
	b.pass(t, due)
	b.hints.take()
	id := execution.ScheduledID(j.ID, due)
	now := due
	for loss := 1; loss <= 3; loss++ {
		b.claimBy(t, id.String(), now.Add(time.Second), now.Add(time.Hour))
		if r := b.sweep(t, now.Add(time.Second)); r.Dead != 0 || r.Reclaimed != 0 {
			t.Fatalf("within the lease: %+v", r)
		}
		now = now.Add(2 * time.Second)
		r := b.sweep(t, now)
		if r.Dead != 1 || r.Reclaimed != 1 {
			t.Fatalf("loss %d: %+v", loss, r)
		}
		if hinted := len(b.hints.take()[queue.Low]); loss < 3 && hinted != 1 {
			t.Fatalf("loss %d: %d hints", loss, hinted)
		}
	}
	row := b.rows(t, j)[0]
	if row.Status != execution.Failed || row.Error == nil || row.Error.Type != "SYSTEM_ERROR" || row.Attempt != 3 || len(row.Attempts) != 3 {
		t.Errorf("after three lost workers: %+v, %+v", row, row.Error)
	}
	if r := b.sweep(t, now); r.Reclaimed != 0 {
		t.Errorf("swept again: %+v", r)
	}
}

// A worker that lives but does not end a run in time loses it: the run counts
// as timed out and uses up the job's retries.
func TestRunPastItsDeadlineIsTakenFromItsWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, func(s *job.Spec) { s.Retry.MaxRetries = 1 })
	due := *j.NextExecutionAt
	b.pass(t, due)
	id := execution.ScheduledID(j.ID, due).String()
	alive := due.Add(time.Hour)
	b.claimBy(t, id, alive, due.Add(10*time.Second))
	if r := b.sweep(t, due.Add(10*time.Second)); r.Reclaimed != 0 {
		t.Fatalf("at the deadline: %+v", r)
	}
	if r := b.sweep(t, due.Add(11*time.Second)); r.Reclaimed != 1 || r.Ended != 0 {
		t.Fatalf("after it: %+v", r)
	}
	b.claimBy(t, id, alive, due.Add(20*time.Second))
	if r := b.sweep(t, due.Add(21*time.Second)); r.Ended != 1 {
		t.Fatalf("after the last attempt's: %+v", r)
	}
	if row := b.rows(t, j)[0]; row.Status != execution.Failed || row.Error.Type != "TIMEOUT" {
		t.Errorf("%+v, %+v", row, row.Error)
	}
}

// A cancelled run of a dead worker ends instead of being reassigned.
func TestCancelledRunOfADeadWorkerEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	due := *j.NextExecutionAt
	b.pass(t, due)
	b.claimBy(t, execution.ScheduledID(j.ID, due).String(), due.Add(time.Second), due.Add(time.Hour))
	if err := b.jobs.Delete(t.Context(), b.who, j.ID, "", 0); err != nil {
		t.Fatal(err)
	}
	b.sweep(t, due.Add(5*time.Second))
	if row := b.rows(t, j)[0]; row.Status != execution.Cancelled || row.Reason == "" {
		t.Errorf("%+v", row)
	}
}
