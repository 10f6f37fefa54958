package promoter_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/idempotency"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/postgres/refusal"
)

// statuses are the states of a job's rows by time, as seconds after first.
func (b *bundle) statuses(t *testing.T, j job.Job, first time.Time) map[int]execution.Status {
	t.Helper()
	out := map[int]execution.Status{}
	for _, row := range b.rows(t, j) {
		out[int(row.ScheduledAt.Sub(first)/time.Second)] = row.Status
		if row.Status.Terminal() && row.Reason == "" {
			t.Errorf("the row of %v says no reason: %+v", row.ScheduledAt, row)
		}
	}
	return out
}

// setStatus makes a job's row at a time running, as a claim would.
func (b *bundle) setRunning(t *testing.T, j job.Job, at time.Time) {
	t.Helper()
	exec(t, b.database.AdminURL, fmt.Sprintf(
		"UPDATE active_executions SET status = 'running', attempt = 1, worker_id = gen_random_uuid(), lease_token = gen_random_uuid() WHERE id = '%s'",
		execution.ScheduledID(j.ID, at)))
}

func TestOverlapPolicies(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		policy job.Overlap
		max    int
		want   map[int]execution.Status // second → state, while the first run goes on
	}{
		{job.OverlapSkip, 1, map[int]execution.Status{0: execution.Running, 1: execution.Skipped, 2: execution.Skipped, 3: execution.Skipped}},
		{job.OverlapSkip, 2, map[int]execution.Status{0: execution.Running, 1: execution.Pending, 2: execution.Skipped, 3: execution.Skipped}},
		{job.OverlapQueue1, 1, map[int]execution.Status{0: execution.Running, 1: execution.Pending, 2: execution.Skipped, 3: execution.Skipped}},
		{job.OverlapQueue, 1, map[int]execution.Status{0: execution.Running, 1: execution.Pending, 2: execution.Pending, 3: execution.Skipped}},
		{job.OverlapCancel, 1, map[int]execution.Status{0: execution.Running, 1: execution.Cancelled, 2: execution.Cancelled, 3: execution.Pending}},
		{job.OverlapAllow, 1, map[int]execution.Status{0: execution.Running, 1: execution.Pending, 2: execution.Pending, 3: execution.Pending}},
	} {
		t.Run(fmt.Sprint(test.policy, " ", test.max), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			j := b.create(t, func(s *job.Spec) { s.Overlap, s.MaxConcurrent, s.OverlapQueueLimit = test.policy, test.max, 2 })
			first := *j.NextExecutionAt
			for second := range 4 {
				b.pass(t, b.promoter, first.Add(time.Duration(second)*time.Second))
				if second == 0 {
					b.setRunning(t, j, first)
				}
			}
			if diff := cmp.Diff(test.want, b.statuses(t, j, first)); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			rows := b.rows(t, j)
			if test.policy == job.OverlapCancel && !rows[0].Cancelling {
				t.Error("the running one is not asked to end")
			}
		})
	}
}

func TestRunsThatALaterTimeReplacedAtOnceDoNotCount(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, func(s *job.Spec) { s.Overlap, s.MaxExecutions = job.OverlapCancel, 2 })
	first := *j.NextExecutionAt
	// One pass finds four times: the last one takes the place of the others.
	report := b.pass(t, b.promoter, first.Add(3*time.Second))
	want := map[int]execution.Status{0: execution.Skipped, 1: execution.Skipped, 2: execution.Skipped, 3: execution.Pending}
	if diff := cmp.Diff(want, b.statuses(t, j, first)); diff != "" || report.Promoted != 1 {
		t.Errorf("%+v, rows (-want +got):\n%s", report, diff)
	}
	after, err := b.jobs.Get(t.Context(), b.who, j.ID)
	if err != nil {
		t.Fatal(err)
	}
	if after.Status != job.Active || after.ExecutionCount != 1 || !after.LastExecutionAt.Equal(first.Add(3*time.Second)) {
		t.Errorf("after one run of two: status %s, count %d, last %v", after.Status, after.ExecutionCount, after.LastExecutionAt)
	}
}

func TestMaxExecutionsEndTheJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, func(s *job.Spec) { s.MaxExecutions = 3 })
	b.pass(t, b.promoter, j.NextExecutionAt.Add(10*time.Second))
	after, err := b.jobs.Get(t.Context(), b.who, j.ID)
	if err != nil {
		t.Fatal(err)
	}
	if after.Status != job.Inactive || after.ExecutionCount != 3 || after.StatusReason != "maxExecutions is reached" || after.StatusBy != "system" {
		t.Errorf("%+v", after)
	}
	if rows := b.rows(t, j); len(rows) != 3 {
		t.Errorf("%d rows, want 3", len(rows))
	}
}

func TestPauseEndsByItselfAndSaysWhatItHeldBack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		policy job.MisfirePolicy
		want   map[int]execution.Status
		missed int64
	}{
		{job.MisfireSkip, map[int]execution.Status{0: execution.Missed}, 11},
		{job.FireOnce, map[int]execution.Status{0: execution.Missed, 10: execution.Pending}, 10},
		{job.FireAll, map[int]execution.Status{
			0: execution.Pending, 1: execution.Pending, 2: execution.Pending, 3: execution.Pending, 4: execution.Pending, 5: execution.Pending,
			6: execution.Pending, 7: execution.Pending, 8: execution.Pending, 9: execution.Pending, 10: execution.Pending,
		}, 0},
	} {
		t.Run(string(test.policy), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			j := b.create(t, func(s *job.Spec) { s.Misfire.Policy, s.Misfire.Limit, s.Misfire.GraceSeconds = test.policy, 100, 60 })
			first := clockIn(time.Minute).Truncate(time.Second) // so that the pause cannot have ended before it begins
			b.dueAt(t, j, first)
			until := first.Add(10*time.Second + 500*time.Millisecond)
			paused, err := b.jobs.Pause(t.Context(), b.who, j.ID, "maintenance", &until)
			if err != nil {
				t.Fatal(err)
			}
			if paused.StatusReason != "maintenance" || paused.StatusBy != "ada" || !paused.PausedUntil.Equal(until) {
				t.Errorf("paused: %+v", paused)
			}
			if n, _, err := b.maintainer.ChangeStatus(t.Context(), until.Add(-time.Millisecond)); err != nil || n != 0 {
				t.Fatalf("resumed early: %d, %v", n, err)
			}
			if n, _, err := b.maintainer.ChangeStatus(t.Context(), until); err != nil || n != 1 {
				t.Fatalf("resumed %d, %v", n, err)
			}
			b.pass(t, b.promoter, until)
			if diff := cmp.Diff(test.want, b.statuses(t, j, first)); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			if rows := b.rows(t, j); rows[0].MissedCount != test.missed {
				t.Errorf("missed %d, want %d: %s", rows[0].MissedCount, test.missed, rows[0].Reason)
			}
			// From then on the ordinary rule holds again.
			b.pass(t, b.promoter, first.Add(11*time.Second))
			if got := b.statuses(t, j, first)[11]; got != execution.Pending {
				t.Errorf("the next time is %q", got)
			}
		})
	}
}

func TestResumeChoosesWhatHappensToTheMissed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, nil)
	if _, err := b.jobs.Pause(t.Context(), b.who, j.ID, "", nil); err != nil {
		t.Fatal(err)
	}
	exec(t, b.database.AdminURL, "UPDATE scheduled_jobs SET next_execution_at = next_execution_at - interval '20 seconds'")
	resumed, err := b.jobs.Resume(t.Context(), b.who, j.ID, job.MisfireSkip)
	if err != nil || resumed.Status != job.Active {
		t.Fatalf("%+v, %v", resumed, err)
	}
	report := b.pass(t, b.promoter, time.Time{})
	if report.Promoted != 0 || report.Missed < 18 {
		t.Errorf("%+v, want all that the pause held back missed", report)
	}
}

