package retention_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/partition"
	"github.com/scheduler-service/scheduler/internal/retention"
)

// job makes one that was created long ago, with so many versions, each of its
// own month, the last of them so many months ago.
func (b *bundle) job(versions, lastMonthsAgo int) uuid.UUID {
	b.t.Helper()
	id := uuid.New()
	b.exec(`INSERT INTO scheduled_jobs (id, tenant_id, name, created_by, job_type, config, max_attempts, timeout_seconds, version)
		VALUES ($1, $2, 'x', 'x', 'http', '{}', 1, 1, $3)`, id, b.tenant, versions)
	for v := range versions {
		b.exec("INSERT INTO job_versions (job_id, version, tenant_id, spec, created_by, created_at) VALUES ($1, $2, $3, '{}', 'x', $4)",
			id, v+1, b.tenant, b.month.AddDate(0, -lastMonthsAgo-(versions-1-v), 1))
	}
	return id
}

// backfill makes one of this month, also in its first hours.
func (b *bundle) backfill(job uuid.UUID, version int, status string, finishedMonthsAgo int) {
	b.t.Helper()
	at := b.month.AddDate(0, -finishedMonthsAgo, 1)
	b.exec(`INSERT INTO backfills (id, tenant_id, job_id, job_version, from_at, to_at, cursor_at, rate_per_minute, status, total, requested_by, finished_at)
		VALUES (gen_random_uuid(), $1, $2, $3, $6, now(), now(), 1, $4::text, 1, 'x', CASE WHEN $4 <> 'running' THEN $5::timestamptz END)`,
		b.tenant, job, version, status, at, b.month)
}

func (b *bundle) versions(job uuid.UUID) int {
	b.t.Helper()
	return b.count("SELECT count(*) FROM job_versions WHERE job_id = $1", job)
}

