package maintenance_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres/refusal"
)

// TestRefusedRowStopsNoSweep has a worker die with four healthy executions and
// one of which the database refuses any end, for each SQLSTATE that repeating
// cannot mend: the four are reassigned in the same pass. On the commit before,
// the sweep ended with an error and all five stayed running.
func TestRefusedRowStopsNoSweep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	shared := b.create(t, nil)
	for _, code := range refusal.SQLSTATEs() {
		poison := b.create(t, func(s *job.Spec) { s.ConcurrencyKey = "of " + code })
		for _, j := range []job.Job{shared, shared, poison, shared, shared} {
			if _, _, err := b.executions.Trigger(t.Context(), b.who, j.ID, nil, idempotency.Key{}); err != nil {
				t.Fatal(err)
			}
		}
		refused := refusal.Refusal{Name: "one", Table: "job_executions", Rows: "NEW.job_id = '" + poison.ID.String() + "'", SQLSTATE: code}
		exec(t, b.database.AdminURL, refused.Begin())
		// On a worker that lives, and beyond the deadline: without a retry it ends.
		exec(t, b.database.AdminURL, fmt.Sprintf(`WITH w AS (INSERT INTO workers (id, host, pid, slots, expires_at) VALUES (gen_random_uuid(), 'test', 1, 1, 'infinity') RETURNING id)
			UPDATE active_executions SET status = 'running', attempt = 1, max_attempts = CASE WHEN job_id = '%s' THEN 1 ELSE 5 END, worker_id = w.id,
				lease_token = gen_random_uuid(), attempt_started_at = now(), deadline_at = now() - interval '1 second', sweep_at = now() FROM w`, poison.ID))
		exec(t, b.database.AdminURL, "UPDATE running_shards SET runs = runs + 5, runs_by_type = add_by_type(runs_by_type, array_fill('function'::text, ARRAY[5]), 1) WHERE shard = 3")
		report, err := b.maintainer.Sweep(t.Context(), time.Time{})
		if err != nil || report.Reclaimed != 5 || report.Parked != 1 || report.Ended != 0 {
			t.Fatalf("%s: %+v, %v", code, report, err)
		}
		if n := b.number(t, "SELECT count(*) FROM active_executions WHERE status = 'pending'"); n != 4 {
			t.Errorf("%s: %d are reassigned", code, n)
		}
		if n := b.number(t, "SELECT sum(running + coalesce((running_by_type->>'function')::int, 0)) FROM running_totals"); n != 0 {
			t.Errorf("%s: %d still count as running", code, n)
		}
		e := b.rows(t, poison)[0]
		if e.Status != execution.Pending || !strings.Contains(e.Reason, "SQLSTATE "+code) {
			t.Errorf("%s: shown as %s: %s", code, e.Status, e.Reason)
		}
		exec(t, b.database.AdminURL, refused.End())
		b.called = 0
		if report = b.sweep(t, clock.Now().Add(time.Minute)); report.Settled != 1 || b.called != 1 {
			t.Errorf("%s: once it is mended: %+v, and workers were called %d times", code, report, b.called)
		}
		if e = b.rows(t, poison)[0]; e.Status != execution.Failed || e.Error.Type != "TIMEOUT" {
			t.Errorf("%s: ended as %s, %+v", code, e.Status, e.Error)
		}
		exec(t, b.database.AdminURL, "DELETE FROM active_executions")
	}
}

// An attempt may begin to await its callback between the look at what is lost and the park of
// it. It is not lost, and its tenant does not count it any more.
func TestWhatAwaitsACallbackIsNotParkedAsLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	b.pass(t, *j.NextExecutionAt)
	store := dispatch.NewStore(b.engine, dispatch.Config{})
	exec(t, b.database.AdminURL, `UPDATE active_executions SET status = 'running', pooled = false, attempt = 1, worker_id = gen_random_uuid(),
		lease_token = gen_random_uuid(), attempt_started_at = now(), awaited_until = now() + interval '1 hour'`)
	id := execution.ScheduledID(j.ID, *j.NextExecutionAt)
	if freed, err := store.ParkLost(t.Context(), time.Time{}, id, "refused"); err != nil || len(freed) != 0 {
		t.Errorf("it was parked, and freed %+v, %v", freed, err)
	}
	exec(t, b.database.AdminURL, "UPDATE active_executions SET awaited_until = NULL")
	if freed, err := store.ParkLost(t.Context(), time.Time{}, id, "refused"); err != nil || len(freed) != 1 {
		t.Errorf("one that runs on a worker that is gone is not parked: %+v, %v", freed, err)
	}
}

