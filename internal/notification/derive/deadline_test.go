package derive_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/lease"
	"github.com/scheduler-service/scheduler/internal/notification/derive"
)

// expects makes a job of a tenant whose executions should be completed within ten minutes,
// active and expected since two hours ago.
func (b *bundle) expects(tenant uuid.UUID, name string) uuid.UUID {
	b.t.Helper()
	job := uuid.New()
	b.makeJob(tenant, job, name)
	b.exec("UPDATE scheduled_jobs SET complete_within_seconds = 600, status_at = now() - interval '2 hours' WHERE id = $1", job)
	b.checkAgain(job)
	return job
}

// checkAgain has the next pass check a job, back to two hours ago.
func (b *bundle) checkAgain(job uuid.UUID) {
	b.t.Helper()
	b.exec("UPDATE job_deadlines SET checked_to = now() - interval '2 hours', check_at = now() - interval '1 hour' WHERE job_id = $1", job)
}

// due has the next pass check all jobs, from where they are on.
func (b *bundle) due() { b.exec("UPDATE job_deadlines SET check_at = now() - interval '1 hour'") }

// waits makes an active execution of a job that was scheduled so long ago.
func (b *bundle) waits(tenant, job uuid.UUID, ago time.Duration, status string) {
	b.t.Helper()
	b.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, status, max_attempts, timeout_ms, available_at, sweep_at)
		VALUES (gen_random_uuid(), $1, $2, 1, now() - $3::interval, 'scheduled', 'http', $4, 1, 1000, now(), now())`, tenant, job, ago, status)
}

func (b *bundle) checkDeadlines() derive.Report {
	b.t.Helper()
	var report derive.Report
	ran, err := b.leases.Run(b.t.Context(), "check-deadlines", func(ctx context.Context, held lease.Lease) (err error) {
		report, err = b.deriver.CheckDeadlines(ctx, held)
		return err
	})
	if !ran || err != nil {
		b.t.Fatalf("ran %v: %v", ran, err)
	}
	return report
}

// A scheduled time that was not completed in time is told once, for any reason.
func TestWhatDidNotRunInTimeIsToldOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := b.wants(b.a, "job.not_run_by")
	inTime := b.expects(b.a, "in time")
	b.ended(b.a, inTime, 40*time.Minute, "completed")
	b.waits(b.a, inTime, 5*time.Minute, "pending") // it has time left
	states := map[string]string{"pending": "it waits", "running": "it still runs", "retrying": "it waits for another attempt"}
	want := map[string]string{"late": "it was completed later", "unpromoted": "it has not become an execution yet", "failed": "it failed", "missed": "it was missed", "skipped": "it was skipped", "cancelled": "it was cancelled"}
	for status, reason := range states {
		b.waits(b.a, b.expects(b.a, status), 40*time.Minute, status)
		want[status] = reason
	}
	for _, status := range []string{"failed", "missed", "skipped", "cancelled"} {
		b.ended(b.a, b.expects(b.a, status), 40*time.Minute, status)
	}
	late, unpromoted := b.expects(b.a, "late"), b.expects(b.a, "unpromoted")
	b.ended(b.a, late, 40*time.Minute, "completed")
	b.exec("UPDATE job_executions SET completed_at = scheduled_at + interval '11 minutes' WHERE job_id = $1", late)
	b.exec("UPDATE scheduled_jobs SET next_execution_at = now() - interval '40 minutes' WHERE id = $1", unpromoted)
	b.exec("UPDATE scheduled_jobs SET status = 'inactive', status_by = 'system', status_at = now() - interval '39 minutes' WHERE name = 'running'") // its schedule is finished
	b.checkDeadlines()
	_, events := b.told(n)
	got := map[string]string{}
	for _, e := range events {
		got[e.JobName] = e.Reason
		if e.Type != "job.not_run_by" || e.MissedCount != 1 || e.ExpectedBy == nil || e.ExpectedBy.Sub(*e.ScheduledAt) != 10*time.Minute || (e.ExecutionID == nil) != (e.JobName == "unpromoted") {
			t.Errorf("it is told %+v", e)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("told (-want +got):\n%s", diff)
	}
	// After the outage the scheduled time that was told becomes a record.
	b.ended(b.a, unpromoted, 40*time.Minute, "completed")
	b.exec("UPDATE job_executions SET completed_at = now() - interval '1 minute', scheduled_at = (SELECT next_execution_at FROM scheduled_jobs WHERE id = $1) WHERE job_id = $1", unpromoted)
	b.exec("UPDATE scheduled_jobs SET next_execution_at = now() + interval '1 day' WHERE id = $1", unpromoted)
	b.due()
	if r := b.checkDeadlines(); r.Told != 0 {
		t.Errorf("the next pass tells %d again", r.Told)
	}
}

// Several scheduled times of a job are told together, and the job is not told of again for half
// an hour.
func TestDeadlinesOfAJobAreToldTogether(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n, job := b.wants(b.a, "job.not_run_by"), b.expects(b.a, "often")
	b.ended(b.a, job, 50*time.Minute, "missed")
	b.exec("UPDATE job_executions SET missed_count = 3 WHERE job_id = $1", job)
	b.ended(b.a, job, 30*time.Minute, "failed")
	b.waits(b.a, job, 20*time.Minute, "running")
	b.checkDeadlines()
	_, events := b.told(n)
	if len(events) != 1 || events[0].MissedCount != 5 || events[0].MissedUntil == nil || events[0].Reason != "it was missed" {
		t.Fatalf("it is told %+v", events)
	}
	var soon bool
	if err := b.admin.QueryRow(t.Context(), "SELECT check_at < now() + interval '29 minutes' FROM job_deadlines WHERE job_id = $1", job).Scan(&soon); err != nil || soon {
		t.Errorf("it is checked again soon: %v, %v", soon, err)
	}
}

func TestWhatIsNoDeadline(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := b.wants(b.a, "job.not_run_by")
	foreign := b.wants(b.b, "job.not_run_by")
	paused, resumed, gone, manual, repeated, old := b.expects(b.a, "paused"), b.expects(b.a, "resumed"), b.expects(b.a, "gone"), b.expects(b.a, "manual"), b.expects(b.a, "repeated"), b.expects(b.a, "old")
	for _, job := range []uuid.UUID{paused, resumed, gone} {
		b.ended(b.a, job, 40*time.Minute, "missed")
	}
	b.exec("UPDATE scheduled_jobs SET status = 'paused' WHERE id = $1", paused)
	b.exec("UPDATE scheduled_jobs SET status_at = now() - interval '30 minutes' WHERE id = $1", resumed)
	b.exec("UPDATE scheduled_jobs SET complete_within_seconds = NULL WHERE id = $1", gone)
	b.waits(b.a, manual, 40*time.Minute, "pending")
	b.exec("UPDATE active_executions SET trigger_type = 'manual'")
	b.ended(b.a, repeated, 40*time.Minute, "failed")
	b.ended(b.a, repeated, 35*time.Minute, "completed")
	b.exec(`UPDATE job_executions SET trigger_type = 'retry' WHERE job_id = $1 AND status = 'completed'`, repeated)
	b.exec(`INSERT INTO execution_retries (execution_id, tenant_id, job_id, retry_of, created_at)
		SELECT c.id, c.tenant_id, c.job_id, f.id, now() FROM job_executions c JOIN job_executions f ON f.job_id = c.job_id AND f.status = 'failed' WHERE c.job_id = $1 AND c.status = 'completed'`, repeated)
	b.ended(b.a, old, 90*time.Minute, "failed") // before the notification was made
	if r := b.checkDeadlines(); r.Told != 0 {
		_, events := b.told(n)
		t.Errorf("it is told %+v", events)
	}
	if types, _ := b.told(foreign); len(types) > 0 {
		t.Errorf("another tenant is told %v", types)
	}
	var left int
	if err := b.admin.QueryRow(t.Context(), "SELECT count(*) FROM job_deadlines WHERE job_id = $1", gone).Scan(&left); err != nil || left != 0 {
		t.Errorf("a job without the setting has a deadline: %d, %v", left, err)
	}
}

// One job whose event the database refuses stays alone, and a tenant with many jobs does not
// keep another from being told.
func TestDeadlinesTakeTurnsAndPoisonIsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	of, other := b.wants(b.a, "job.not_run_by"), b.wants(b.b, "job.not_run_by")
	b.exec(`INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds, complete_within_seconds, status_at, next_execution_at)
		SELECT gen_random_uuid(), $1, 'job ' || n, 'x', 'http', '{}', 1, 1, 600, now() - interval '2 hours', now() - interval '40 minutes' FROM generate_series(1, 510) n`, b.a)
	b.exec("UPDATE job_deadlines SET checked_to = now() - interval '2 hours', check_at = now() - interval '3 hours'")
	poison := b.expects(b.b, "poison")
	b.waits(b.b, poison, 40*time.Minute, "pending")
	b.waits(b.b, b.expects(b.b, "fine"), 40*time.Minute, "pending")
	b.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN
		IF NEW.events::text LIKE '%poison%' THEN RAISE EXCEPTION 'no' USING ERRCODE = 'check_violation'; END IF; RETURN NEW; END $f$`)
	b.exec("CREATE TRIGGER refuse BEFORE INSERT ON notification_deliveries FOR EACH ROW EXECUTE FUNCTION refuse()")
	if r := b.checkDeadlines(); !r.More || r.Dropped != 1 || r.Told != 499 {
		t.Errorf("the first pass reports %+v", r)
	}
	if _, events := b.told(other); len(events) != 1 || events[0].JobName != "fine" {
		t.Errorf("the other tenant is told %+v", events)
	}
	if r := b.checkDeadlines(); r.More || r.Told != 12 {
		t.Errorf("the second pass reports %+v", r)
	}
	if types, _ := b.told(of); len(types) != 510 {
		t.Errorf("%d jobs of the large tenant are told", len(types))
	}
}