func TestVersionsGoWhenNothingRunsThem(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := b.job(4, 14)        // 17, 16, 15 months ago, and the current one of 14 months ago
	recent := b.job(4, 12)     // the second was current until 13 months ago and a day: executions of it are kept
	single := b.job(1, 40)     // its current one, however old
	running := b.job(2, 20)    // version 1 is what an execution still runs
	backfilled := b.job(2, 20) // and here a backfill
	b.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at)
		VALUES (gen_random_uuid(), $1, $2, 1, now(), 'manual', 'http', 1, 1000, now(), now())`, b.tenant, running)
	b.backfill(backfilled, 1, "running", 0)
	r := b.pass(13)
	got := []int{b.versions(old), b.versions(recent), b.versions(single), b.versions(running), b.versions(backfilled), r.JobVersions}
	if diff := cmp.Diff([]int{1, 3, 1, 2, 2, 4}, got); diff != "" {
		t.Errorf("versions left, and removed (-want +got):\n%s", diff)
	}
}

// The output of executions goes after its own days, and with the history where those are more.
func TestOldOutputGoes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := b.month.AddDate(0, 0, 20)
	b.exec(`INSERT INTO execution_output (execution_id, attempt, last_line, tenant_id, lines, written_at)
		SELECT gen_random_uuid(), 1, 1, $1, '[]', $2::timestamptz - n * interval '24 hours' FROM generate_series(0, 999) n`, b.tenant, now.Add(-time.Minute))
	b.exec(`INSERT INTO execution_progress (execution_id, tenant_id, message, begun_at)
		SELECT execution_id, tenant_id, 'x', written_at FROM execution_output`)
	kept := int(now.Sub(b.month.AddDate(0, -13, 0)) / (24 * time.Hour))
	for _, test := range []struct{ days, want int }{{0, kept}, {400, min(kept, 400)}, {30, 30}} {
		k := retention.New(retention.Config{DB: b.db, Executions: partition.Term{Months: 13}, MetricDays: 14, OutputDays: test.days, Budget: time.Hour})
		if _, err := k.Pass(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		if n, m := b.count("SELECT count(*) FROM execution_output"), b.count("SELECT count(*) FROM execution_progress"); n != test.want || m != test.want {
			t.Errorf("kept for %d days: %d chunks and %d messages, want %d", test.days, n, m, test.want)
		}
	}
}

func TestDeletedJobsAndBackfillsGo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	gone, lately, active, alive := b.job(1, 20), b.job(1, 20), b.job(1, 20), b.job(1, 20)
	b.exec("UPDATE scheduled_jobs SET deleted_at = $2, status = 'inactive' WHERE id = ANY ($1)", []uuid.UUID{gone, active}, b.month.AddDate(0, -14, 1))
	b.exec("UPDATE scheduled_jobs SET deleted_at = $2, status = 'inactive' WHERE id = $1", lately, b.month.AddDate(0, -13, 1))
	b.exec(`INSERT INTO active_executions (id, tenant_id, job_id, job_version, scheduled_at, trigger_type, job_type, max_attempts, timeout_ms, available_at, sweep_at)
		VALUES (gen_random_uuid(), $1, $2, 1, now(), 'manual', 'http', 1, 1000, now(), now())`, b.tenant, active)
	b.backfill(gone, 1, "cancelled", 1)
	b.backfill(alive, 1, "completed", 14)
	b.backfill(alive, 1, "completed", 13)
	b.backfill(alive, 1, "running", 0)
	for months, job := range map[int]uuid.UUID{14: alive, 13: alive, 1: gone} {
		b.exec("INSERT INTO execution_retries (execution_id, tenant_id, job_id, retry_of, created_at) VALUES (gen_random_uuid(), $1, $2, gen_random_uuid(), $3)",
			b.tenant, job, b.month.AddDate(0, -months, 1))
	}
	r := b.pass(13)
	if n := b.count("SELECT count(*) FROM execution_retries"); n != 1 || r.Retries != 1 {
		t.Errorf("%d retries are left, want the young one of a job that is there; removed %+v", n, r)
	}
	if r.Jobs != 1 || r.Backfills != 1 {
		t.Errorf("removed %+v", r)
	}
	if n := b.count("SELECT count(*) FROM scheduled_jobs WHERE id = ANY ($1)", []uuid.UUID{lately, active, alive}); n != 3 {
		t.Errorf("%d jobs are left of 3", n)
	}
	if n := b.count("SELECT count(*) FROM scheduled_jobs WHERE id = $1", gone) + b.versions(gone) + b.count("SELECT count(*) FROM backfills WHERE job_id = $1", gone); n != 0 {
		t.Errorf("%d rows are left of a job that is gone", n)
	}
	if n := b.count("SELECT count(*) FROM backfills"); n != 2 {
		t.Errorf("%d backfills are left, want 2", n)
	}
}

// More than a batch of them.
func TestExpiredKeysGo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`INSERT INTO idempotency_keys (tenant_id, key, route, body_sha256, status, response, expires_at)
		SELECT $1, n::text, 'x', '', 0, '{}', now() + CASE WHEN n > 2500 THEN interval '1 hour' ELSE interval '-1 second' END FROM generate_series(1, 2600) n`, b.tenant)
	if r := b.pass(13); r.IdempotencyKeys != 2500 || !r.Nothing() {
		t.Errorf("removed %+v", r)
	}
	if n := b.count("SELECT count(*) FROM idempotency_keys"); n != 100 {
		t.Errorf("%d are left, want 100", n)
	}
}

// The second wall: a wrong statement removes nothing that is in use.
func TestPoliciesRefuseWhatIsYoung(t *testing.T) {
	t.Parallel()
	b := setup(t)
	live, current := b.job(1, 20), b.job(2, 20)
	young := b.job(2, 0)
	b.backfill(live, 1, "running", 0)
	b.backfill(live, 1, "completed", 0)
	b.exec("UPDATE backfills SET finished_at = now() - interval '6 days' WHERE status = 'completed'")
	b.exec("UPDATE job_versions SET created_at = now() - interval '6 days' WHERE job_id = $1", young)
	engine := b.connect(b.database.URL)
	for _, sql := range []string{"SET ROLE scheduler_engine", "DELETE FROM backfills", "DELETE FROM job_versions", "DELETE FROM scheduled_jobs"} {
		if _, err := engine.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	got := []int{b.count("SELECT count(*) FROM scheduled_jobs"), b.count("SELECT count(*) FROM backfills"), b.versions(live), b.versions(current), b.versions(young)}
	if diff := cmp.Diff([]int{3, 2, 1, 1, 2}, got); diff != "" {
		t.Errorf("left of jobs, backfills, versions (-want +got):\n%s", diff)
	}
	b.exec("UPDATE backfills SET status = 'completed', finished_at = now()") // one that runs keeps what it may write
	if _, err := retention.New(retention.Config{DB: b.db, Executions: partition.Term{Months: 0}}).Pass(t.Context(), b.month.AddDate(0, 2, 0)); err == nil {
		t.Error("a pass with a wrong clock removed the last days")
	}
}

// Roll-ups go with the months whose executions they count, and the policies keep the
// others from a wrong statement.
func TestRollupsGoWithTheirMonths(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`INSERT INTO outcome_rollups (tenant_id, part, span, at, cells)
		SELECT $1, part, 0, $2::timestamptz + n * interval '1 hour', '\x01' FROM generate_series(0, 2) part, generate_series(-500, 499) n`, b.tenant, b.month.AddDate(0, -13, 0))
	b.exec(`INSERT INTO outcome_rollups (tenant_id, part, span, at, cells) VALUES ($1, 0, 2, now() - interval '6 days', '\x01')`, b.tenant)
	if r := b.pass(13); r.Rollups != 1500 {
		t.Errorf("removed %d, want 1500", r.Rollups)
	}
	engine := b.connect(b.database.URL)
	for _, sql := range []string{"SET ROLE scheduler_engine", "DELETE FROM outcome_rollups"} {
		if _, err := engine.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if n := b.count("SELECT count(*) FROM outcome_rollups"); n != 1 {
		t.Errorf("%d are left, want that of this week", n)
	}
}

// Half minutes go after six hours, five minutes after the days that are asked for.
func TestMetricsThinOutAndGo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`INSERT INTO metric_history SELECT $1, at, date_bin('5 minutes', at, '2000-01-01 00:00:00+00') = at, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
		FROM generate_series(date_bin('5 minutes', now(), '2000-01-01 00:00:00+00') - interval '15 days', now(), '30 seconds') at`, b.tenant)
	if r := b.pass(13); r.Metrics < 30_000 {
		t.Errorf("removed %d", r.Metrics)
	}
	got := []int{
		b.count("SELECT count(*) FROM metric_history WHERE taken_at > now() - interval '6 hours' AND NOT coarse") / 10,
		// But for those that have come of age since the pass.
		b.count("SELECT count(*) FROM metric_history WHERE taken_at <= now() - interval '6 hours 3 minutes' AND NOT coarse"),
		b.count("SELECT count(*) FROM metric_history WHERE coarse") / 10,
	}
	if diff := cmp.Diff([]int{64, 0, 14 * 288 / 10}, got); diff != "" {
		t.Errorf("tens of rows left: fine, too fine, coarse (-want +got):\n%s", diff)
	}
}

// More than a batch of them, some of one time.
func TestManyVersionsGo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.job(1, 40)
	b.exec("UPDATE scheduled_jobs SET version = 2301 WHERE id = $1", id)
	b.exec(`INSERT INTO job_versions (job_id, version, tenant_id, spec, created_by, created_at)
		SELECT $1, n, $2, '{}', 'x', $3::timestamptz + n / 7 * interval '1 second' FROM generate_series(2, 2301) n`, id, b.tenant, b.month.AddDate(0, -20, 0))
	if r := b.pass(13); r.JobVersions != 2300 || b.versions(id) != 1 {
		t.Errorf("%d removed, %d left", r.JobVersions, b.versions(id))
	}
}
