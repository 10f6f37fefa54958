package maintenance_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
)

// An idle service is asked one thing, and each kind of work calls the pass that does
// it, until it is done.
func TestFindWork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	finds := func(at time.Time, want ...string) {
		t.Helper()
		got, err := b.maintainer.FindWork(t.Context(), at)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("(-want +got) %s; %v", diff, err)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	j := b.create(t, func(s *job.Spec) { s.Retry.MaxRetries = 0 })
	due := *j.NextExecutionAt
	finds(due)

	b.pass(t, due)
	finds(due, "sweep", "count-waiting") // its hint may be lost, and it counts
	b.claimBy(t, execution.ScheduledID(j.ID, due).String(), due.Add(time.Second), due.Add(time.Hour))
	late := due.Add(2 * time.Second)
	exec(t, b.database.AdminURL, "UPDATE active_executions SET lost_count = 100")
	if report := b.sweep(t, late); report.Dead != 1 || report.Ended != 1 {
		t.Fatalf("the sweep did %+v", report)
	}
	finds(late, "change-status") // it failed, perhaps as often as its job allows
	finds(late.Add(time.Minute))

	exec(t, b.database.AdminURL, "INSERT INTO workers (id, host, pid, slots, expires_at) VALUES (gen_random_uuid(), 'test', 1, 1, now())")
	finds(late.Add(time.Minute), "sweep")
	b.sweep(t, late.Add(time.Minute))
	finds(late.Add(time.Minute))

	until := late.Add(time.Hour)
	_, err := b.jobs.Pause(t.Context(), b.who, j.ID, "", &until)
	do(err)
	finds(until.Add(-time.Second))
	finds(until, "change-status")
	_, _, err = b.maintainer.ChangeStatus(t.Context(), until)
	do(err)
	finds(until)

	exec(t, b.database.AdminURL, fmt.Sprintf("INSERT INTO cancellations VALUES ('%s', '%s', 1, false, now(), '', '')", b.who.TenantID, j.ID))
	finds(until, "cancel")
	_, err = b.maintainer.Cancel(t.Context())
	do(err)
	finds(until)

	exec(t, b.database.AdminURL, fmt.Sprintf(`INSERT INTO dead_letter_replays
		(id, tenant_id, selected, from_at, to_at, rate_per_minute, no_secrets, status, after_at, after_id, total, next_at, requested_by, created_at)
		VALUES (gen_random_uuid(), '%s', '{}', now(), now(), 1, false, 'running', now(), gen_random_uuid(), 1, '%s', 'ada', now())`, b.who.TenantID, until.Format(time.RFC3339Nano)))
	finds(until.Add(-time.Second))
	finds(until, "replay-dead-letters")

	tenants := b.tenants(t)
	_, err = tenants.Suspend(t.Context(), b.who.TenantID, "")
	do(err)
	finds(until, "suspend")
	b.suspend(t)
	finds(until)
	_, err = tenants.Activate(t.Context(), b.who.TenantID)
	do(err)
	finds(until, "suspend", "replay-dead-letters")
	b.suspend(t)
	exec(t, b.database.AdminURL, "DELETE FROM dead_letter_replays")
	finds(until)
	_, err = tenants.Delete(t.Context(), b.who.TenantID, 0)
	do(err)
	finds(until, "suspend")
}

// Numbers that are kept of a backlog that is gone are removed.
func TestFindWorkSeesKeptNumbers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exec(t, b.database.AdminURL, "INSERT INTO waiting_counts VALUES (gen_random_uuid(), gen_random_uuid(), 600)")
	got, err := b.maintainer.FindWork(t.Context(), time.Time{})
	if diff := cmp.Diff([]string{"count-waiting"}, got); diff != "" || err != nil {
		t.Fatalf("(-want +got) %s; %v", diff, err)
	}
	if _, err := b.maintainer.CountWaiting(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err = b.maintainer.FindWork(t.Context(), time.Time{}); len(got) > 0 || err != nil {
		t.Errorf("afterwards %v, %v", got, err)
	}
}