// TestParkedIsTriedLessAndLessOften looks at when one that stays refused is tried
// again.
func TestParkedIsTriedLessAndLessOften(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	now := *j.NextExecutionAt
	b.pass(t, now)
	exec(t, b.database.AdminURL, refusal.Refusal{Name: "every", Table: "job_executions", SQLSTATE: "P0001"}.Begin())
	exec(t, b.database.AdminURL, fmt.Sprintf("UPDATE active_executions SET status = 'parked', parked_at = '%[1]s', sweep_at = '%[1]s', concurrency_limit = -1, parked_outcome = '{\"succeeded\":true}'",
		now.Format(time.RFC3339Nano)))
	for _, step := range []struct{ after, until time.Duration }{
		{0, time.Second}, {time.Second, 2 * time.Second}, {2 * time.Second, 4 * time.Second}, {time.Minute, 2 * time.Minute}, {time.Hour, time.Hour + 10*time.Minute},
	} {
		if r := b.sweep(t, now.Add(step.after)); r.Settled != 0 {
			t.Fatalf("after %v: %+v", step.after, r)
		}
		if e := b.rows(t, j)[0]; e.WaitingOn == nil || !e.WaitingOn.Until.Equal(now.Add(step.until)) {
			t.Errorf("after %v it waits for %+v, want a try %v after it was parked", step.after, e.WaitingOn, step.until)
		}
		if n := b.number(t, "SELECT count(*) FROM active_executions WHERE sweep_at = $1", now.Add(step.until)); n != 1 {
			t.Errorf("after %v it is not tried again %v after it was parked", step.after, step.until)
		}
	}
}

// TestStepsOfASweepAreIsolated makes the first step fail.
func TestStepsOfASweepAreIsolated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	now := *j.NextExecutionAt
	b.pass(t, now)
	exec(t, b.database.AdminURL, `INSERT INTO workers (id, host, pid, slots, expires_at) VALUES (gen_random_uuid(), 'test', 1, 1, '2000-01-01')`)
	exec(t, b.database.AdminURL, refusal.Refusal{Name: "worker", Table: "workers", Event: "UPDATE", SQLSTATE: "P0001"}.Begin())
	report, err := b.maintainer.Sweep(t.Context(), now.Add(time.Hour))
	if err == nil || report.Pooled != 1 {
		t.Errorf("%+v, %v; want the error of the first step and what the others did", report, err)
	}
}

// TestHintThatCannotBeRepeatedStopsNoOther refuses to put one of three into the
// pool.
func TestHintThatCannotBeRepeatedStopsNoOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var now time.Time
	jobs := make([]job.Job, 3)
	for i := range jobs {
		jobs[i] = b.create(t, nil)
		now = *jobs[i].NextExecutionAt
	}
	// Jobs that were created around the end of a second would be due twice at now.
	exec(t, b.database.AdminURL, fmt.Sprintf("UPDATE scheduled_jobs SET next_execution_at = '%s'", now.Format(time.RFC3339Nano)))
	b.pass(t, now)
	exec(t, b.database.AdminURL, refusal.Refusal{Name: "one", Table: "active_executions", Event: "UPDATE", Rows: "NEW.job_id = '" + jobs[1].ID.String() + "'", SQLSTATE: "P0001"}.Begin())
	report, err := b.maintainer.Sweep(t.Context(), now.Add(time.Hour))
	if err == nil || !strings.Contains(err.Error(), jobs[1].ID.String()) || report.Pooled != 2 {
		t.Errorf("%+v, %v", report, err)
	}
}
