package maintenance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fleet"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/maintenance"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/settled"
)

// nothingToCount has the numbers of all half minutes taken.
const nothingToCount = "UPDATE metric_totals SET taken_at = now() + interval '1 day', counted_to = now() + interval '1 day'"

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
	exec(t, b.database.AdminURL, nothingToCount)
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
	finds(late.Add(time.Minute), "collect-dead-letters")
	exec(t, b.database.AdminURL, "UPDATE dead_letter_cursor SET read_to = now() + interval '1 day'")
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
	exec(t, b.database.AdminURL, nothingToCount)
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

// The same statement finds the work of other packages: that of monitors, notifications,
// deadlines, objectives, and the numbers of each half minute.
func TestFindWorkElsewhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exec(t, b.database.AdminURL, nothingToCount)
	j := b.create(t, nil)
	now := clock.Now()
	fill := strings.NewReplacer("TENANT", "'"+b.who.TenantID.String()+"'", "JOB", "'"+j.ID.String()+"'", "NOW", "'"+now.Format(time.RFC3339Nano)+"'::timestamptz")
	for _, step := range []struct {
		name, sql string
		after     time.Duration // after NOW
		want      []string
	}{
		{"nothing", "SELECT", time.Hour, nil},
		{"a half minute that is taken", "UPDATE metric_totals SET taken_at = date_bin('30 seconds', NOW, '2000-01-01 00:00:00+00')", 0, nil},
		{"the next one", "SELECT", 30 * time.Second, []string{lease.Metrics}},
		{"it is taken too", nothingToCount, 30 * time.Second, nil},
		{"an objective", "INSERT INTO objectives (id, tenant_id, name, kind, tag, target, window_days, created_by, created_at) VALUES (gen_random_uuid(), TENANT, 'o', 'success', 't', 0.9, 7, 'ada', NOW)", 0, []string{"count-objectives"}},
		{"none, but counted", "DELETE FROM objectives; INSERT INTO service_gauges VALUES ('" + fleet.GaugeFastBurn + "', 1, NOW)", 0, []string{"count-objectives"}},
		{"none", "UPDATE service_gauges SET value = 0", 0, nil},
		{"a notification", "INSERT INTO notifications (id, tenant_id, name, kind, events, created_by) VALUES (gen_random_uuid(), TENANT, 'n', 'webhook', '{job.not_run_by}', 'ada')", 0, []string{"derive-events"}},
		{"a deadline that may be written yet", "INSERT INTO job_deadlines VALUES (JOB, TENANT, NOW, NOW)", settled.Lag - time.Second, []string{"derive-events"}},
		{"a deadline", "SELECT", settled.Lag, []string{"derive-events", "check-deadlines"}},
		{"a message that is not due", "DELETE FROM job_deadlines; UPDATE notifications SET due_at = NOW", -time.Second, []string{"derive-events"}},
		{"a message", "SELECT", 0, []string{"derive-events", "send-notifications"}},
		{"a message of one that is disabled", "UPDATE notifications SET enabled = false", 0, nil},
		{"a monitor", `INSERT INTO monitors (id, tenant_id, name, interval_seconds, start_grace_seconds, completion_grace_seconds, ping_key, created_by, deadline)
			VALUES (gen_random_uuid(), TENANT, 'm', 60, 60, 60, 'k', 'ada', NOW)`, -time.Second, []string{"count-monitors"}},
		{"a monitor that is late", "SELECT", 0, []string{"watch-monitors", "count-monitors"}},
		{"none any more, but counted", "DELETE FROM monitors; INSERT INTO service_gauges VALUES ('" + fleet.GaugeMonitors + "ok', 1, NOW)", 0, []string{"count-monitors"}},
		{"what it tells", "DELETE FROM service_gauges; INSERT INTO monitor_events VALUES (gen_random_uuid(), TENANT, NOW, '{}', '{}')", 0, []string{"watch-monitors"}},
	} {
		exec(t, b.database.AdminURL, fill.Replace(step.sql))
		got, err := b.maintainer.FindWork(t.Context(), now.Add(step.after))
		if diff := cmp.Diff(step.want, got); diff != "" || err != nil {
			t.Errorf("%s: (-want +got) %s; %v", step.name, diff, err)
		}
	}
}

// find-work calls a pass that has something to do, wherever it is from, but not one that was
// called a moment ago; it calls all when nobody knows. A pass that it does not know stays
// as it is.
func TestFindWorkCalls(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exec(t, b.database.AdminURL, nothingToCount)
	exec(t, b.database.AdminURL, fmt.Sprintf("INSERT INTO monitor_events VALUES (gen_random_uuid(), '%s', now(), '{}', '{}')", b.who.TenantID))
	engine := open(t, b.database.URL, postgres.Engine)
	m := b.anotherMaintainer(func(c *maintenance.Config) {
		c.DB = engine
		c.Elsewhere = []loop.Pass{{Name: "watch-monitors"}, {Name: "send-notifications"}, {Name: "derive-events", Apart: time.Hour}, {Name: "unknown"}}
	})
	passes := map[string]loop.Pass{}
	for _, p := range m.Passes() {
		passes[p.Name] = p
	}
	called := func() (names []string) {
		for name, p := range passes {
			select {
			case <-p.Called:
				names = append(names, name)
			default:
			}
		}
		slices.Sort(names)
		return names
	}
	if err := passes["find-work"].Do(t.Context(), &loop.Turn{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"watch-monitors"}, called()); diff != "" {
		t.Errorf("(-want +got) %s", diff)
	}
	engine.Close()
	if err := passes["find-work"].Do(t.Context(), &loop.Turn{}); err == nil {
		t.Error("found work without a database")
	}
	if diff := cmp.Diff([]string{"cancel", "change-status", "count-waiting", "end-awaited", "send-notifications", "suspend", "sweep", "watch-monitors"}, called()); diff != "" {
		t.Errorf("without a database: (-want +got) %s", diff)
	}
}