func TestJobThatKeepsFailingIsStopped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, func(s *job.Spec) { s.DisableAfterFailures = 3 })
	over := func(status string, ago int) {
		t.Helper()
		exec(t, b.database.AdminURL, fmt.Sprintf(`INSERT INTO job_executions (id, scheduled_at, tenant_id, job_id, job_version, trigger_type, job_type, status, completed_at, created_at)
			SELECT gen_random_uuid(), now() - interval '%d seconds', tenant_id, id, 1, 'scheduled', 'function', '%s', now(), now() FROM scheduled_jobs`, ago, status))
	}
	stopped := func() bool {
		t.Helper()
		_, n, err := b.maintainer.ChangeStatus(t.Context(), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
	over("failed", 9)
	over("failed", 8)
	over("completed", 7)
	over("failed", 6)
	over("failed", 5)
	if stopped() {
		t.Fatal("stopped although a success stands between the failures")
	}
	over("failed", 4)
	if !stopped() {
		t.Fatal("not stopped after three failures in a row")
	}
	after, err := b.jobs.Get(t.Context(), b.who, j.ID)
	if err != nil {
		t.Fatal(err)
	}
	if after.Status != job.Inactive || after.StatusBy != "system" || after.StatusReason != "3 executions in a row failed" {
		t.Errorf("%+v", after)
	}
	if _, err := b.jobs.Resume(t.Context(), b.who, j.ID, ""); err != nil {
		t.Fatal(err)
	}
	if stopped() {
		t.Error("the failures of before the resume count again")
	}
}

func TestAuditFindsWhatIsMissingAndWhatIsTooMuch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	good := b.create(t, func(s *job.Spec) { s.Name = "good" })
	lost := b.create(t, func(s *job.Spec) { s.Name = "lost" })
	late := b.create(t, func(s *job.Spec) { s.Name = "late"; s.Misfire.Policy = job.MisfireSkip })
	begin := *late.NextExecutionAt
	exec(t, b.database.AdminURL, fmt.Sprintf("UPDATE scheduled_jobs SET status = 'paused' WHERE id = '%s'", late.ID))
	for second := range 60 {
		b.pass(t, b.promoter, begin.Add(time.Duration(second)*time.Second))
	}
	// The late one was not promoted for a minute and a half: a missed range.
	exec(t, b.database.AdminURL, "UPDATE scheduled_jobs SET status = 'active'")
	b.pass(t, b.promoter, begin.Add(90*time.Second))
	exec(t, b.database.AdminURL, fmt.Sprintf("DELETE FROM active_executions WHERE id = '%s'", execution.ScheduledID(lost.ID, begin.Add(30*time.Second))))

	report, err := b.maintainer.ReconcileSchedules(t.Context(), begin.Add(100*time.Second), uuid.Nil)
	if err != nil {
		t.Fatal(err)
	}
	if report.Jobs != 3 || report.Differing != 1 {
		t.Errorf("%+v, want one of three jobs to differ", report)
	}
	for _, want := range []struct {
		job        job.Job
		difference int64
	}{{good, 0}, {lost, -1}, {late, 0}} {
		got, err := b.jobs.Get(t.Context(), b.who, want.job.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.AuditDifference == nil || *got.AuditDifference != want.difference {
			t.Errorf("%s: difference %v, want %d", got.Name, got.AuditDifference, want.difference)
		}
	}
}

// The samples of one process go on where the last one ended, and come to every job.
func TestEachJobIsReconciledInTurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const jobs = 250 // two samples and a half
	for range jobs {
		b.create(t, nil)
	}
	exec(t, b.database.AdminURL, "UPDATE job_definitions SET created_at = now() - interval '2 h', updated_at = now() - interval '2 h', status_at = now() - interval '2 h'")
	passes := b.maintainer.Passes()
	reconcile := passes[slices.IndexFunc(passes, func(p loop.Pass) bool { return p.Name == "reconcile-schedules" })]
	for range 3 {
		if err := reconcile.Do(t.Context(), &loop.Turn{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.number(t, "SELECT count(*) FROM job_schedule WHERE audited_at IS NOT NULL"); n != jobs {
		t.Errorf("%d of %d jobs were reconciled", n, jobs)
	}
}

// Where the database refuses what is recorded of one job, and where somebody holds one, the
// others are recorded all the same. On the commit before, the first ended the pass with an
// error, and the second kept all jobs of the sample locked.
func TestAuditRecordsTheOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	good, poison, held := b.create(t, nil), b.create(t, nil), b.create(t, nil)
	begin := *good.NextExecutionAt
	for second := range 60 {
		b.pass(t, b.promoter, begin.Add(time.Duration(second)*time.Second))
	}
	exec(t, b.database.AdminURL, refusal.Refusal{Name: "one", Table: "job_schedule", Event: "UPDATE", Rows: "NEW.job_id = '" + poison.ID.String() + "'", SQLSTATE: "25000"}.Begin())
	holder, err := pgx.Connect(t.Context(), b.database.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close(context.Background())
	if _, err := holder.Exec(t.Context(), "BEGIN; SELECT 1 FROM scheduled_jobs WHERE id = '"+held.ID.String()+"' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if report, err := b.maintainer.ReconcileSchedules(t.Context(), begin.Add(100*time.Second), uuid.Nil); err != nil || report.Jobs != 3 {
		t.Fatalf("%+v, %v", report, err)
	}
	for _, want := range []struct {
		job      job.Job
		recorded bool
	}{{good, true}, {poison, false}, {held, false}} {
		got, err := b.jobs.Get(t.Context(), b.who, want.job.ID)
		if err != nil || (got.AuditDifference != nil) != want.recorded {
			t.Errorf("%s: recorded %v, %v; want %v", got.ID, got.AuditDifference, err, want.recorded)
		}
	}
}

// A triggered execution is none of the schedule's, so it takes none of them away.
func TestTriggersLeaveTheSchedulesExecutions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	j := b.create(t, func(s *job.Spec) { s.MaxExecutions, s.Overlap = 2, job.OverlapAllow })
	for range 3 {
		if _, _, err := b.executions.Trigger(t.Context(), b.who, j.ID, nil, idempotency.Key{}); err != nil {
			t.Fatal(err)
		}
	}
	b.pass(t, b.promoter, j.NextExecutionAt.Add(10*time.Second))
	after, err := b.jobs.Get(t.Context(), b.who, j.ID)
	if err != nil {
		t.Fatal(err)
	}
	if rows := b.rows(t, j); len(rows) != 3+2 || after.ExecutionCount != 2 || after.Status != job.Inactive {
		t.Errorf("%d rows, want three triggered and two of the schedule; %+v", len(rows), after)
	}
	// It has had all: nothing brings it back but a greater number.
	if _, err := b.jobs.Resume(t.Context(), b.who, j.ID, ""); fault.KindOf(err) != fault.Conflict {
		t.Errorf("resumed: %v", err)
	}
	spec := after.Spec
	spec.Name = "renamed"
	if same, err := b.jobs.Update(t.Context(), b.who, j.ID, spec, 0); err != nil || same.Status != job.Inactive || same.NextExecutionAt != nil || same.StatusReason != job.MaxExecutionsReached {
		t.Errorf("renamed: %+v, %v", same, err)
	}
	spec.MaxExecutions = 3
	if more, err := b.jobs.Update(t.Context(), b.who, j.ID, spec, 0); err != nil || more.Status != job.Active || more.NextExecutionAt == nil {
		t.Errorf("with one more: %+v, %v", more, err)
	}
}
